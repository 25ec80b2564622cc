"""The cohort ledger: every page that speculation prepared is restored once, unused once, or pending.

Accounting follows the generation. Owners are the cache, queries, leases and copies; the SSD's writer and a
read in flight only delay the reuse of memory.
"""

from orbitkv.events import commands, facts
from orbitkv.events.outcomes import EvictionReason, Origin, Unused
from orbitkv.events.record import Record
from tests.models.books import Books, Handler
from tests.models.columns import numbers
from tests.models.rows import Buffer, Lease, Read
from tests.models.story import require

CAUSES = {
    EvictionReason.CAPACITY: Unused.EVICTED,
    EvictionReason.SUPERBLOCK: Unused.EVICTED,
    EvictionReason.CLEANUP: Unused.CLEANUP,
    None: Unused.REPLACED,  # lookups never found it
}


def landed(books: Books, read: Read) -> None:
    """A read has landed, verified: if a hint started it, its page is prepared."""
    if read.origin == Origin.WARM:
        assert read.buffer is not None
        books.prepared_now.add(read.buffer)


def named_by_sync(books: Books, lease: Lease, ranges: tuple[tuple[int, int], ...]) -> None:
    """A successful sync names these pages of a lease: those whose outcome is open are restored."""
    for first, last in ranges:
        books.restored_now |= {buffer for buffer in lease.pages[first:last] if books.buffers[buffer].prepared}


def pages_prepared(books: Books, event: facts.PagesPrepared, record: Record) -> None:
    for buffer in numbers(event.buffers):
        rule = "a page is prepared at the landing of a read that a hint started, once"
        require(buffer in books.prepared_now, rule, buffer=buffer)
        books.prepared_now.remove(buffer)
        row = books.buffers[buffer]
        row.prepared, row.landed_ns = True, record.at_ns
        books.prepared_bytes += row.footprint_bytes


def _resolved(row: Buffer, record: Record) -> int:
    """Closes a page's account; KiB x microseconds from its landing."""
    row.prepared = False
    return row.footprint_bytes // 1024 * ((record.at_ns - row.landed_ns) // 1000)


def pages_restored(books: Books, event: facts.PagesRestored, record: Record) -> None:
    for buffer in numbers(event.buffers):
        rule = "a prepared page is credited once, by the first sync that names it"
        require(buffer in books.restored_now, rule, buffer=buffer)
        books.restored_now.remove(buffer)
        row = books.buffers[buffer]
        books.restored_wait_kib_us += _resolved(row, record)
        books.restored_bytes += row.footprint_bytes


def pages_unused(books: Books, event: facts.PagesUnused, record: Record) -> None:
    for buffer in numbers(event.buffers):
        row = books.buffers[buffer]
        require(row.prepared, "an outcome is recorded once", buffer=row)
        if event.cause == Unused.RESTART:
            closing = isinstance(record.cause, commands.CloseIncarnation)
            require(closing, "pages are lost to a restart at the chain's end alone", buffer=row)
        else:
            owners = books.owners(buffer)
            rule = "a prepared page is unused when its last owner let go"
            require(not row.indexed and not owners, rule, buffer=row, owners=owners)
            require(event.cause == CAUSES[row.left], "the cause is how it left", event=event, buffer=row)
        books.unused_wait_kib_us += _resolved(row, record)
        books.unused_bytes[event.cause] = books.unused_bytes.get(event.cause, 0) + row.footprint_bytes


def account(books: Books, record: Record) -> None:
    """After every record: prepared = restored + unused + pending, and nothing due is left untold."""
    left, books.prepared_now = books.prepared_now, set()
    require(not left, "what landed for a hint is told as prepared", buffers=sorted(left))
    left, books.restored_now = books.restored_now, set()
    require(not left, "what a sync names for the first time is told as restored", buffers=sorted(left))
    pending = books.pending_bytes()
    known = books.restored_bytes + sum(books.unused_bytes.values()) + pending
    require(
        books.prepared_bytes == known,
        "prepared = restored + unused + pending",
        prepared=books.prepared_bytes,
        restored=books.restored_bytes,
        unused=books.unused_bytes,
        pending=pending,
    )
    require(not (books.closed and pending), "a closed chain leaves nothing pending", pending=pending)


def pending_pages_have_an_owner(books: Books, record: Record) -> None:
    for buffer in books.buffers.values():
        if buffer.prepared:
            owned = buffer.indexed or books.owners(buffer.number)
            require(owned, "a prepared page without an owner is told as unused", buffer=buffer)


HANDLERS: dict[type, Handler] = {
    facts.PagesPrepared: pages_prepared,
    facts.PagesRestored: pages_restored,
    facts.PagesUnused: pages_unused,
}
