"""What facts about operations and leases do to the state."""

import numpy as np

from orbitkv.events import facts
from orbitkv.events.outcomes import Phase, QueryEnd, Share
from orbitkv.manager.kernel.apply_reads import let_go
from orbitkv.manager.kernel.columns import ABSENT, EMPTY, NONE, ZERO, Ints, lowest, unpack
from orbitkv.manager.kernel.state import (
    Consumer,
    Decision,
    Lease,
    Operation,
    Part,
    Reservation,
    State,
)

_WARMING, _PREPARING, _READY, _RESTORING = Phase.WARMING, Phase.PREPARING, Phase.READY, Phase.RESTORING
_BYPASSED, _ANSWERED_WITHOUT_LEASE = QueryEnd.BYPASSED, (QueryEnd.MISSED, QueryEnd.BYPASSED)
_OPEN, _COPYING, _LOST = Share.OPEN, Share.RESTORING, Share.LOST
_ONE_WIDE = np.ones(1, np.int64)


def query_opened(state: State, event: facts.QueryOpened) -> None:
    parts = [
        Part(group, page_tokens, trailing, EMPTY, (), asked)
        for group, page_tokens, trailing, asked in event.parts
    ]
    state.operations[event.operation] = Operation(
        event.instance,
        event.session,
        event.request,
        event.attempt,
        event.revision,
        event.body,
        tuple(parts),
        event.asked_pages,
        event.charge_bytes,
        event.deadline_ns,
        state.seq,
    )
    retire_ticket(state, event.session, event.operation & 0xFFFF_FFFF)
    state.sessions[event.session].operations[event.operation] = None
    key = (event.instance, event.request, event.attempt)
    state.by_request[key] = event.operation
    forget_decision(state, key)
    state.unanswered[event.operation] = None


def retire_ticket(state: State, session: int, ticket: int) -> None:
    """From here on neither this ticket nor a lower one opens anything."""
    entry = state.sessions[session]
    assert ticket > entry.ticket_high, "a retired ticket never revives"
    entry.ticket_high = ticket


def forget_decision(state: State, key: tuple[int, str, int]) -> None:
    decision = state.decisions.pop(key, None)
    if decision is not None:
        del state.decided[decision.operation]


def query_waiting(state: State, event: facts.QueryWaiting) -> None:
    operation = state.operations[event.operation]
    for part, column, unknown in zip(operation.parts, event.pages, event.unknown, strict=True):
        part.pages = unpack(column)
        part.unknown = unknown
        _count_references(state, part, 1)
    state.waiting[event.operation] = None
    state.totals.budget_waits += 1


def _count_references(state: State, part: Part, change: int) -> None:
    """A waiting operation keeps the page numbers that it knows from being used for other pages."""
    known = part.pages[part.pages != NONE]
    state.pages.references[known] += change


def leave_waiting(state: State, number: int, operation: Operation) -> None:
    if number in state.waiting:
        del state.waiting[number]
        for part in operation.parts:
            _count_references(state, part, -1)
            part.pages, part.unknown = EMPTY, ()


def query_granted(state: State, event: facts.QueryGranted) -> None:
    operation = state.operations[event.operation]
    leave_waiting(state, event.operation, operation)
    operation.granted = True
    needed = 0
    for part, reach in zip(operation.parts, event.reach, strict=True):
        part.reach = reach
        needed += part.needed
    buffers = unpack(event.buffers)
    if len(buffers) == needed:
        operation.buffers = buffers
        operation.from_ssd = np.zeros(needed, np.int64)
    else:
        operation.buffers = ABSENT.repeat(needed)
        operation.from_ssd = _ONE_WIDE.repeat(needed)
        if len(buffers):
            positions = unpack(event.positions)
            operation.buffers[positions] = buffers
            operation.from_ssd[positions] = 0
    if len(buffers):
        state.buffers.hold(buffers)
        state.buffers.touch(buffers, state.seq)
    state.reservations[event.operation] = Reservation(operation.instance, 0, _PREPARING)
    set_charge(state, event.operation, event.charge_bytes, _PREPARING)


