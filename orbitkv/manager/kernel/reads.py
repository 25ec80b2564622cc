"""Reads from SSD: queued, submitted within the bytes that may be in flight, ended by completion only.

One read serves any number of operations, page by page. Memory and permit belong to the read from
submission until its completion, whatever becomes of the operations that wait for it. Foreground
reads may use all of `ssd_inflight_bytes_max`; background work leaves them the reserved part. A page
larger than the limit is let through alone.
"""

import numpy as np

from orbitkv.events.commands import CompleteReads
from orbitkv.events.facts import (
    PagesInserted,
    ReadsFailed,
    ReadsLanded,
    ReadsSubmitted,
    SlotFailureCounted,
    SlotsFreed,
    SlotsQuarantined,
    StaleCompletion,
)
from orbitkv.events.geometry import image_bytes
from orbitkv.events.outcomes import Origin, PageClass, ReadOutcome, Refusal, SlotEnd
from orbitkv.manager.kernel.columns import EMPTY, pack, unpack
from orbitkv.manager.kernel.interest import cut, drop_reads
from orbitkv.manager.kernel.reclaim import allocate
from orbitkv.manager.kernel.state import Read, State
from orbitkv.manager.kernel.turn import Refuse, Turn


def complete_reads(turn: Turn, command: CompleteReads) -> None:
    numbers = unpack(command.reads).tolist()
    if (
        not len(numbers)
        == len(command.outcomes)
        == len(command.read_bytes) // 4
        == len(command.elapsed_us) // 4
    ):
        raise Refuse(Refusal.MALFORMED, "the columns of a completion must have equal lengths")
    state = turn.state
    landed: list[int] = []
    failed: list[int] = []
    seen: set[int] = set()
    stale = 0
    for place, (number, outcome) in enumerate(zip(numbers, command.outcomes, strict=True)):
        read = state.reads.get(number)
        if read is None or not read.submitted or number in seen:
            stale += 1
            continue
        seen.add(number)
        (landed if outcome == ReadOutcome.WHOLE else failed).append(place)
    if stale:
        turn.emit(StaleCompletion("read", stale))
    if landed:
        _land(turn, command, landed)
    if failed:
        _fail(turn, command, failed)
    turn.reads_wanted = turn.writes_wanted = True


def _land(turn: Turn, command: CompleteReads, places: list[int]) -> None:
    state = turn.state
    numbers = [int(n) for n in unpack(command.reads)[places]]
    reads = [state.reads[number] for number in numbers]
    retained: list[int] = []
    reclaimable: dict[Origin, list[int]] = {}
    unindexed: list[int] = []
    for read in reads:
        if state.pages.buffer[read.page] >= 0:
            unindexed.append(read.buffer)
        elif read.waiters and read.origin == Origin.DEMAND:
            retained.append(read.buffer)
        else:
            reclaimable.setdefault(read.origin, []).append(read.buffer)
        turn.answerable.update(dict.fromkeys(read.waiters))
        turn.reservations[read.starter] = None
    turn.emit(
        ReadsLanded(
            pack(numbers),
            pack(unpack(command.read_bytes)[places]),
            pack(unpack(command.elapsed_us)[places]),
        )
    )
    if retained:
        turn.emit(PagesInserted(pack(retained), PageClass.RETAINED, Origin.DEMAND))
    for origin, buffers in reclaimable.items():
        turn.emit(PagesInserted(pack(buffers), PageClass.RECLAIMABLE, origin))
    if unindexed:
        turn.released.append(np.array(unindexed, np.int64))


def _fail(turn: Turn, command: CompleteReads, places: list[int]) -> None:
    state = turn.state
    numbers = [int(n) for n in unpack(command.reads)[places]]
    outcomes = bytes(command.outcomes[place] for place in places)
    reads = [state.reads[number] for number in numbers]
    waiting = {operation: None for read in reads for operation in read.waiters}
    failed = [dict(read.waiters) for read in reads]
    turn.released.append(np.array([read.buffer for read in reads], np.int64))
    turn.loosened.append(np.array([read.page for read in reads], np.int64))
    turn.reservations.update(dict.fromkeys(read.starter for read in reads))
    turn.emit(ReadsFailed(pack(numbers), outcomes))
    for read, outcome in zip(reads, outcomes, strict=True):
        _judge_slot(turn, read, ReadOutcome(outcome))
    for operation in waiting:
        cut(turn, operation, [positions[operation] for positions in failed if operation in positions])


def _judge_slot(turn: Turn, read: Read, outcome: ReadOutcome) -> None:
    """What a failed read says about the slot. A draining segment's slots are past judging."""
    state = turn.state
    if state.pages.slot[read.page] != read.slot:
        return
    if outcome == ReadOutcome.OTHER_PAGE:
        turn.emit(SlotsFreed(pack([read.slot]), SlotEnd.OTHER_PAGE))
        return
    if outcome in (ReadOutcome.SHORT, ReadOutcome.FAILED):
        turn.emit(SlotFailureCounted(read.slot))
        segment, index = state.slots.place(read.slot)
        if state.slots.segments[segment].failures[index] < state.config.ssd_read_failures_max:
            return
    turn.emit(SlotsQuarantined(pack([read.slot])))


def pump_reads(turn: Turn) -> None:
    """Submit what the bytes in flight allow, oldest demand first."""
    state = turn.state
    while state.read_queue:
        batch = _next_batch(state)
        if not batch:
            return
        _submit(turn, batch)


def _next_batch(state: State) -> list[int]:
    """The queue's next reads of one size that fit in flight together."""
    batch: list[int] = []
    footprint = -1
    total = state.foreground_bytes_in_flight + state.background_bytes_in_flight
    for number in state.read_queue:
        read = state.reads[number]
        if footprint >= 0 and read.footprint_bytes != footprint:
            break
        footprint = read.footprint_bytes
        size = image_bytes(footprint)
        if total and total + size > state.config.ssd_inflight_bytes_max:
            break
        batch.append(number)
        total += size
    return batch


def _submit(turn: Turn, batch: list[int]) -> None:
    state = turn.state
    lost = [n for n in batch if state.pages.slot[state.reads[n].page] < 0]
    batch = [n for n in batch if state.pages.slot[state.reads[n].page] >= 0]
    buffers = EMPTY
    if batch:
        first = state.reads[batch[0]]
        pages = np.array([state.reads[n].page for n in batch], np.int64)
        buffers = allocate(turn, pages, first.footprint_bytes, first.starter)
        slots = state.pages.slot[pages[: len(buffers)]]
        if len(buffers):
            turn.emit(ReadsSubmitted(pack(batch[: len(buffers)]), pack(buffers), pack(slots), Origin.DEMAND))
    drop_reads(turn, lost, no_room=False)
    drop_reads(turn, batch[len(buffers) :], no_room=True)
