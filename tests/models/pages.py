"""Rules of page numbers, DRAM buffers, the index and reclaim, as the observer follows them."""

from orbitkv.events import commands, facts
from orbitkv.events.ids import TRAILER_BYTES
from orbitkv.events.outcomes import EvictionReason, PageClass, SaveDrop
from orbitkv.events.record import Record
from tests.models.books import Books, Handler
from tests.models.columns import numbers, wide_numbers
from tests.models.rows import Buffer, Operation
from tests.models.story import require


def space_opened(books: Books, event: facts.SpaceOpened, record: Record) -> None:
    require(event.space not in books.spaces, "a space opens once", space=event.space)
    known = (event.namespace_digest, event.group)
    require(known not in books.spaces.values(), "one space per (namespace, group)", known=known)
    books.spaces[event.space] = known


def pages_bound(books: Books, event: facts.PagesBound, record: Record) -> None:
    require(event.space in books.spaces, "pages are bound in a space that is open", space=event.space)
    for page, key in zip(numbers(event.pages), event.keys, strict=True):
        require(page not in books.pages, "a page number is given to one key at a time", page=page)
        require((event.space, key) not in books.page_of_key, "a key has one page number", key=key)
        books.pages[page] = (event.space, key)
        books.page_of_key[event.space, key] = page


def pages_unbound(books: Books, event: facts.PagesUnbound, record: Record) -> None:
    for page in numbers(event.pages):
        require(page in books.pages, "an unbound page was bound", page=page)
        require(page not in books.resident, "an unbound page is not in DRAM", page=page)
        require(page not in books.on_ssd, "an unbound page is not on the SSD", page=page)
        users = [buffer.number for buffer in books.buffers.values() if buffer.page == page]
        require(not users, "an unbound page has no buffer", page=page, buffers=users)
        users = [
            slot.number for slot in books.slots.values() if slot.page == page and slot.state == "writing"
        ]
        require(not users, "an unbound page is being written nowhere", page=page, slots=users)
        users = [read.number for read in books.reads_of_page(page)]
        require(not users, "an unbound page is not being read", page=page, reads=users)
        del books.page_of_key[books.pages.pop(page)]


def superblock_carved(books: Books, event: facts.SuperblockCarved, record: Record) -> None:
    assert books.config is not None
    require(event.superblock not in books.superblocks, "a superblock is carved when free", event=event)
    end = (event.superblock + 1) * books.config.superblock_bytes
    require(end <= books.config.pool_bytes, "a superblock lies in the pool", event=event)
    books.superblocks[event.superblock] = event.slot_bytes


def superblock_returned(books: Books, event: facts.SuperblockReturned, record: Record) -> None:
    require(event.superblock in books.superblocks, "a returned superblock was carved", event=event)
    left = [number for number, where in _places(books) if where == event.superblock]
    require(not left, "a superblock returns empty", superblock=event.superblock, buffers=left)
    del books.superblocks[event.superblock]


