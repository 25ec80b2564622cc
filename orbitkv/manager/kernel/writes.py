"""SSD writes: asynchronous, bounded, best effort; never a promise.

A sealed page without a slot joins the write queue; a full queue drops it, counted. A slot is assigned
when the write is submitted and is findable when the write has completed. Slots come from open
segments of the page's size, then from an unopened segment, then from draining the coldest segment:
its pages are dropped at once except those being read, and it is returned when the last has ended.
"""

import numpy as np

from orbitkv.events.commands import CompleteWrites, SetStore
from orbitkv.events.facts import (
    SegmentDraining,
    SegmentOpened,
    SegmentReturned,
    SlotsFreed,
    SlotsWritten,
    StaleCompletion,
    StoreChanged,
    WritesDropped,
    WritesFailed,
    WritesQueued,
    WritesSubmitted,
)
from orbitkv.events.outcomes import Refusal, SlotEnd, WriteDrop, WriteOutcome
from orbitkv.manager.kernel.columns import pack, unpack
from orbitkv.manager.kernel.slots import SlotState
from orbitkv.manager.kernel.state import State
from orbitkv.manager.kernel.turn import Refuse, Turn


def queue_writes(turn: Turn, buffers: list[int]) -> None:
    state = turn.state
    if not state.slots.segments_max:
        return
    unwritten = [b for b in buffers if not _has_slot(state, b)]
    if not state.store_writable:
        _drop(turn, unwritten, WriteDrop.DEGRADED)
        return
    room = max(0, state.config.ssd_write_queue_pages_max - len(state.write_queue))
    if unwritten[:room]:
        turn.emit(WritesQueued(pack(unwritten[:room])))
        turn.writes_wanted = True
    _drop(turn, unwritten[room:], WriteDrop.QUEUE_FULL)


def _has_slot(state: State, buffer: int) -> bool:
    page = int(state.buffers.page[buffer])
    if state.pages.slot[page] >= 0:
        return True
    return any(state.buffers.page[other] == page for other in state.writing.values())


def _drop(turn: Turn, buffers: list[int], reason: WriteDrop) -> None:
    if buffers:
        turn.emit(WritesDropped(reason, pack(buffers)))


def pump_writes(turn: Turn) -> None:
    """Submit what the background share of the bytes in flight allows, in queue order."""
    state = turn.state
    while state.write_queue:
        batch = _next_batch(state)
        if not batch:
            return
        slot_bytes = int(state.buffers.slot_bytes[batch[0]])
        slots = _slots_for(turn, slot_bytes, len(batch))
        if slots is None:
            return
        if not slots:
            _drop(turn, batch, WriteDrop.NO_SLOT)
            continue
        turn.emit(WritesSubmitted(pack(slots), pack(batch[: len(slots)])))


def _next_batch(state: State) -> list[int]:
    config = state.config
    background_max = config.ssd_inflight_bytes_max - config.ssd_foreground_reserved_bytes
    background = state.background_bytes_in_flight
    total = background + state.foreground_bytes_in_flight
    batch: list[int] = []
    size = -1
    for buffer in state.write_queue:
        slot_bytes = int(state.buffers.slot_bytes[buffer])
        if size >= 0 and slot_bytes != size:
            break
        size = slot_bytes
        over_share = background and background + size > background_max
        if over_share or (total and total + size > config.ssd_inflight_bytes_max):
            break
        batch.append(buffer)
        background += size
        total += size
    return batch


def _slots_for(turn: Turn, slot_bytes: int, count: int) -> list[int] | None:
    """Up to `count` free slots. Empty: there will never be one. None: wait for a draining segment."""
    state = turn.state
    table = state.slots
    if slot_bytes > table.segment_bytes:
        return []
    while True:
        free = table.free_slots(slot_bytes, count)
        if free:
            return free
        segment = table.unopened()
        if segment is not None:
            turn.emit(SegmentOpened(segment, slot_bytes))
            continue
        if any(s.draining for s in table.segments.values()):
            return None
        coldest = table.coldest()
        if coldest is None:
            return []
        drain_segment(turn, coldest)


def drain_segment(turn: Turn, number: int) -> None:
    """Drop every page of a segment; return it now if nothing of it is in flight."""
    state = turn.state
    segment = state.slots.segments[number]
    turn.emit(SegmentDraining(number))
    written = np.flatnonzero(segment.state == SlotState.WRITTEN)
    if len(written):
        turn.loosened.append(segment.page[written])
        slots = number * state.slots.slots_max + written
        turn.emit(SlotsFreed(pack(slots), SlotEnd.RECLAIMED))
    return_if_drained(turn, number)


def return_if_drained(turn: Turn, number: int) -> None:
    segment = turn.state.slots.segments.get(number)
    if segment is not None and segment.draining and not segment.in_flight:
        turn.emit(SegmentReturned(number))
        turn.writes_wanted = True


def return_drained(turn: Turn) -> None:
    """Segments whose last read or write has ended."""
    for number, segment in list(turn.state.slots.segments.items()):
        if segment.draining:
            return_if_drained(turn, number)


def complete_writes(turn: Turn, command: CompleteWrites) -> None:
    state = turn.state
    slots = unpack(command.slots).tolist()
    elapsed = unpack(command.elapsed_us).tolist()
    if not len(slots) == len(command.outcomes) == len(elapsed):
        raise Refuse(Refusal.MALFORMED, "the columns of a completion must have equal lengths")
    written: list[int] = []
    failed: dict[int, int] = {}
    seen: set[int] = set()
    written_us = 0
    for slot, outcome, micros in zip(slots, command.outcomes, elapsed, strict=True):
        if slot not in state.writing or slot in seen:
            continue
        seen.add(slot)
        if outcome == WriteOutcome.WRITTEN:
            written.append(slot)
            written_us += micros
        else:
            failed[slot] = outcome
    if len(seen) < len(slots):
        turn.emit(StaleCompletion("write", len(slots) - len(seen)))
    ended = [state.writing[slot] for slot in (*written, *failed)]
    if written:
        turn.emit(SlotsWritten(pack(written), written_us))
        dropped = [slot for slot in written if state.slots.segment_of(slot).draining]
        _free(turn, dropped, SlotEnd.RECLAIMED)
    if failed:
        buffers = [state.writing[slot] for slot in failed]
        turn.emit(WritesFailed(pack(failed), bytes(failed.values())))
        _drop(turn, buffers, WriteDrop.FAILED)
        _free(turn, list(failed), SlotEnd.WRITE_FAILED)
    if ended:
        turn.released.append(np.array(ended, np.int64))
    turn.writes_wanted = turn.reads_wanted = True


def _free(turn: Turn, slots: list[int], end: SlotEnd) -> None:
    if slots:
        state = turn.state
        pages = [state.slots.segment_of(s).page[state.slots.place(s)[1]] for s in slots]
        turn.loosened.append(np.array(pages, np.int64))
        turn.emit(SlotsFreed(pack(slots), end))


def set_store(turn: Turn, command: SetStore) -> None:
    state = turn.state
    if (state.store_writable, state.store_reason) == (command.writable, command.reason):
        return
    turn.emit(StoreChanged(command.writable, command.reason))
    if not command.writable:
        _drop(turn, list(state.write_queue), WriteDrop.DEGRADED)
