"""What facts about pages and DRAM do to the state."""

from orbitkv.events import facts
from orbitkv.events.outcomes import PageClass
from orbitkv.manager.kernel.columns import (
    ONE,
    count_each,
    highest,
    lowest,
    numbers_of,
    total,
    unpack,
    unpack_wide,
)
from orbitkv.manager.kernel.state import State

_NS_PER_US = 1000


def pages_bound(state: State, event: facts.PagesBound) -> None:
    state.pages.bind(event.space, unpack(event.pages), event.keys)


def pages_unbound(state: State, event: facts.PagesUnbound) -> None:
    state.pages.unbind(numbers_of(event.pages))


def superblock_carved(state: State, event: facts.SuperblockCarved) -> None:
    state.superblocks.carve(event.superblock, event.slot_bytes)


def superblock_returned(state: State, event: facts.SuperblockReturned) -> None:
    state.superblocks.uncarve(event.superblock)


def buffers_allocated(state: State, event: facts.BuffersAllocated) -> None:
    assert event.generation == state.generation_next, "generations are given once, in order"
    buffers, pages, offsets = unpack(event.buffers), unpack(event.pages), unpack_wide(event.offsets)
    state.generation_next += len(buffers)
    state.superblocks.take(offsets.tolist())
    state.buffers.allocate(buffers, pages, offsets, event.slot_bytes, event.footprint_bytes, event.generation)
    count_each(state.pages.references, pages, ONE)


def buffers_freed(state: State, event: facts.BuffersFreed) -> None:
    buffers = unpack(event.buffers)
    state.superblocks.give(state.buffers.offset[buffers].tolist())
    count_each(state.pages.references, state.buffers.page[buffers], -ONE)
    state.buffers.release(buffers)


def pages_inserted(state: State, event: facts.PagesInserted) -> None:
    buffers, table = unpack(event.buffers), state.buffers
    pages = table.page[buffers]
    assert highest(state.pages.buffer[pages]) < 0, "a page has one indexed buffer"
    assert not highest(table.busy[buffers]), "only complete pages are indexed"
    state.pages.buffer[pages] = buffers
    table.landed_ns[buffers] = state.at_ns
    table.origin[buffers] = event.origin
    for group in table.by_size(buffers):
        table.enter_queue(group, event.page_class, state.seq)
    state.totals.insertions += len(buffers)


def pages_promoted(state: State, event: facts.PagesPromoted) -> None:
    buffers, table = unpack(event.buffers), state.buffers
    assert lowest(table.queue[buffers]) >= 0, "only an indexed page is promoted"
    for group in table.by_size(buffers):
        table.enter_queue(group, PageClass.RETAINED, state.seq)
    state.totals.promotions += len(buffers)


def pages_touched(state: State, event: facts.PagesTouched) -> None:
    state.buffers.touch(unpack(event.buffers), state.seq)


def pages_evicted(state: State, event: facts.PagesEvicted) -> None:
    buffers, table = unpack(event.buffers), state.buffers
    assert not highest(table.holds[buffers]), "a held page is not evicted"
    pages = table.page[buffers]
    found: bytes = state.pages.buffer[pages].tobytes()
    assert found == buffers.tobytes(), "only an indexed buffer is evicted"
    state.pages.buffer[pages] = -1
    queues = [number for number, _ in table.by_queue(buffers)]
    table.queue[buffers] = -1
    for number in queues:
        table.queues[number].trim(table)
    for buffer in buffers.tolist() if state.write_queue else ():
        assert buffer not in state.write_queue, "its write was dropped first"
    totals, key = state.totals, (int(event.page_class), int(event.reason))
    totals.evictions[key] = totals.evictions.get(key, 0) + len(buffers)
    stayed_us = total((state.at_ns - table.landed_ns[buffers]) // _NS_PER_US)
    totals.residence_us[event.reason] = totals.residence_us.get(event.reason, 0) + stayed_us


def allocation_failed(state: State, event: facts.AllocationFailed) -> None:
    state.totals.alloc_failures += 1