def set_charge(state: State, operation: int, charge_bytes: int, phase: Phase) -> None:
    """The one place where reserved bytes change."""
    reservation = state.reservations[operation]
    instance = state.instances[reservation.instance]
    former = reservation.charge_bytes
    state.reserved_bytes += charge_bytes - former
    instance.reserved_bytes += charge_bytes - former
    by_phase = state.reserved_by_phase
    by_phase[reservation.phase] -= former
    by_phase[phase] += charge_bytes
    if phase == _WARMING:
        instance.warming_bytes += charge_bytes - former
    reservation.charge_bytes = charge_bytes
    reservation.phase = phase
    assert state.reserved_bytes >= 0 and charge_bytes >= 0, "nothing reserved goes negative"


def query_cut(state: State, event: facts.QueryCut) -> None:
    operation = state.operations[event.operation]
    kept: list[Ints] = []
    start = 0
    for part, reach in zip(operation.parts, event.reach, strict=True):
        first, end = part.first, start + part.needed
        part.reach = reach
        low = start + part.first - first if part.needed else start
        assert low >= start and low + part.needed <= end, "a cut only takes away"
        kept.append(np.arange(low, low + part.needed))
        start = end
    keep = np.concatenate(kept)
    new_position = np.full(len(operation.buffers), -1, np.int64)
    new_position[keep] = np.arange(len(keep))
    gone = operation.buffers[new_position < 0]
    state.buffers.holds[gone[gone >= 0]] -= 1
    operation.buffers = operation.buffers[keep]
    operation.from_ssd = operation.from_ssd[keep]
    for read, position in list(operation.awaited.items()):
        moved = int(new_position[position])
        if moved < 0:
            del operation.awaited[read]
            let_go(state, read, event.operation)
        else:
            operation.awaited[read] = moved
            state.reads[read].waiters[event.operation] = moved


def decision_settled(state: State, event: facts.DecisionSettled) -> None:
    totals = state.totals
    assert event.dram + event.peer + event.ssd + event.miss == event.asked, "every asked page has one tier"
    totals.decisions += 1
    totals.asked_pages += event.asked
    totals.dram_pages += event.dram
    totals.ssd_pages += event.ssd
    totals.miss_pages += event.miss


def lease_granted(state: State, event: facts.LeaseGranted) -> None:
    assert event.lease == state.lease_next, "leases are given once, in order"
    state.lease_next += 1
    operation = state.operations[event.operation]
    assert not operation.awaited and lowest(operation.buffers) >= 0, "a lease names pages that are there"
    operation.lease = event.lease
    del state.unanswered[event.operation]
    instance = state.instances[operation.instance]
    instance.leases += 1
    state.leases[event.lease] = Lease(
        event.operation,
        operation.instance,
        operation.session,
        operation.buffers,
        event.boundary_tokens,
        tuple([(part.group, part.first, part.needed) for part in operation.parts]),
        event.deadline_ns,
        {rank: Consumer(_OPEN) for rank in range(instance.world_size)},
    )
    state.promised[event.lease] = None
    reservation = state.reservations[event.operation]
    reservation.lease = event.lease
    reservation.lease_bytes = leased_bytes(state, operation)
    set_charge(state, event.operation, event.charge_bytes, _READY)


def leased_bytes(state: State, operation: Operation) -> int:
    """Footprints of the pages up to the operation's boundary."""
    groups = state.instances[operation.instance].groups
    return sum([groups[part.group].footprint_bytes * part.needed for part in operation.parts])


