"""Making room in DRAM: give up the least useful unheld pages, by bytes, not by count.

1. Victims come class by class (reclaimable before retained), least recent first, of the wanted size.
2. A batch has at most `reclaim_batch_pages_max` pages and stops as soon as it covers the request;
   then the allocator is asked again. Small pools are not emptied for one page.
3. Another page size is asked to give up its coldest superblock when its coldest page is older than
   ours, or when we have nothing to give.
4. When nothing is left there is one last try, then a refusal, which is a fact of its own.

Held and busy pages are skipped; a busy one (its SSD write runs) may leave the index later.
"""

import numpy as np

from orbitkv.events.facts import (
    AllocationFailed,
    BuffersAllocated,
    BuffersFreed,
    PagesEvicted,
    PagesUnused,
    SuperblockCarved,
    SuperblockReturned,
    WritesDropped,
)
from orbitkv.events.geometry import image_bytes
from orbitkv.events.outcomes import EvictionReason, PageClass, Unused, WriteDrop
from orbitkv.manager.kernel.apply_hints import pending_among
from orbitkv.manager.kernel.columns import EMPTY, Ints, distinct, pack, pack_wide
from orbitkv.manager.kernel.recency import TouchQueue
from orbitkv.manager.kernel.state import State
from orbitkv.manager.kernel.superblocks import Plan, coldest_superblock
from orbitkv.manager.kernel.turn import Turn

_CLASSES = (PageClass.RECLAIMABLE, PageClass.PROBATIONARY, PageClass.RETAINED)
_UNUSED = {
    EvictionReason.CAPACITY: Unused.EVICTED,
    EvictionReason.SUPERBLOCK: Unused.EVICTED,
    EvictionReason.CLEANUP: Unused.CLEANUP,
}


def allocate(
    turn: Turn, pages: Ints, footprint_bytes: int, operation: int, spared: Ints | None = None
) -> Ints:
    """Take buffers for as many leading `pages` as room can be made for; emits the facts. Returns them.

    `spared`: given for a hint, which may push out reclaimable pages only, and never these.
    """
    slot_bytes = image_bytes(footprint_bytes)
    state = turn.state
    plan = _make_room(turn, slot_bytes, len(pages), spared)
    if plan is None:
        turn.emit(
            AllocationFailed(operation, slot_bytes * len(pages), state.superblocks.largest_free_bytes())
        )
        fits = min(state.superblocks.free_slots(slot_bytes), len(pages))
        plan = state.superblocks.plan(slot_bytes, fits) if fits else None
    if plan is None:
        return EMPTY
    for superblock in plan.carve:
        turn.emit(SuperblockCarved(superblock, slot_bytes))
    count = len(plan.offsets)
    buffers = state.buffers.next_numbers(count)
    turn.emit(
        BuffersAllocated(
            pack(buffers),
            pack(pages[:count]),
            pack_wide(plan.offsets),
            slot_bytes,
            footprint_bytes,
            state.generation_next,
        )
    )
    return np.array(buffers, np.int64)


def _make_room(turn: Turn, slot_bytes: int, count: int, spared: Ints | None) -> Plan | None:
    state = turn.state
    while True:
        plan = state.superblocks.plan(slot_bytes, count)
        if plan is not None:
            return plan
        if _return_empty(turn, slot_bytes):
            continue
        if not _give_up_batch(turn, slot_bytes, count, spared):
            return state.superblocks.plan(slot_bytes, count)


def _return_empty(turn: Turn, slot_bytes: int) -> bool:
    """Superblocks of other sizes that hold nothing become free."""
    carved = turn.state.superblocks.carved
    empty = [block for block in turn.state.superblocks.empty_carved() if carved[block] != slot_bytes]
    for superblock in empty:
        turn.emit(SuperblockReturned(superblock))
    return bool(empty)


def _give_up_batch(turn: Turn, slot_bytes: int, count: int, spared: Ints | None) -> bool:
    state = turn.state
    missing = count - state.superblocks.free_slots(slot_bytes)
    wanted = min(missing, state.config.reclaim_batch_pages_max)
    classes = _CLASSES if spared is None else _CLASSES[:1]
    for page_class in classes:
        number = state.buffers.queue_numbers.get((page_class, slot_bytes))
        own = state.buffers.queues[number] if number is not None else None
        others = _queues_of_other_sizes(state, page_class, slot_bytes, at_least=page_class)
        if others and _is_colder(state, others, own):
            superblock = _coldest_block(state, page_class, slot_bytes, spared)
            if superblock is not None:
                _empty_superblock(turn, superblock)
                return True
        victims = _oldest_free(state, own, wanted, spared) if own is not None else EMPTY
        if len(victims):
            evict(turn, victims, page_class, EvictionReason.CAPACITY)
            return True
    superblock = _coldest_block(state, classes[-1], slot_bytes, spared)
    if superblock is None:
        return False
    _empty_superblock(turn, superblock)
    return True


