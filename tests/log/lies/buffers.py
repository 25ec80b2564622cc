"""Lies about DRAM: buffers, generations, the pool's space, and the numbers that stand for page keys."""

import msgspec

from orbitkv.events import commands, facts
from orbitkv.events.facts import BuffersAllocated
from orbitkv.events.outcomes import EvictionReason, PageClass
from tests.log.lies.story import Lie, Story, with_first, without
from tests.models.columns import column, numbers, wide_column, wide_numbers


def _held(story: Story) -> tuple[int, bytes]:
    """The seq of a grant that is answered with a lease at once, and a buffer that the lease takes over."""
    for record, granted in story.all(facts.QueryGranted):
        if granted.buffers and any(isinstance(event, facts.LeaseGranted) for event in record.events):
            return record.seq, granted.buffers[:4]
    raise StopIteration


def _two_allocations(story: Story) -> tuple[int, BuffersAllocated, BuffersAllocated]:
    """Seq of the second of two that follow each other, of one size, and nothing is freed between."""
    last: BuffersAllocated | None = None
    for record in story.records:
        for event in record.events:
            if isinstance(event, facts.BuffersFreed):
                last = None
            elif isinstance(event, BuffersAllocated):
                if last is not None and last.slot_bytes == event.slot_bytes:
                    return record.seq, last, event
                last = event
    raise StopIteration


# --- buffers ----------------------------------------------------------------------------------------


def allocated_though_taken(story: Story) -> int:
    seq, first, second = _two_allocations(story)
    buffers = with_first(second.buffers, numbers(first.buffers)[0])
    return story.alter(story.records[seq - 1], second, buffers=buffers)


def freed_twice(story: Story) -> int:
    record, freed = story.first(facts.BuffersFreed)
    return story.replace(record, freed, freed, freed)


def freed_while_leased(story: Story) -> int:
    seq, buffer = _held(story)
    return story.add(seq, facts.BuffersFreed(buffer))


def freed_while_read(story: Story) -> int:
    record, submitted = story.first(facts.ReadsSubmitted)
    return story.add(record.seq, facts.BuffersFreed(submitted.buffers[:4]))


def freed_while_written(story: Story) -> int:
    record, submitted = story.first(facts.WritesSubmitted)
    buffer = submitted.buffers[:4]
    evicted = facts.PagesEvicted(buffer, PageClass.RETAINED, EvictionReason.CAPACITY)
    return story.add(record.seq, evicted, facts.BuffersFreed(buffer))


def freed_while_saved(story: Story) -> int:
    record, begun = story.first(facts.SaveBegun)
    return story.add(record.seq, facts.BuffersFreed(begun.buffers[:4]))


def freeing_forgotten(story: Story) -> int:
    return story.replace(*story.first(facts.BuffersFreed))


def freed_late(story: Story) -> int:
    record, freed = story.first(facts.BuffersFreed)
    story.add(record.seq + 1, freed)
    return story.replace(record, freed)


def named_after_it_was_freed(story: Story) -> int:
    record, freed = story.first(facts.BuffersFreed)
    return story.add(record.seq, facts.PagesTouched(freed.buffers[:4]))


def named_and_never_allocated(story: Story) -> int:
    record, _ = story.first(facts.SessionOpened)
    return story.add(record.seq, facts.PagesTouched(column([4_000_000])))


def evicted_while_leased(story: Story) -> int:
    seq, buffer = _held(story)
    return story.add(seq, facts.PagesEvicted(buffer, PageClass.RETAINED, EvictionReason.CLEANUP))


def allocation_forgotten(story: Story) -> int:
    return story.replace(*story.first(BuffersAllocated))


# --- generations ------------------------------------------------------------------------------------


def generation_given_twice(story: Story) -> int:
    record, allocated = story.first(BuffersAllocated, lambda event: event.generation > 1)
    return story.alter(record, allocated, generation=allocated.generation - 1)


def generation_left_out(story: Story) -> int:
    record, allocated = story.first(BuffersAllocated)
    return story.alter(record, allocated, generation=allocated.generation + 1)


# --- the pool's space -------------------------------------------------------------------------------


def two_pages_in_one_place(story: Story) -> int:
    seq, first, second = _two_allocations(story)
    offsets = first.offsets[:8] + second.offsets[8:]
    return story.alter(story.records[seq - 1], second, offsets=offsets)


def on_no_slot(story: Story) -> int:
    record, allocated = story.first(BuffersAllocated)
    offsets = wide_column([wide_numbers(allocated.offsets)[0] + 512]) + allocated.offsets[8:]
    return story.alter(record, allocated, offsets=offsets)


def beyond_the_pool(story: Story) -> int:
    record, carved = story.first(facts.SuperblockCarved)
    return story.alter(record, carved, superblock=1_000)


def carved_twice(story: Story) -> int:
    record, carved = story.first(facts.SuperblockCarved)
    return story.add(record.seq + 1, carved)


def carving_forgotten(story: Story) -> int:
    return story.replace(*story.first(facts.SuperblockCarved))


def carved_for_another_size(story: Story) -> int:
    record, carved = story.first(facts.SuperblockCarved)
    return story.alter(record, carved, slot_bytes=carved.slot_bytes + 4096)


def a_larger_slot(story: Story) -> int:
    record, allocated = story.first(BuffersAllocated)
    return story.alter(record, allocated, slot_bytes=allocated.slot_bytes + 4096)


def a_smaller_page(story: Story) -> int:
    record, allocated = story.first(BuffersAllocated)
    return story.alter(record, allocated, footprint_bytes=allocated.footprint_bytes - 4096)


