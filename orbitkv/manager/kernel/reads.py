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
    PagesPrepared,
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
from orbitkv.manager.kernel.columns import lowest, numbers_of, pack, unpack
from orbitkv.manager.kernel.hints import own_pages
from orbitkv.manager.kernel.interest import cut, drop_reads
from orbitkv.manager.kernel.reclaim import allocate
from orbitkv.manager.kernel.saves import drop_overtaken
from orbitkv.manager.kernel.state import Read, State
from orbitkv.manager.kernel.turn import Refuse, Turn

_RECLAIMABLE, _RETAINED = PageClass.RECLAIMABLE, PageClass.RETAINED


def complete_reads(turn: Turn, command: CompleteReads) -> None:
    count = len(command.outcomes)
    if {len(command.reads), len(command.read_bytes), len(command.elapsed_us)} != {4 * count}:
        raise Refuse(Refusal.MALFORMED, "the columns of a completion must have equal lengths")
    rows = turn.state.reads
    landed: list[int] = []
    failed: list[int] = []
    seen: set[int] = set()
    for place, (number, outcome) in enumerate(zip(numbers_of(command.reads), command.outcomes, strict=True)):
        read = rows.get(number)
        if read is not None and read.submitted and number not in seen:
            seen.add(number)
            (failed if outcome else landed).append(place)
    if len(seen) < count:
        turn.emit(StaleCompletion("read", count - len(seen)))
    if landed:
        _land(turn, command if len(landed) == count else _picked(command, landed))
    if failed:
        _fail(turn, _picked(command, failed))
    turn.reads_wanted = turn.writes_wanted = True


def _picked(command: CompleteReads, places: list[int]) -> CompleteReads:
    return CompleteReads(
        pack(unpack(command.reads)[places]),
        bytes(command.outcomes[place] for place in places),
        pack(unpack(command.read_bytes)[places]),
        pack(unpack(command.elapsed_us)[places]),
    )


def _land(turn: Turn, landed: CompleteReads) -> None:
    state, answerable, reservations = turn.state, turn.answerable, turn.reservations
    operations = state.operations
    reads = [state.reads[number] for number in numbers_of(landed.reads)]
    indexed = state.pages.buffer[np.array([read.page for read in reads], np.int64)].tolist()
    inserted: dict[tuple[PageClass, Origin], list[int]] = {}
    unindexed: list[int] = []
    prepared: list[int] = []
    for read, present in zip(reads, indexed, strict=True):
        page_class = _RECLAIMABLE
        for number in read.waiters:
            answerable[number] = None
            if not operations[number].hint:
                page_class = _RETAINED
        reservations[read.starter] = None
        if read.origin:  # Origin.WARM
            prepared.append(read.buffer)
        if present < 0:
            inserted.setdefault((page_class, read.origin), []).append(read.buffer)
        else:
            unindexed.append(read.buffer)
    turn.emit(ReadsLanded(landed.reads, landed.read_bytes, landed.elapsed_us))
    for (page_class, origin), buffers in inserted.items():
        turn.emit(PagesInserted(pack(buffers), page_class, origin))
    if prepared:
        turn.emit(PagesPrepared(pack(prepared)))
    if state.saves and inserted:
        drop_overtaken(turn, np.array([b for buffers in inserted.values() for b in buffers], np.int64))
    if unindexed:
        turn.released.append(np.array(unindexed, np.int64))


def _fail(turn: Turn, ended: CompleteReads) -> None:
    state = turn.state
    numbers = numbers_of(ended.reads)
    outcomes = ended.outcomes
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
    """Submit what the bytes in flight allow: reads that demand waits for, then those of hints."""
    state = turn.state
    while state.read_queue:
        batch = _next_batch(state, state.read_queue, foreground=True)
        if not batch:
            return
        _submit(turn, batch, foreground=True)
    while state.warm_queue and not state.read_queue:
        batch = _next_batch(state, state.warm_queue, foreground=False)
        if not batch:
            return
        _submit(turn, batch, foreground=False)


def _next_batch(state: State, queue: dict[int, None], *, foreground: bool) -> list[int]:
    """The queue's next reads of one size and origin that fit in flight together."""
    config = state.config
    operations, rows = state.operations, state.reads
    first = rows[next(iter(queue))]
    owner, footprint_bytes = _owner(first), first.footprint_bytes
    warm, size = operations[owner].hint, image_bytes(footprint_bytes)
    background = state.background_bytes_in_flight
    in_flight = state.foreground_bytes_in_flight + background
    room = config.ssd_inflight_bytes_max - in_flight
    if not foreground:
        share = config.ssd_inflight_bytes_max - config.ssd_foreground_reserved_bytes
        room = min(room, share - background)
    batch: list[int] = []
    for number in queue:
        read = rows[number]
        if read.footprint_bytes != footprint_bytes or (size > room and in_flight):
            break
        its_owner = _owner(read)
        if its_owner != owner and (not foreground or operations[its_owner].hint != warm):
            break
        batch.append(number)
        in_flight += size
        room -= size
    return batch


def _owner(read: Read) -> int:
    """The earliest owner that is still interested: it decides the origin."""
    return next(iter(read.waiters))


def _submit(turn: Turn, batch: list[int], *, foreground: bool) -> None:
    state = turn.state
    pages = np.array([state.reads[number].page for number in batch], np.int64)
    slots = state.pages.slot[pages]
    if lowest(slots) < 0:  # a segment was reclaimed while its pages were in the queue
        lost = [number for number, slot in zip(batch, slots.tolist(), strict=True) if slot < 0]
        drop_reads(turn, lost, no_room=False)
        return
    first = state.reads[batch[0]]
    owner = _owner(first)
    origin = Origin.WARM if state.operations[owner].hint else Origin.DEMAND
    spared = None if foreground else own_pages(state, state.operations[owner])
    buffers = allocate(turn, pages, first.footprint_bytes, owner, spared)
    fitting = len(buffers)
    if fitting:
        reads = pack(batch[:fitting])
        turn.emit(ReadsSubmitted(reads, pack(buffers), pack(slots[:fitting]), origin, foreground))
    drop_reads(turn, batch[fitting:], no_room=True)