def _places(books: Books) -> list[tuple[int, int]]:
    assert books.config is not None
    size = books.config.superblock_bytes
    return [(buffer.number, buffer.offset // size) for buffer in books.buffers.values()]


def buffers_allocated(books: Books, event: facts.BuffersAllocated, record: Record) -> None:
    assert books.config is not None
    columns = zip(numbers(event.buffers), numbers(event.pages), wide_numbers(event.offsets), strict=True)
    for index, (number, page, offset) in enumerate(columns):
        require(number not in books.buffers, "a buffer in use is not given out", buffer=number)
        require(page in books.pages, "a buffer is taken for a known page", page=page)
        superblock, inside = divmod(offset, books.config.superblock_bytes)
        slot_bytes = books.superblocks.get(superblock)
        require(slot_bytes == event.slot_bytes, "a superblock holds one slot size", superblock=superblock)
        require(inside % event.slot_bytes == 0, "a buffer begins at a slot", offset=offset)
        require(
            inside + event.slot_bytes <= books.config.superblock_bytes,
            "a buffer ends inside its superblock",
            offset=offset,
        )
        taken = [other.number for other in books.buffers.values() if other.offset == offset]
        require(not taken, "memory in use is not given out", offset=offset, used_by=taken)
        require(
            event.footprint_bytes + TRAILER_BYTES <= event.slot_bytes, "an image fits its slot", event=event
        )
        generation = event.generation + index
        require(
            generation > books.last_generation, "generations rise and never return", generation=generation
        )
        books.last_generation = generation
        books.buffers[number] = Buffer(
            number, page, offset, event.slot_bytes, event.footprint_bytes, generation, record.seq
        )


def buffers_freed(books: Books, event: facts.BuffersFreed, record: Record) -> None:
    for number in numbers(event.buffers):
        require(number in books.buffers, "a freed buffer was allocated", buffer=number)
        holders = books.holders(number)
        require(not holders, "nothing that is held is freed", buffer=number, holders=holders)
        require(not books.buffers[number].indexed, "nothing that lookups find is freed", buffer=number)
        require(number not in books.write_queue, "a freed buffer is not queued for the SSD", buffer=number)
        require(not books.buffers[number].prepared, "a prepared page has its outcome first", buffer=number)
        del books.buffers[number]


def pages_inserted(books: Books, event: facts.PagesInserted, record: Record) -> None:
    for number in numbers(event.buffers):
        buffer = books.buffers[number]
        require(not buffer.indexed, "a buffer is inserted once", buffer=number)
        require(buffer.verified, "only verified content is findable", buffer=number)
        require(
            buffer.page not in books.resident,
            "the indexed generation of a page stays",
            page=buffer.page,
            indexed=books.resident.get(buffer.page),
            inserted=number,
        )
        books.resident[buffer.page] = number
        buffer.indexed = True
        buffer.page_class = event.page_class
        buffer.recency = (record.seq, books.event_index, 0)


def pages_promoted(books: Books, event: facts.PagesPromoted, record: Record) -> None:
    taken: set[int] = set()
    for other in record.events:
        if isinstance(other, facts.QueryGranted):
            taken.update(numbers(other.buffers))
        if isinstance(other, facts.SavesDropped) and other.reason == SaveDrop.RESIDENT:
            taken.update(_saved_again(books, other, record))
    for index, number in enumerate(numbers(event.buffers)):
        buffer = books.buffers[number]
        require(buffer.indexed, "a promoted page is resident", buffer=number)
        require(buffer.page_class == PageClass.RECLAIMABLE, "promotion is from reclaimable", buffer=number)
        require(number in taken, "only a demand or a save promotes a page", buffer=number)
        buffer.page_class = PageClass.RETAINED
        buffer.recency = (record.seq, books.event_index, -index)


def _saved_again(books: Books, dropped: facts.SavesDropped, record: Record) -> set[int]:
    """Resident buffers of the pages that were offered, or half saved, while they are here already."""
    pages = [books.buffers[number].page for number in numbers(dropped.buffers) if number in books.buffers]
    if isinstance(record.cause, commands.BeginSave):
        pages += numbers(record.cause.pages)
    return {books.resident[page] for page in pages if page in books.resident}


def what_is_wanted_is_retained(books: Books, record: Record) -> None:
    """After a record: what a demand took hold of, or a save found resident, is in the retained class."""
    taken: set[int] = set()
    for event in record.events:
        if isinstance(event, facts.QueryGranted):
            taken.update(numbers(event.buffers))
        if isinstance(event, facts.SavesDropped) and event.reason == SaveDrop.RESIDENT:
            taken.update(_saved_again(books, event, record))
    found = [books.buffers[number] for number in taken if number in books.buffers]
    low = [buffer for buffer in found if buffer.indexed and buffer.page_class != PageClass.RETAINED]
    require(not low, "demand and saves promote what they find", buffers=low)


def pages_touched(books: Books, event: facts.PagesTouched, record: Record) -> None:
    for index, number in enumerate(numbers(event.buffers)):
        require(books.buffers[number].indexed, "a touched page is resident", buffer=number)
        books.buffers[number].recency = (record.seq, books.event_index, -index)


def pages_evicted(books: Books, event: facts.PagesEvicted, record: Record) -> None:
    going = numbers(event.buffers)
    for number in going:
        buffer = books.buffers[number]
        require(buffer.indexed, "an evicted page was resident", buffer=number)
        holders = books.holders(number)
        if event.reason == EvictionReason.CLEANUP:  # a writer only delays the reuse of the memory
            holders = [holder for holder in holders if not holder.startswith("the write of slot")]
        require(not holders, "a held page is skipped by reclaim", buffer=number, holders=holders)
        require(buffer.page_class == event.page_class, "an eviction names the page's class", buffer=number)
    hint = _hint_that_needs_room(books, record)
    if hint is not None and event.reason != EvictionReason.CLEANUP:
        wrong = [number for number in going if not _may_go_for(books, hint, books.buffers[number])]
        require(not wrong, "a hint takes reclaimable pages only and never its own", buffers=wrong, hint=hint)
    if event.reason == EvictionReason.CAPACITY:
        _evicted_in_order(books, going, hint)
    for number in going:
        buffer = books.buffers[number]
        buffer.indexed, buffer.left = False, event.reason
        del books.resident[buffer.page]


def _hint_that_needs_room(books: Books, record: Record) -> Operation | None:
    """Whose reads the room is made for: the facts that follow tell. None where it is not for a hint's."""
    for event in record.events[books.event_index :]:
        match event:
            case facts.ReadsSubmitted(reads=column) | facts.ReadsDropped(reads=column, no_room=True):
                read = books.reads[numbers(column)[0]]
                return None if books.demanded(read) else books.interested(read)[0]
            case facts.SaveBegun() | facts.SavesDropped():
                return None
            case _:
                pass
    return None


def _may_go_for(books: Books, hint: Operation, buffer: Buffer) -> bool:
    own = {books.page_of_key.get(key) for asked, key in enumerate(hint.keys) if hint.spans(asked)}
    return buffer.page_class == PageClass.RECLAIMABLE and buffer.page not in own


def _evicted_in_order(books: Books, going: list[int], hint: Operation | None) -> None:
    """Reclaimable before retained, least recent first, among the pages of one size that may go."""
    sizes = {books.buffers[number].slot_bytes for number in going}
    staying = [
        buffer
        for buffer in books.buffers.values()
        if buffer.number not in going
        and buffer.indexed
        and buffer.slot_bytes in sizes
        and not books.holders(buffer.number)
        and (hint is None or _may_go_for(books, hint, buffer))
    ]
    for number in going:
        gone = books.buffers[number]
        for other in staying:
            if other.slot_bytes == gone.slot_bytes:
                require(
                    _goes_first(gone, other),
                    "reclaim takes the lowest class and in it the least recent page",
                    evicted=gone,
                    kept=other,
                )


def _goes_first(gone: Buffer, other: Buffer) -> bool:
    assert gone.page_class is not None
    assert other.page_class is not None
    if gone.page_class != other.page_class:
        return gone.page_class < other.page_class
    if gone.recency[0] == other.recency[0] and gone.recency[1] != other.recency[1]:
        return True  # two facts of one record: the contract does not order them
    return gone.recency <= other.recency


def allocation_failed(books: Books, event: facts.AllocationFailed, record: Record) -> None:
    require(event.requested_bytes > 0, "a failed allocation says what it wanted", event=event)
    footprint = _wanted_footprint(books, event, record)
    hint = _hint_that_needs_room(books, record)
    spared = [
        buffer.number
        for buffer in books.buffers.values()
        if buffer.indexed
        and buffer.footprint_bytes == footprint
        and not books.holders(buffer.number)
        and (hint is None or _may_go_for(books, hint, buffer))
    ]
    require(not spared, "room is refused only when nothing is left to evict", event=event, spared=spared)


def _wanted_footprint(books: Books, event: facts.AllocationFailed, record: Record) -> int | None:
    """Of the pages that found no room; None where the facts leave it open."""
    if event.operation:
        operation = books.operations[event.operation]
        groups, instance = operation.part_groups, operation.instance
    elif isinstance(record.cause, commands.BeginSave):
        session = books.sessions[record.cause.session]
        assert session.instance is not None
        groups, instance = [record.cause.group], session.instance
    else:
        return None
    return books.instances[instance].footprints[groups[0]] if len(groups) == 1 else None


def no_superblock_was_left(books: Books, record: Record) -> None:
    """After a record in which room was refused: every free superblock was taken first."""
    refused = [event for event in record.events if isinstance(event, facts.AllocationFailed)]
    freed = any(isinstance(event, facts.BuffersFreed) for event in record.events)
    if not refused or freed:
        return
    assert books.config is not None
    superblocks = range(books.config.pool_bytes // books.config.superblock_bytes)
    free = [number for number in superblocks if number not in books.superblocks]
    require(not free, "room is refused only when no superblock is free", refused=refused, free=free)


HANDLERS: dict[type, Handler] = {
    facts.SpaceOpened: space_opened,
    facts.PagesBound: pages_bound,
    facts.PagesUnbound: pages_unbound,
    facts.SuperblockCarved: superblock_carved,
    facts.SuperblockReturned: superblock_returned,
    facts.BuffersAllocated: buffers_allocated,
    facts.BuffersFreed: buffers_freed,
    facts.PagesInserted: pages_inserted,
    facts.PagesPromoted: pages_promoted,
    facts.PagesTouched: pages_touched,
    facts.PagesEvicted: pages_evicted,
    facts.AllocationFailed: allocation_failed,
}