def returned_while_used(story: Story) -> int:
    record, _ = story.first(BuffersAllocated)
    carved = next(event for event in record.events if isinstance(event, facts.SuperblockCarved))
    return story.add(record.seq, facts.SuperblockReturned(carved.superblock))


def returned_and_not_carved(story: Story) -> int:
    record, _ = story.first(facts.SessionOpened)
    return story.add(record.seq, facts.SuperblockReturned(0))


# --- page numbers -----------------------------------------------------------------------------------


def bound_twice(story: Story) -> int:
    record, bound = story.first(facts.PagesBound)
    other = facts.PagesBound(bound.space, bound.pages[:4], (b"another key",))
    return story.replace(record, bound, bound, other)


def two_numbers_for_a_key(story: Story) -> int:
    record, bound = story.first(facts.PagesBound)
    other = facts.PagesBound(bound.space, column([3_000_000]), bound.keys[:1])
    return story.replace(record, bound, bound, other)


def binding_forgotten(story: Story) -> int:
    saves = (record.seq for record in story.caused_by(commands.BeginSave))
    seqs = set(saves)
    for record, bound in story.all(facts.PagesBound):
        if record.seq in seqs and any(isinstance(event, BuffersAllocated) for event in record.events):
            return story.replace(record, bound)
    raise StopIteration


def unbound_while_in_dram(story: Story) -> int:
    record, allocated = story.first(BuffersAllocated)
    return story.add(record.seq, facts.PagesUnbound(allocated.pages[:4]))


def unbound_while_on_the_ssd(story: Story) -> int:
    """After it left DRAM."""
    written = {buffer for _, event in story.all(facts.WritesSubmitted) for buffer in numbers(event.buffers)}
    pages: dict[int, int] = {}
    for record in story.records:
        for event in record.events:
            if isinstance(event, BuffersAllocated):
                pages |= dict(zip(numbers(event.buffers), numbers(event.pages), strict=True))
            if isinstance(event, facts.BuffersFreed) and isinstance(record.cause, commands.DropDram):
                buffer = next(each for each in numbers(event.buffers) if each in written)
                return story.add(record.seq, facts.PagesUnbound(column([pages[buffer]])))
    raise StopIteration


def unbound_twice(story: Story) -> int:
    record, unbound = story.first(facts.PagesUnbound)
    return story.replace(record, unbound, unbound, unbound)


def space_never_opened(story: Story) -> int:
    record, bound = story.first(facts.PagesBound)
    return story.alter(record, bound, space=bound.space + 77)


def of_another_page(story: Story) -> int:
    """What a save's buffer is for: a page whose number stands for nothing."""
    record, begun = story.first(facts.SaveBegun)
    allocated = next(event for event in record.events if isinstance(event, BuffersAllocated))
    assert begun.buffers == allocated.buffers
    return story.alter(record, allocated, pages=with_first(allocated.pages, 3_000_000))


def one_page_less_freed(story: Story) -> int:
    record, freed = story.first(facts.BuffersFreed, lambda event: len(event.buffers) > 4)
    kept = without(freed.buffers, numbers(freed.buffers)[-1])
    return story.replace(record, freed, msgspec.structs.replace(freed, buffers=kept))


LIES: dict[Lie, tuple[str, str]] = {
    allocated_though_taken: ("buffer_lifecycle", "stands in it still"),
    freed_twice: ("buffer_lifecycle", "was freed before"),
    freed_while_leased: ("buffer_holds", "is freed, and held still"),
    freed_while_read: ("buffer_holds", "is freed, and held still"),
    freed_while_written: ("buffer_holds", "and held still"),
    freed_while_saved: ("buffer_holds", "is freed, and held still"),
    freeing_forgotten: ("buffer_holds", "is not freed, and its last holder lets go"),
    freed_late: ("buffer_holds", "is not freed, and its last holder lets go"),
    one_page_less_freed: ("buffer_holds", "is not freed, and its last holder lets go"),
    named_after_it_was_freed: ("buffer_lifecycle", "was freed before"),
    named_and_never_allocated: ("buffer_lifecycle", "was never allocated"),
    evicted_while_leased: ("buffer_holds", "is evicted, and held still: demand"),
    allocation_forgotten: ("buffer_lifecycle", "was never allocated"),
    generation_given_twice: ("generation_numbers", "is given out after generation"),
    generation_left_out: ("generation_numbers", "is given out after generation"),
    two_pages_in_one_place: ("pool_space", "stands still"),
    on_no_slot: ("pool_space", "lies on no slot"),
    beyond_the_pool: ("pool_space", "is carved, the pool has"),
    carved_twice: ("pool_space", "is carved again"),
    carving_forgotten: ("pool_space", "which is not carved"),
    carved_for_another_size: ("pool_space", "carved for"),
    a_larger_slot: ("pool_space", "and a trailer"),
    a_smaller_page: ("pool_space", "and a trailer"),
    returned_while_used: ("pool_space", "stands in it still"),
    returned_and_not_carved: ("pool_space", "and was not carved"),
    bound_twice: ("page_names", "stands for a key already"),
    two_numbers_for_a_key: ("page_names", "is bound for the key of page"),
    binding_forgotten: ("page_names", "and stands for no key"),
    unbound_while_in_dram: ("page_names", "is unbound, and has memory still"),
    unbound_while_on_the_ssd: ("page_names", "is unbound, and has a slot still"),
    unbound_twice: ("page_names", "and was not bound"),
    space_never_opened: ("page_names", "which was not opened"),
    of_another_page: ("page_names", "and stands for no key"),
}
