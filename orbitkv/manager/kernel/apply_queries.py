"""What facts about operations, reads and leases do to the state."""

import numpy as np

from orbitkv.events import facts
from orbitkv.events.outcomes import Origin, Phase, QueryEnd, Share
from orbitkv.manager.kernel.buffers import Busy
from orbitkv.manager.kernel.columns import EMPTY, Ints, lowest, unpack
from orbitkv.manager.kernel.state import (
    Consumer,
    Decision,
    Lease,
    Operation,
    Part,
    Read,
    Reservation,
    State,
)

_WARMING = Phase.WARMING


def query_opened(state: State, event: facts.QueryOpened) -> None:
    parts = tuple(
        Part(group, page_tokens, trailing, EMPTY, (), asked)
        for group, page_tokens, trailing, asked in event.parts
    )
    state.operations[event.operation] = Operation(
        event.instance,
        event.session,
        event.request,
        event.attempt,
        event.revision,
        event.body,
        parts,
        event.asked_pages,
        event.charge_bytes,
        event.deadline_ns,
        state.seq,
    )
    session = state.sessions[event.session]
    ticket = event.operation & 0xFFFF_FFFF
    assert ticket > session.ticket_high, "a retired operation never revives"
    session.ticket_high = ticket
    session.operations[event.operation] = None
    state.by_request[event.instance, event.request, event.attempt] = event.operation
    forget_decision(state, (event.instance, event.request, event.attempt))
    state.unanswered[event.operation] = None


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
    known = part.pages[part.pages != 0xFFFF_FFFF]
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
    for part, reach in zip(operation.parts, event.reach, strict=True):
        part.reach = reach
    needed = sum(part.needed for part in operation.parts)
    buffers = unpack(event.buffers)
    if len(buffers) == needed:
        operation.buffers = buffers
        operation.from_ssd = np.zeros(needed, np.int64)
    else:
        positions = unpack(event.positions)
        operation.buffers = np.full(needed, -1, np.int64)
        operation.buffers[positions] = buffers
        operation.from_ssd = np.ones(needed, np.int64)
        operation.from_ssd[positions] = 0
    if len(buffers):
        state.buffers.holds[buffers] += 1
        state.buffers.touch(buffers, state.seq)
    state.reservations[event.operation] = Reservation(operation.instance, 0, Phase.PREPARING)
    set_charge(state, event.operation, event.charge_bytes, Phase.PREPARING)


def set_charge(state: State, operation: int, charge_bytes: int, phase: Phase) -> None:
    """The one place where reserved bytes change."""
    reservation = state.reservations[operation]
    change = charge_bytes - reservation.charge_bytes
    state.reserved_bytes += change
    state.instances[reservation.instance].reserved_bytes += change
    state.reserved_by_phase[reservation.phase] -= reservation.charge_bytes
    state.reserved_by_phase[phase] += charge_bytes
    if phase == _WARMING:
        state.instances[reservation.instance].warming_bytes += change
    reservation.charge_bytes = charge_bytes
    reservation.phase = phase
    assert state.reserved_bytes >= 0 and charge_bytes >= 0, "nothing reserved goes negative"


def reads_queued(state: State, event: facts.ReadsQueued) -> None:
    operation = state.operations[event.operation]
    pages, positions = unpack(event.pages), unpack(event.positions)
    assert event.read == state.read_next, "read ids are given once, in order"
    state.read_next += len(pages)
    started = state.reservations[event.operation].reads
    origin = Origin(event.origin)
    footprints = _footprints(state, operation)
    queue = state.warm_queue if operation.hint else state.read_queue
    number = event.read
    for page, position in zip(pages.tolist(), positions.tolist(), strict=True):
        waiters = {event.operation: position}
        state.reads[number] = Read(page, event.operation, origin, footprints[position], waiters=waiters)
        operation.awaited[number] = position
        started[number] = None
        queue[number] = None
        number += 1
    assert (state.pages.read[pages] < 0).all(), "a page is read once at a time"
    state.pages.read[pages] = np.arange(event.read, state.read_next)
    state.pages.references[pages] += 1


