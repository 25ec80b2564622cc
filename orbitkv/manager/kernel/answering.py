"""Answering and ending: leases are promised, decisions settled once, reservations let go.

A reservation ends with its last holder: the operation, its lease, a copy, or a read of its own that
was submitted. Ending an operation or a lease never touches a submitted read or a running copy.
"""

import numpy as np

from orbitkv.events.facts import (
    DecisionSettled,
    LeaseEnded,
    LeaseGranted,
    LeaseReleased,
    QueryEnded,
    ReservationEnded,
    ReservationShrunk,
)
from orbitkv.events.outcomes import LeaseEnd, QueryEnd, Share
from orbitkv.manager.kernel.apply_queries import leased_bytes
from orbitkv.manager.kernel.columns import NONE, ZERO
from orbitkv.manager.kernel.interest import drop_unwanted
from orbitkv.manager.kernel.sharing import let_go, paid_bytes
from orbitkv.manager.kernel.state import State
from orbitkv.manager.kernel.turn import Turn

_LEASE_END = {
    QueryEnd.CANCELLED: LeaseEnd.CANCELLED,
    QueryEnd.REVISED: LeaseEnd.REVISED,
    QueryEnd.DISCONNECTED: LeaseEnd.DISCONNECTED,
    QueryEnd.SHUTDOWN: LeaseEnd.SHUTDOWN,
    QueryEnd.LEASE_EXPIRED: LeaseEnd.EXPIRED,
    QueryEnd.CONSUMED: LeaseEnd.CONSUMED,
}


def answer_if_complete(turn: Turn, number: int) -> None:
    """Answer an operation that waits for no read any more."""
    state = turn.state
    operation = state.operations.get(number)
    if operation is None or not operation.granted or operation.lease >= 0 or operation.awaited:
        return
    hits = len(operation.buffers)
    ssd = int(np.count_nonzero(operation.from_ssd))
    turn.emit(DecisionSettled(number, operation.asked, hits - ssd, 0, ssd, operation.asked - hits))
    turn.reservations[number] = None
    if not hits:
        turn.emit(QueryEnded(number, QueryEnd.MISSED))
        return
    first = operation.parts[0]
    if state.config.charge_shared:
        let_go(turn, number)
        charge_bytes = paid_bytes(state, number)
    else:
        charge_bytes = leased_bytes(state, operation) + draining_bytes(state, number)
    turn.emit(
        LeaseGranted(
            state.lease_next,
            number,
            first.reach * first.page_tokens,
            charge_bytes,
            turn.at_ns + state.config.lease_lifetime_ns,
        )
    )
    turn.budget_freed = True


def draining_bytes(state: State, operation: int) -> int:
    """Footprints of the operation's own submitted reads that have not ended."""
    numbers = state.reservations[operation].reads
    if not numbers:
        return 0
    reads = [state.reads[number] for number in numbers]
    return sum([read.footprint_bytes for read in reads if read.submitted])


def settle_reservation(turn: Turn, number: int) -> None:
    """Shrink or end a reservation to what its last holders need."""
    state = turn.state
    reservation = state.reservations.get(number)
    if reservation is None:
        return
    operation = state.operations.get(number)
    if operation is not None and operation.lease < 0:
        return
    draining = draining_bytes(state, number)
    if state.config.charge_shared:
        let_go(turn, number)
    if reservation.lease < 0 and not draining:
        turn.instances[reservation.instance] = None
        turn.emit(ReservationEnded(number))
        turn.budget_freed = True
        return
    needed = reservation.lease_bytes + draining
    if state.config.charge_shared:
        needed = paid_bytes(state, number)
    if needed < reservation.charge_bytes:
        turn.emit(ReservationShrunk(number, needed))
        turn.budget_freed = True


def end_operation(turn: Turn, number: int, end: QueryEnd) -> None:
    """Drop an operation's interest and promise. Submitted reads and running copies are not touched."""
    state = turn.state
    operation = state.operations[number]
    if operation.lease >= 0:
        end_lease(turn, operation.lease, _LEASE_END[end])
    elif end == QueryEnd.EXPIRED:
        turn.emit(DecisionSettled(number, operation.asked, 0, 0, 0, operation.asked))
    if operation.granted and operation.lease < 0:
        turn.released.append(operation.buffers[operation.buffers >= ZERO])
    awaited = list(operation.awaited)
    waited = [part.pages[part.pages != NONE] for part in operation.parts] if number in state.waiting else []
    turn.emit(QueryEnded(number, end))
    turn.loosened.extend(waited)
    drop_unwanted(turn, awaited)
    turn.reservations[number] = None
    turn.budget_freed = True


def end_lease(turn: Turn, number: int, end: LeaseEnd) -> None:
    """The promise is over; copies that have begun keep their pages."""
    lease = turn.state.leases[number]
    if lease.ended:
        return
    turn.emit(LeaseEnded(number, end))
    turn.released.append(lease.buffers)
    release_lease_if_unheld(turn, number)


def end_lease_if_consumed(turn: Turn, number: int, end: QueryEnd = QueryEnd.CONSUMED) -> None:
    """A lease ends when every rank has restored, released or lost its share; `end` says how the last went."""
    state = turn.state
    lease = state.leases[number]
    if lease.ended:
        release_lease_if_unheld(turn, number)
        return
    if any(c.share in (Share.OPEN, Share.RESTORING, Share.STRANDED) for c in lease.shares.values()):
        return
    if lease.operation in state.operations:
        end_operation(turn, lease.operation, end)
    else:
        end_lease(turn, number, _LEASE_END[end])


def release_lease_if_unheld(turn: Turn, number: int) -> None:
    lease = turn.state.leases[number]
    if lease.ended and not any(consumer.holds for consumer in lease.shares.values()):
        turn.emit(LeaseReleased(number))
        turn.reservations[lease.operation] = None
