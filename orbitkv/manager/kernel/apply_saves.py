"""What facts about saves, SSD slots and segments do to the state."""

from orbitkv.events import facts
from orbitkv.manager.kernel.buffers import Busy
from orbitkv.manager.kernel.columns import ONE, count_each, numbers_of, total, unpack, unpack_wide
from orbitkv.manager.kernel.slots import Segment, SlotState, new_segment
from orbitkv.manager.kernel.state import Save, State

_FILLING, _WRITES = Busy.FILLING, Busy.WRITING
_NOT_FILLING, _NOT_WRITING = ~Busy.FILLING, ~Busy.WRITING
_FREE, _WRITING, _WRITTEN = SlotState.FREE, SlotState.WRITING, SlotState.WRITTEN
_HOLDING_A_PAGE = (_WRITING, _WRITTEN)

def save_begun(state: State, event: facts.SaveBegun) -> None:
    buffers = unpack(event.buffers)
    state.buffers.set_busy(buffers, _FILLING)
    pages = state.buffers.page[buffers]
    state.pages.saving[pages] = buffers
    instance = state.instances[event.instance]
    for buffer, page in zip(buffers.tolist(), pages.tolist(), strict=True):
        state.saves[buffer] = Save(event.instance, event.group, page, event.deadline_ns)
    instance.saves += len(buffers)
    state.totals.saves_begun += len(buffers)


def save_joined(state: State, event: facts.SaveJoined) -> None:
    """Another rank will fill its slices; nothing is owed to it until it commits them."""


def saves_dropped(state: State, event: facts.SavesDropped) -> None:
    drops = state.totals.save_drops
    drops[event.reason] = drops.get(event.reason, 0) + event.count
    for buffer in numbers_of(event.buffers):
        save = state.saves[buffer]
        assert not save.given_up, "a save is dropped once"
        save.given_up = True
        if state.pages.saving[save.page] == buffer:
            state.pages.saving[save.page] = -1


def saves_ended(state: State, event: facts.SavesEnded) -> None:
    for buffer in numbers_of(event.buffers):
        save = state.saves[buffer]
        assert save.given_up and not save.copying and not save.sealing, "its last copy or seal has ended"
        _forget_save(state, buffer)


def _forget_save(state: State, buffer: int) -> Save:
    save = state.saves.pop(buffer)
    state.instances[save.instance].saves -= 1
    if state.pages.saving[save.page] == buffer:
        state.pages.saving[save.page] = -1
    state.buffers.busy[buffer] &= _NOT_FILLING
    return save


def copies_started(state: State, event: facts.CopiesStarted) -> None:
    for buffer in numbers_of(event.buffers):
        state.saves[buffer].copying[event.rank] = None


def slices_filled(state: State, event: facts.SlicesFilled) -> None:
    buffers = numbers_of(event.buffers)
    for buffer in buffers:
        save = state.saves[buffer]
        del save.copying[event.rank]
        save.filled[event.rank] = None
        layout = state.instances[save.instance].groups[save.group]
        state.totals.save_bytes += sum([piece.padded_bytes for piece in layout.fills[event.rank]])
    state.totals.copies += len(buffers)
    state.totals.copy_us += event.elapsed_us


def copies_lost(state: State, event: facts.CopiesLost) -> None:
    for buffer in numbers_of(event.buffers):
        del state.saves[buffer].copying[event.rank]


def seals_started(state: State, event: facts.SealsStarted) -> None:
    for buffer in numbers_of(event.buffers):
        save = state.saves[buffer]
        assert not save.sealing and not save.given_up, "a complete page is sealed once"
        save.sealing = True


def seals_ended(state: State, event: facts.SealsEnded) -> None:
    for buffer in numbers_of(event.buffers):
        state.saves[buffer].sealing = False


def pages_sealed(state: State, event: facts.PagesSealed) -> None:
    for buffer in numbers_of(event.buffers):
        save = _forget_save(state, buffer)
        assert not save.given_up and not save.sealing, "only a complete page becomes visible"
        state.totals.pages_sealed += 1


def writes_queued(state: State, event: facts.WritesQueued) -> None:
    for buffer in numbers_of(event.buffers):
        state.write_queue[buffer] = None


def writes_dropped(state: State, event: facts.WritesDropped) -> None:
    buffers = numbers_of(event.buffers)
    for buffer in buffers:
        state.write_queue.pop(buffer, None)
    drops = state.totals.write_drops
    drops[event.reason] = drops.get(event.reason, 0) + len(buffers)


def segment_opened(state: State, event: facts.SegmentOpened) -> None:
    table = state.slots
    assert event.segment not in table.segments and event.segment < table.segments_max, "within the cap"
    table.segments[event.segment] = new_segment(
        event.slot_bytes, table.segment_bytes, table.slots_max, state.seq
    )