def _footprints(state: State, operation: Operation) -> list[int]:
    """Footprint bytes by position."""
    groups = state.instances[operation.instance].groups
    footprints: list[int] = []
    for part in operation.parts:
        footprints += [groups[part.group].footprint_bytes] * part.needed
    return footprints


def reads_joined(state: State, event: facts.ReadsJoined) -> None:
    operation = state.operations[event.operation]
    for number, position in zip(unpack(event.reads).tolist(), unpack(event.positions).tolist(), strict=True):
        state.reads[number].waiters[event.operation] = position
        operation.awaited[number] = position
        if not operation.hint and number in state.warm_queue:
            del state.warm_queue[number]
            state.read_queue[number] = None
    state.totals.coalesced_reads += len(event.reads) // 4


def reads_submitted(state: State, event: facts.ReadsSubmitted) -> None:
    buffers = unpack(event.buffers)
    origin = Origin(event.origin)
    queue = state.read_queue if event.foreground else state.warm_queue
    numbers = unpack(event.reads).tolist()
    for number, buffer, slot in zip(numbers, buffers.tolist(), unpack(event.slots).tolist(), strict=True):
        del queue[number]
        read = state.reads[number]
        read.submitted = True
        read.foreground = event.foreground
        read.buffer = buffer
        read.slot = slot
        read.origin = origin
        if read.starter not in read.waiters:
            _hand_over(state, number, read)
        segment, index = state.slots.find(slot)
        segment.in_flight += 1
        segment.readers[index] += 1
        segment.touched = state.seq
    state.buffers.busy[buffers] |= Busy.READING
    _count_in_flight(state, event.foreground, int(state.buffers.slot_bytes[buffers].sum()))
    state.totals.reads_submitted += len(buffers)


def _hand_over(state: State, number: int, read: Read) -> None:
    """The one that queued a read has left: from its submission on it is the next owner's to drain."""
    former = state.reservations.get(read.starter)
    if former is not None:
        former.reads.pop(number, None)
    read.starter = next(iter(read.waiters))
    state.reservations[read.starter].reads[number] = None


def _count_in_flight(state: State, foreground: bool, change_bytes: int) -> None:
    if foreground:
        state.foreground_bytes_in_flight += change_bytes
        assert state.foreground_bytes_in_flight >= 0, "bytes in flight do not go negative"
    else:
        state.background_bytes_in_flight += change_bytes
        assert state.background_bytes_in_flight >= 0, "bytes in flight do not go negative"


def let_go(state: State, number: int, operation: int) -> None:
    """An operation waits for a read no more; a queued one that only hints want yields to the others."""
    waiters = state.reads[number].waiters
    del waiters[operation]
    if number in state.read_queue and waiters and all(state.operations[other].hint for other in waiters):
        del state.read_queue[number]
        state.warm_queue[number] = None


def reads_dropped(state: State, event: facts.ReadsDropped) -> None:
    numbers = unpack(event.reads).tolist()
    for number in numbers:
        queue = state.read_queue if number in state.read_queue else state.warm_queue
        assert number in queue, "a submitted read is not taken back"
        del queue[number]
    _forget_reads(state, numbers)


def reads_landed(state: State, event: facts.ReadsLanded) -> None:
    reads, buffers = _end_submitted(state, unpack(event.reads).tolist())
    holds = []
    for read in reads:
        holders = 0
        for number, position in read.waiters.items():
            operation = state.operations[number]
            if not operation.hint:
                operation.buffers[position] = read.buffer
                holders += 1
        holds.append(holders)
    state.buffers.holds[buffers] += np.array(holds, np.int32)
    totals = state.totals
    totals.read_bytes += int(unpack(event.read_bytes).sum())
    totals.read_us += int(unpack(event.elapsed_us).sum())


def reads_failed(state: State, event: facts.ReadsFailed) -> None:
    _end_submitted(state, unpack(event.reads).tolist())
    failures = state.totals.read_failures
    for outcome in event.outcomes:
        failures[outcome] = failures.get(outcome, 0) + 1