def _queues_of_other_sizes(
    state: State, up_to: PageClass, slot_bytes: int, at_least: PageClass = _CLASSES[0]
) -> list[TouchQueue]:
    return [
        state.buffers.queues[number]
        for (of_class, size), number in state.buffers.queue_numbers.items()
        if at_least <= of_class <= up_to and size != slot_bytes
    ]


def _is_colder(state: State, others: list[TouchQueue], own: TouchQueue | None) -> bool:
    table = state.buffers
    theirs = [seq for queue in others if (seq := queue.oldest_seq(table)) is not None]
    mine = own.oldest_seq(table) if own is not None else None
    return bool(theirs) and (mine is None or min(theirs) < mine)


def _coldest_block(state: State, up_to: PageClass, slot_bytes: int, spared: Ints | None) -> int | None:
    """The coldest superblock of another size without a page that is held, busy or of a higher class.

    Asked at every allocation while another size has older pages, mostly in vain. So the holders are
    looked at first, who are few, and rows only of the queues that may be drawn on.
    """
    table, blocks = state.buffers, state.superblocks
    if _every_other_is_held(state, slot_bytes):
        return None
    rows = table.in_queues([queue.number for queue in _queues_of_other_sizes(state, up_to, slot_bytes)])
    rows = rows[(table.holds[rows] == 0) & (table.busy[rows] == 0)]
    if spared is not None:
        rows = rows[~np.isin(rows, spared)]
    offsets = table.offset[rows]
    where = offsets // blocks.superblock_bytes
    usable = np.bincount(where, minlength=1)
    stays = np.ones(len(usable), np.bool_)
    for block in usable.nonzero()[0].tolist():
        stays[block] = usable[block] < blocks.taken_slots(block)
    return coldest_superblock(blocks, slot_bytes, offsets, table.last[rows], stays[where])


def _every_other_is_held(state: State, slot_bytes: int) -> bool:
    """Whether leases and unanswered operations alone hold a page in every superblock of another size."""
    carved = state.superblocks.carved
    others = len(carved) - carved.count(0) - carved.count(slot_bytes)
    held = [lease.buffers for lease in state.leases.values()]
    held += [operation.buffers for operation in state.operations.values() if operation.lease < 0]
    if sum([len(buffers) for buffers in held]) < others:
        return False
    rows = np.concatenate(held) if held else EMPTY
    rows = rows[(rows >= 0) & (state.buffers.holds[rows] > 0)]
    where = distinct(state.buffers.offset[rows] // state.superblocks.superblock_bytes)
    return sum([1 for block in where.tolist() if carved[block] != slot_bytes]) == others


def _empty_superblock(turn: Turn, superblock: int) -> None:
    state = turn.state
    live = state.buffers.live()
    size = state.superblocks.superblock_bytes
    inside = live[state.buffers.offset[live] // size == superblock]
    for number, group in state.buffers.by_queue(inside):
        page_class = state.buffers.queues[number].page_class
        evict(turn, group, page_class, EvictionReason.SUPERBLOCK)
    turn.emit(SuperblockReturned(superblock))


def _oldest_free(state: State, queue: TouchQueue, count: int, spared: Ints | None) -> Ints:
    """Up to `count` of the least recent pages of a queue that nobody holds and no device uses."""
    table = state.buffers
    found: list[Ints] = []
    total = 0
    for block in queue.scan(table):
        usable = block[(table.holds[block] == 0) & (table.busy[block] == 0)]
        if spared is not None:
            usable = usable[~np.isin(usable, spared)]
        usable = usable[: count - total]
        found.append(usable)
        total += len(usable)
        if total == count:
            break
    return np.concatenate(found) if found else EMPTY


def evict(turn: Turn, buffers: Ints, page_class: PageClass, reason: EvictionReason) -> None:
    """Take pages of one class out of the index and free those that no device uses."""
    state = turn.state
    if state.write_queue:
        unwritten = [buffer for buffer in buffers.tolist() if buffer in state.write_queue]
        if unwritten:
            turn.emit(WritesDropped(WriteDrop.EVICTED, pack(unwritten)))
    turn.loosened.append(state.buffers.page[buffers])
    turn.emit(PagesEvicted(pack(buffers), page_class, reason))
    unused = pending_among(state, buffers)
    if len(unused):
        turn.emit(PagesUnused(pack(unused), _UNUSED[reason]))
    idle = buffers[state.buffers.busy[buffers] == 0]
    if len(idle):
        turn.emit(BuffersFreed(pack(idle)))
