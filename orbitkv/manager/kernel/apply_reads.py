"""What facts about reads from SSD do to the state: queued, joined, submitted, ended.

A read is in `state.reads` from its queueing to its end, with its waiters; the waiters' operations,
the reservation that covers it, its page and its slot's segment know it too.
"""

from collections.abc import Sequence

import numpy as np

from orbitkv.events import facts
from orbitkv.manager.kernel.buffers import Busy
from orbitkv.manager.kernel.columns import ONE, Ints, highest, lowest, numbers_of, total, unpack
from orbitkv.manager.kernel.state import Operation, Read, State

_READING = Busy.READING


def reads_queued(state: State, event: facts.ReadsQueued) -> None:
    owner, origin, rows = event.operation, event.origin, state.reads
    operation = state.operations[owner]
    pages, positions = unpack(event.pages), numbers_of(event.positions)
    assert event.read == state.read_next, "read ids are given once, in order"
    state.read_next += len(pages)
    numbers = range(event.read, state.read_next)
    footprints = _footprints(state, operation)
    for number, page, position in zip(numbers, pages.tolist(), positions, strict=True):
        footprint_bytes = footprints[position]
        rows[number] = Read(page, owner, origin, footprint_bytes, waiters={owner: position})
    operation.awaited.update(zip(numbers, positions, strict=True))
    state.reservations[owner].reads.update(dict.fromkeys(numbers))
    queue = state.warm_queue if operation.hint else state.read_queue
    queue.update(dict.fromkeys(numbers))
    assert highest(state.pages.read[pages]) < 0, "a page is read once at a time"
    state.pages.read[pages] = np.arange(event.read, state.read_next)
    state.pages.references[pages] += ONE


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
    buffers, slots = unpack(event.buffers), numbers_of(event.slots)
    origin, foreground, rows = event.origin, event.foreground, state.reads
    queue = state.read_queue if foreground else state.warm_queue
    for number, buffer, slot in zip(numbers_of(event.reads), buffers.tolist(), slots, strict=True):
        del queue[number]
        read = rows[number]
        waiters = read.waiters
        starter = read.starter if read.starter in waiters else _hand_over(state, number, read)
        rows[number] = Read(
            read.page, starter, origin, read.footprint_bytes, slot, buffer, True, foreground, waiters
        )
    state.slots.begin_reads(slots, state.seq)
    state.buffers.set_busy(buffers, _READING)
    _count_in_flight(state, foreground, total(state.buffers.slot_bytes[buffers]))
    state.totals.reads_submitted += len(buffers)


def _hand_over(state: State, number: int, read: Read) -> int:
    """The one that queued a read has left: from its submission on it is the next owner's to drain."""
    former = state.reservations.get(read.starter)
    if former is not None:
        former.reads.pop(number, None)
    starter = next(iter(read.waiters))
    state.reservations[starter].reads[number] = None
    return starter


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
    numbers = numbers_of(event.reads)
    for number in numbers:
        queue = state.read_queue if number in state.read_queue else state.warm_queue
        assert number in queue, "a submitted read is not taken back"
        del queue[number]
    _forget_reads(state, numbers)


def reads_landed(state: State, event: facts.ReadsLanded) -> None:
    reads, buffers = _end_submitted(state, numbers_of(event.reads))
    operations = state.operations
    holds = []
    for read in reads:
        holders, buffer = 0, read.buffer
        for number, position in read.waiters.items():
            operation = operations[number]
            if not operation.hint:
                operation.buffers[position] = buffer
                holders += 1
        holds.append(holders)
    state.buffers.holds[buffers] += np.array(holds, np.int32)
    totals = state.totals
    totals.read_bytes += sum(numbers_of(event.read_bytes))
    totals.read_us += sum(numbers_of(event.elapsed_us))


def reads_failed(state: State, event: facts.ReadsFailed) -> None:
    _end_submitted(state, numbers_of(event.reads))
    failures = state.totals.read_failures
    for outcome in event.outcomes:
        failures[outcome] = failures.get(outcome, 0) + 1


def _end_submitted(state: State, numbers: Sequence[int]) -> tuple[list[Read], Ints]:
    """Take submitted reads out of the state; returns them and their buffers."""
    reads = _forget_reads(state, numbers)
    buffers = np.array([read.buffer for read in reads], np.int64)
    assert lowest(buffers) >= 0, "only a submitted read ends"
    sizes = state.buffers.slot_bytes[buffers].tolist()
    foreground = sum([size for read, size in zip(reads, sizes, strict=True) if read.foreground])
    _count_in_flight(state, True, -foreground)
    _count_in_flight(state, False, foreground - sum(sizes))
    state.slots.end_reads([read.slot for read in reads])
    state.buffers.clear_busy(buffers, _READING)
    state.totals.reads_ended += len(reads)
    return reads, buffers


def _forget_reads(state: State, numbers: Sequence[int]) -> list[Read]:
    operations, reservations = state.operations, state.reservations
    reads = [state.reads.pop(number) for number in numbers]
    pages = np.array([read.page for read in reads], np.int64)
    state.pages.read[pages] = -1
    state.pages.references[pages] -= ONE
    for number, read in zip(numbers, reads, strict=True):
        for operation in read.waiters:
            del operations[operation].awaited[number]
        reservation = reservations.get(read.starter)
        if reservation is not None:
            reservation.reads.pop(number, None)
    return reads


def stale_completion(state: State, event: facts.StaleCompletion) -> None:
    state.totals.stale_completions += event.count
