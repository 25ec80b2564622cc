"""Rules of charge = shared: a physical page is paid for once by each kind, by the first who stands in line.

Demands and hints pay apart, and so do instances. A key without a page number is no physical page.
"""

from orbitkv.events import facts
from orbitkv.events.record import Record
from tests.models.books import Books, Handler
from tests.models.columns import numbers
from tests.models.rows import Operation
from tests.models.story import require


def line_of(books: Books, operation: Operation) -> dict[int, list[int]]:
    return books.lines.setdefault((operation.instance, operation.warm), {})


def charged_pages(books: Books, operation: Operation) -> dict[int, int]:
    """Page to footprint of the physical pages that its charge is for; a cut-off prefix is not charged."""
    footprints = books.instances[operation.instance].footprints
    pages: dict[int, int] = {}
    total = 0
    for group, space, key in operation.named:
        total += footprints[group]
        if total > operation.asked_charge_bytes:
            break
        page = books.page_of_key.get((space, key))
        if page is not None:
            pages[page] = footprints[group]
    return pages


def marginal_bytes(books: Books, operation: Operation) -> int:
    """Footprints of the pages that nobody of its kind pays for yet."""
    line = line_of(books, operation)
    return sum(size for page, size in charged_pages(books, operation).items() if not line.get(page))


def paid_bytes(books: Books, operation: Operation) -> int:
    line = line_of(books, operation)
    return sum(size for page, size in operation.claims.items() if line[page][0] == operation.number)


def pages_claimed(books: Books, event: facts.PagesClaimed, record: Record) -> None:
    assert books.config is not None
    operation = books.operations[event.operation]
    require(books.config.charge_shared, "pages are claimed where charges are shared")
    require(operation.granted and operation.end is None, "claims begin with the grant", event=event)
    charged = charged_pages(books, operation)
    for page in numbers(event.pages):
        require(page in charged, "an operation claims the pages that it is charged for", page=page)
        require(page not in operation.claims, "a page is claimed once", page=page)
        require(event.footprint_bytes == charged[page], "a claim is for a page's footprint", event=event)
        operation.claims[page] = event.footprint_bytes
        line_of(books, operation).setdefault(page, []).append(operation.number)


def pages_unclaimed(books: Books, event: facts.PagesUnclaimed, record: Record) -> None:
    operation = books.operations[event.operation]
    line = line_of(books, operation)
    for page in numbers(event.pages):
        require(page in operation.claims, "only what was claimed is let go", page=page)
        del operation.claims[page]
        line[page].remove(operation.number)
        if not line[page]:
            del line[page]


def reservation_grown(books: Books, event: facts.ReservationGrown, record: Record) -> None:
    operation = books.operations[event.operation]
    was, right = operation.charge_bytes, paid_bytes(books, operation)
    require(not operation.charge_over, "a charge that is over stays over", event=event)
    require(
        was < event.charge_bytes == right, "the next in line takes over", event=event, was=was, right=right
    )
    operation.charge_bytes = event.charge_bytes


def claims_are_right(books: Books, operation: Operation) -> None:
    """Between records: the first in line pays, and claims last as long as the need."""
    said, right = operation.charge_bytes, paid_bytes(books, operation)
    rule = "with shared charges the first in line pays"
    require(said == right, rule, operation=operation.number, said=said, right=right)
    needed = {read.page for read in books.reads_in_flight() if read.submitter == operation.number}
    lease = books.leases.get(operation.lease) if operation.lease is not None else None
    if lease is not None and not lease.released:
        needed |= {books.buffers[buffer].page for buffer in lease.pages}
    claimed = set(operation.claims)
    rule = "an operation claims what it still needs"
    require(needed <= claimed, rule, operation=operation.number, missing=sorted(needed - claimed))
    if operation.answered:
        rule = "claims end with the need"
        require(needed == claimed, rule, operation=operation.number, idle=sorted(claimed - needed))
    else:
        wanted = {books.page_of_key.get(operation.keys[asked]) for asked in operation.layout}
        require(wanted <= claimed, rule, operation=operation.number, missing=wanted - claimed)


HANDLERS: dict[type, Handler] = {
    facts.PagesClaimed: pages_claimed,
    facts.PagesUnclaimed: pages_unclaimed,
    facts.ReservationGrown: reservation_grown,
}