def query_ended(state: State, event: facts.QueryEnded) -> None:
    operation = state.operations.pop(event.operation)
    leave_waiting(state, event.operation, operation)
    state.unanswered.pop(event.operation, None)
    del state.sessions[operation.session].operations[event.operation]
    key = (operation.instance, operation.request, operation.attempt)
    if state.by_request.get(key) == event.operation:
        del state.by_request[key]
    for read in operation.awaited:
        let_go(state, read, event.operation)
    if operation.granted and operation.lease < 0:
        state.buffers.let_go(operation.buffers[operation.buffers >= ZERO])
    if event.end in _ANSWERED_WITHOUT_LEASE:
        _remember(state, key, Decision(event.operation, operation.revision, operation.session, event.end))
    ends = state.totals.query_ends
    ends[event.end] = ends.get(event.end, 0) + 1
    if event.end == _BYPASSED:
        state.totals.budget_bypasses += 1


def _remember(state: State, key: tuple[int, str, int], decision: Decision) -> None:
    forget_decision(state, key)
    state.decisions[key] = decision
    state.decided[decision.operation] = key
    if len(state.decisions) > state.config.decisions_remembered_max:
        _, oldest = state.decisions.popitem(last=False)
        del state.decided[oldest.operation]


def lease_ended(state: State, event: facts.LeaseEnded) -> None:
    lease = state.leases[event.lease]
    assert not lease.ended, "a lease ends once"
    lease.ended = True
    del state.promised[event.lease]
    state.buffers.let_go(lease.buffers)
    for consumer in lease.shares.values():
        if consumer.share == _OPEN:
            consumer.share = _LOST
    ends = state.totals.lease_ends
    ends[event.end] = ends.get(event.end, 0) + 1


def restore_begun(state: State, event: facts.RestoreBegun) -> None:
    lease = state.leases[event.lease]
    consumer = lease.shares[event.rank]
    assert consumer.share == _OPEN and not lease.ended, "one consumer per rank, while the promise lasts"
    consumer.share = _COPYING
    consumer.session = event.session
    consumer.process = state.sessions[event.session].process
    state.processes[consumer.process].copies += 1
    state.buffers.hold(lease.buffers)
    reservation = state.reservations[lease.operation]
    set_charge(state, lease.operation, reservation.charge_bytes, _RESTORING)


def share_ended(state: State, event: facts.ShareEnded) -> None:
    lease = state.leases[event.lease]
    consumer = lease.shares[event.rank]
    held = consumer.holds
    consumer.share = Share(event.share)
    if held and not consumer.holds:
        state.buffers.let_go(lease.buffers)
        state.processes[consumer.process].copies -= 1


def gpu_synced(state: State, event: facts.GpuSynced) -> None:
    totals = state.totals
    totals.loads += 1
    totals.load_bytes += event.copied_bytes
    totals.load_us += event.elapsed_us


def sync_failed(state: State, event: facts.SyncFailed) -> None:
    state.totals.load_failures += 1


def lease_released(state: State, event: facts.LeaseReleased) -> None:
    lease = state.leases.pop(event.lease)
    assert lease.ended and not any(consumer.holds for consumer in lease.shares.values()), "nobody holds it"
    state.instances[lease.instance].leases -= 1
    reservation = state.reservations[lease.operation]
    reservation.lease = -1
    reservation.lease_bytes = 0


def reservation_shrunk(state: State, event: facts.ReservationShrunk) -> None:
    reservation = state.reservations[event.operation]
    assert event.charge_bytes < reservation.charge_bytes, "a reservation only shrinks"
    kept = reservation.lease >= 0 or reservation.phase == _WARMING
    set_charge(state, event.operation, event.charge_bytes, reservation.phase if kept else _PREPARING)


def reservation_ended(state: State, event: facts.ReservationEnded) -> None:
    reservation = state.reservations[event.operation]
    assert reservation.lease < 0 and not reservation.claimed, "nothing keeps its bytes reserved"
    set_charge(state, event.operation, 0, reservation.phase)
    del state.reservations[event.operation]