def _end_submitted(state: State, numbers: list[int]) -> tuple[list[Read], Ints]:
    """Take submitted reads out of the state; returns them and their buffers."""
    reads = _forget_reads(state, numbers)
    buffers = np.array([read.buffer for read in reads], np.int64)
    sizes = state.buffers.slot_bytes[buffers].tolist()
    for read, size in zip(reads, sizes, strict=True):
        assert read.submitted, "only a submitted read ends"
        segment, index = state.slots.find(read.slot)
        segment.in_flight -= 1
        segment.readers[index] -= 1
        _count_in_flight(state, read.foreground, -size)
    state.buffers.busy[buffers] &= ~Busy.READING
    state.totals.reads_ended += len(reads)
    return reads, buffers


def _forget_reads(state: State, numbers: list[int]) -> list[Read]:
    reads = [state.reads.pop(number) for number in numbers]
    pages = np.array([read.page for read in reads], np.int64)
    state.pages.read[pages] = -1
    state.pages.references[pages] -= 1
    for number, read in zip(numbers, reads, strict=True):
        for operation in read.waiters:
            del state.operations[operation].awaited[number]
        reservation = state.reservations.get(read.starter)
        if reservation is not None:
            reservation.reads.pop(number, None)
    return reads


def stale_completion(state: State, event: facts.StaleCompletion) -> None:
    state.totals.stale_completions += event.count


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
        tuple((part.group, part.first, part.needed) for part in operation.parts),
        event.deadline_ns,
        {rank: Consumer(Share.OPEN) for rank in range(instance.world_size)},
    )
    state.promised[event.lease] = None
    reservation = state.reservations[event.operation]
    reservation.lease = event.lease
    reservation.lease_bytes = leased_bytes(state, operation)
    set_charge(state, event.operation, event.charge_bytes, Phase.READY)


def leased_bytes(state: State, operation: Operation) -> int:
    """Footprints of the pages up to the operation's boundary."""
    groups = state.instances[operation.instance].groups
    return sum(groups[part.group].footprint_bytes * part.needed for part in operation.parts)


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
        held = operation.buffers[operation.buffers >= 0]
        state.buffers.holds[held] -= 1
    if event.end in (QueryEnd.MISSED, QueryEnd.BYPASSED):
        _remember(state, key, Decision(event.operation, operation.revision, operation.session, event.end))
    ends = state.totals.query_ends
    ends[event.end] = ends.get(event.end, 0) + 1
    if event.end == QueryEnd.BYPASSED:
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
    state.buffers.holds[lease.buffers] -= 1
    for consumer in lease.shares.values():
        if consumer.share == Share.OPEN:
            consumer.share = Share.LOST
    ends = state.totals.lease_ends
    ends[event.end] = ends.get(event.end, 0) + 1


def restore_begun(state: State, event: facts.RestoreBegun) -> None:
    lease = state.leases[event.lease]
    consumer = lease.shares[event.rank]
    assert consumer.share == Share.OPEN and not lease.ended, "one consumer per rank, while the promise lasts"
    consumer.share = Share.RESTORING
    consumer.session = event.session
    consumer.process = state.sessions[event.session].process
    state.processes[consumer.process].copies += 1
    state.buffers.holds[lease.buffers] += 1
    reservation = state.reservations[lease.operation]
    set_charge(state, lease.operation, reservation.charge_bytes, Phase.RESTORING)


def share_ended(state: State, event: facts.ShareEnded) -> None:
    lease = state.leases[event.lease]
    consumer = lease.shares[event.rank]
    held = consumer.holds
    consumer.share = Share(event.share)
    if held and not consumer.holds:
        state.buffers.holds[lease.buffers] -= 1
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
    set_charge(state, event.operation, event.charge_bytes, reservation.phase if kept else Phase.PREPARING)


def reservation_ended(state: State, event: facts.ReservationEnded) -> None:
    reservation = state.reservations[event.operation]
    assert reservation.lease < 0, "a lease keeps its bytes reserved"
    set_charge(state, event.operation, 0, reservation.phase)
    del state.reservations[event.operation]