def segment_draining(state: State, event: facts.SegmentDraining) -> None:
    state.slots.segments[event.segment].draining = True


def segment_returned(state: State, event: facts.SegmentReturned) -> None:
    segment = state.slots.segments.pop(event.segment)
    assert not segment.in_flight, "nothing of it is in flight"
    assert not (segment.state == SlotState.WRITTEN).any(), "nothing is found in it"


def writes_submitted(state: State, event: facts.WritesSubmitted) -> None:
    buffers, table = unpack(event.buffers), state.buffers
    for slot, buffer in zip(numbers_of(event.slots), buffers.tolist(), strict=True):
        state.write_queue.pop(buffer)
        segment, index = state.slots.find(slot)
        assert segment.free and segment.free[-1] == index, "slots are assigned last in, first out"
        segment.free.pop()
        segment.in_flight += 1
        segment.state[index] = _WRITING
        segment.page[index] = table.page[buffer]
        segment.generation[index] = table.generation[buffer]
        segment.incarnation[index] = state.incarnation
        segment.failures[index] = 0
        state.writing[slot] = buffer
    count_each(state.pages.references, state.buffers.page[buffers], ONE)
    state.buffers.set_busy(buffers, _WRITES)
    state.background_bytes_in_flight += total(state.buffers.slot_bytes[buffers])
    state.totals.writes_submitted += len(buffers)


def slots_written(state: State, event: facts.SlotsWritten) -> None:
    for slot in numbers_of(event.slots):
        segment, index = _end_write(state, slot)
        segment.state[index] = _WRITTEN
        page = int(segment.page[index])
        assert state.pages.slot[page] < 0, "a page has one slot"
        state.pages.slot[page] = slot
        state.totals.write_bytes += segment.slot_bytes
    state.totals.write_us += event.elapsed_us


def writes_failed(state: State, event: facts.WritesFailed) -> None:
    for slot in numbers_of(event.slots):
        _end_write(state, slot)


def _end_write(state: State, slot: int) -> tuple[Segment, int]:
    buffer = state.writing.pop(slot)
    state.buffers.busy[buffer] &= _NOT_WRITING
    segment, index = state.slots.find(slot)
    segment.in_flight -= 1
    state.background_bytes_in_flight -= segment.slot_bytes
    assert state.background_bytes_in_flight >= 0, "bytes in flight do not go negative"
    return segment, index


def slots_freed(state: State, event: facts.SlotsFreed) -> None:
    for slot in numbers_of(event.slots):
        _empty_slot(state, slot, _FREE)


def slots_quarantined(state: State, event: facts.SlotsQuarantined) -> None:
    for slot in numbers_of(event.slots):
        _empty_slot(state, slot, SlotState.QUARANTINED)


def _empty_slot(state: State, slot: int, new: SlotState) -> None:
    segment, index = state.slots.find(slot)
    assert segment.state[index] in _HOLDING_A_PAGE, "an empty slot holds no page"
    assert slot not in state.writing, "a write in flight keeps its slot"
    page = int(segment.page[index])
    if state.pages.slot[page] == slot:
        state.pages.slot[page] = -1
    state.pages.references[page] -= 1
    segment.page[index] = -1
    segment.state[index] = new
    if new == _FREE and not segment.readers[index]:
        segment.free.append(index)


def slot_failure_counted(state: State, event: facts.SlotFailureCounted) -> None:
    state.slots.segment_of(event.slot).failures[state.slots.place(event.slot)[1]] += 1


def slots_recovered(state: State, event: facts.SlotsRecovered) -> None:
    segment = state.slots.segments[event.segment]
    slots, pages = unpack(event.slots), unpack(event.pages)
    indices = slots % state.slots.slots_max
    assert (segment.state[indices] == SlotState.FREE).all(), "a slot is recovered once"
    segment.state[indices] = SlotState.WRITTEN
    segment.page[indices] = pages
    segment.generation[indices] = unpack_wide(event.generations)
    segment.incarnation[indices] = unpack(event.incarnations)
    assert (state.pages.slot[pages] < 0).all(), "a page has one slot"
    state.pages.slot[pages] = slots
    state.pages.references[pages] += 1
    taken = segment.state != SlotState.FREE
    segment.free = [index for index in range(segment.slots - 1, -1, -1) if not taken[index]]


def slots_condemned(state: State, event: facts.SlotsCondemned) -> None:
    segment = state.slots.segments[event.segment]
    indices = unpack(event.slots) % state.slots.slots_max
    assert (segment.state[indices] == SlotState.FREE).all(), "an unusable slot holds no page"
    segment.state[indices] = SlotState.QUARANTINED
    taken = segment.state != SlotState.FREE
    segment.free = [index for index in range(segment.slots - 1, -1, -1) if not taken[index]]
