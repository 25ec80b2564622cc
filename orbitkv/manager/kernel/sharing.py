"""charge = shared: a physical page is charged once, however many operations of an instance name it.

Every operation claims the pages that its bytes are reserved for; the earliest claimant pays for a page.
When it lets go, the next one pays: the instance's reserved bytes never grow by that, so no budget can be
overrun by passing a charge on. Demand and hints pay apart, and so do instances, because each has its own
limit. Keys without a page number are no physical pages and cost nothing in this mode.

With charge = owner (the default) nothing here is called: every operation pays for all it names.
"""

from collections.abc import Sequence

import numpy as np

from orbitkv.events.facts import PagesClaimed, PagesUnclaimed, ReservationGrown
from orbitkv.manager.kernel.columns import NONE, Ints, pack
from orbitkv.manager.kernel.state import Instance, Operation, Part, State
from orbitkv.manager.kernel.turn import Turn


def marginal_bytes(state: State, instance_no: int, parts: Sequence[Part], *, hint: bool) -> int:
    """What these pages would cost now: those that nobody of the same kind pays for yet."""
    claims = state.claims.get((instance_no, hint), {})
    instance = state.instances[instance_no]
    return sum(
        instance.groups[part.group].footprint_bytes
        for part in parts
        for page in part.pages[part.pages != NONE].tolist()
        if page not in claims
    )


def claim(turn: Turn, number: int, instance: Instance, parts: Sequence[Part]) -> None:
    """Right after its bytes were reserved: the operation stands in line for every page it names."""
    for part in parts:
        pages = part.pages[part.pages != NONE]
        if len(pages):
            footprint = instance.groups[part.group].footprint_bytes
            turn.emit(PagesClaimed(number, pack(pages), footprint))


def let_go(turn: Turn, number: int) -> None:
    """Claims that neither the operation, nor its lease, nor its own reads in flight need any more."""
    state = turn.state
    operation = state.operations.get(number)
    if operation is not None and operation.lease < 0 and not _is_complete(operation):
        return
    reservation = state.reservations[number]
    needed = {state.reads[read].page for read in reservation.reads if state.reads[read].submitted}
    if operation is not None and operation.lease < 0:
        needed.update(_pages_of(state, operation.buffers))
    elif reservation.lease >= 0:
        needed.update(_pages_of(state, state.leases[reservation.lease].buffers))
    gone = [page for page in reservation.claimed if page not in needed]
    if gone:
        _note_successors(turn, number, gone)
        turn.loosened.append(np.array(gone, np.int64))
        turn.emit(PagesUnclaimed(number, pack(gone)))


def _is_complete(operation: Operation) -> bool:
    """It is about to be answered."""
    return operation.granted and not operation.awaited and not operation.hint


def _pages_of(state: State, buffers: Ints) -> list[int]:
    pages: list[int] = state.buffers.page[buffers].tolist()
    return pages


def _note_successors(turn: Turn, number: int, pages: list[int]) -> None:
    """Those who stand second in line pay from now on."""
    state = turn.state
    line = state.claims[state.reservations[number].kind]
    for page in pages:
        claimants = iter(line[page])
        if next(claimants) == number:
            successor = next(claimants, None)
            if successor is not None:
                turn.successors[successor] = None


def paid_bytes(state: State, number: int) -> int:
    """Footprints of the pages for which the operation is first in line."""
    reservation = state.reservations[number]
    line = state.claims.get(reservation.kind, {})
    return sum(size for page, size in reservation.claimed.items() if next(iter(line[page])) == number)


def pass_on(turn: Turn) -> None:
    """After the one who let go has shrunk: its successors take over what it paid for them."""
    due = list(turn.successors)
    turn.successors.clear()
    for number in due:
        reservation = turn.state.reservations.get(number)
        if reservation is not None:
            paid = paid_bytes(turn.state, number)
            if paid > reservation.charge_bytes:
                turn.emit(ReservationGrown(number, paid))
