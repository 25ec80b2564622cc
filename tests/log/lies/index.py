"""Lies about what lookups find in DRAM, how long it stays there, and what has to make way."""

from orbitkv.events import commands, facts
from orbitkv.events.facts import PagesInserted
from orbitkv.events.outcomes import EvictionReason, Origin, PageClass
from tests.log.lies.story import Lie, Story, without
from tests.models.columns import numbers


def _landing(story: Story, page_class: PageClass) -> tuple[int, PagesInserted]:
    for record, inserted in story.all(PagesInserted):
        landed = any(isinstance(event, facts.ReadsLanded) for event in record.events)
        if landed and inserted.page_class is page_class:
            return record.seq, inserted
    raise StopIteration


def _reclaimable(story: Story, cause: type[commands.Command]) -> tuple[int, bytes]:
    """A record of this cause at whose end a buffer is in the index as reclaimable, and that buffer."""
    found: dict[int, None] = {}
    for record in story.records:
        for event in record.events:
            if isinstance(event, PagesInserted) and event.page_class is PageClass.RECLAIMABLE:
                found |= dict.fromkeys(numbers(event.buffers))
            if isinstance(event, facts.PagesPromoted | facts.PagesEvicted):
                for buffer in numbers(event.buffers):
                    found.pop(buffer, None)
        if found and isinstance(record.cause, cause):
            return record.seq, next(iter(found)).to_bytes(4, "little")
    raise StopIteration


# --- the index --------------------------------------------------------------------------------------


def found_twice(story: Story) -> int:
    record, inserted = story.first(PagesInserted)
    return story.add(record.seq + 1, inserted)


def found_before_it_is_sealed(story: Story) -> int:
    record, begun = story.first(facts.SaveBegun)
    return story.add(record.seq, PagesInserted(begun.buffers[:4], PageClass.RETAINED, Origin.DEMAND))


def a_demands_page_called_reclaimable(story: Story) -> int:
    seq, inserted = _landing(story, PageClass.RETAINED)
    return story.alter(story.records[seq - 1], inserted, page_class=PageClass.RECLAIMABLE)


def a_hints_page_called_retained(story: Story) -> int:
    seq, inserted = _landing(story, PageClass.RECLAIMABLE)
    return story.alter(story.records[seq - 1], inserted, page_class=PageClass.RETAINED)


def landed_with_another_origin(story: Story) -> int:
    seq, inserted = _landing(story, PageClass.RECLAIMABLE)
    return story.alter(story.records[seq - 1], inserted, origin=Origin.DEMAND)


def sealed_and_not_found(story: Story) -> int:
    for record, inserted in story.all(PagesInserted):
        if any(isinstance(event, facts.PagesSealed) for event in record.events):
            return story.replace(record, inserted)
    raise StopIteration


def landed_and_not_found(story: Story) -> int:
    seq, inserted = _landing(story, PageClass.RETAINED)
    return story.replace(story.records[seq - 1], inserted)


def promoted_for_nothing(story: Story) -> int:
    seq, buffer = _reclaimable(story, commands.Tick)
    return story.add(seq, facts.PagesPromoted(buffer))


def promotion_forgotten(story: Story) -> int:
    return story.replace(*story.first(facts.PagesPromoted))


def promoted_twice(story: Story) -> int:
    record, promoted = story.first(facts.PagesPromoted)
    return story.replace(record, promoted, promoted, promoted)


def touched_by_a_hint(story: Story) -> int:
    seq, buffer = _reclaimable(story, commands.WarmPrefix)
    return story.add(seq, facts.PagesTouched(buffer))


def promoted_by_a_hint(story: Story) -> int:
    seq, buffer = _reclaimable(story, commands.WarmPrefix)
    return story.add(seq, facts.PagesPromoted(buffer))


def touched_and_not_there(story: Story) -> int:
    record, begun = story.first(facts.SaveBegun)
    return story.add(record.seq, facts.PagesTouched(begun.buffers[:4]))


# --- evictions --------------------------------------------------------------------------------------


def evicted_as_another_class(story: Story) -> int:
    record, evicted = story.first(facts.PagesEvicted, lambda event: event.page_class is PageClass.RETAINED)
    return story.alter(record, evicted, page_class=PageClass.RECLAIMABLE)


def evicted_twice(story: Story) -> int:
    record, evicted = story.first(facts.PagesEvicted)
    return story.replace(record, evicted, evicted, evicted)


def eviction_forgotten(story: Story) -> int:
    """Freed all the same."""
    return story.replace(*story.first(facts.PagesEvicted))


def evicted_for_nothing(story: Story) -> int:
    seq, buffer = _reclaimable(story, commands.Tick)
    evicted = facts.PagesEvicted(buffer, PageClass.RECLAIMABLE, EvictionReason.CAPACITY)
    return story.add(seq, evicted, facts.BuffersFreed(buffer))


def cleaned_up_by_nobody(story: Story) -> int:
    record, evicted = story.first(facts.PagesEvicted, lambda event: event.reason is EvictionReason.CAPACITY)
    return story.alter(record, evicted, reason=EvictionReason.CLEANUP)


def made_way_in_a_cleanup(story: Story) -> int:
    record, evicted = story.first(facts.PagesEvicted, lambda event: event.reason is EvictionReason.CLEANUP)
    return story.alter(record, evicted, reason=EvictionReason.CAPACITY)


def superblock_never_returned(story: Story) -> int:
    record, evicted = story.first(facts.PagesEvicted, lambda event: event.reason is EvictionReason.CAPACITY)
    return story.alter(record, evicted, reason=EvictionReason.SUPERBLOCK)


def kept_by_a_cleanup(story: Story) -> int:
    for record in story.caused_by(commands.DropDram):
        evicted = next((event for event in record.events if isinstance(event, facts.PagesEvicted)), None)
        freed = next((event for event in record.events if isinstance(event, facts.BuffersFreed)), None)
        if evicted is None or freed is None:
            continue
        both = [buffer for buffer in numbers(evicted.buffers) if buffer in numbers(freed.buffers)]
        if both:
            story.alter(record, evicted, buffers=without(evicted.buffers, both[0]))
            return story.alter(record, freed, buffers=without(freed.buffers, both[0]))
    raise StopIteration


def retained_before_reclaimable(story: Story) -> int:
    """A save's room is made by a saved page, though a hint's page is there that nobody ever asked for."""
    asked = {buffer for _, event in story.all(facts.QueryGranted) for buffer in numbers(event.buffers)}
    slot_bytes: dict[int, int] = {}
    reclaimable: dict[int, None] = {}
    writing: dict[int, int] = {}
    written: dict[int, None] = {}
    for record in story.records:
        for event in record.events:
            if isinstance(event, facts.BuffersAllocated):
                slot_bytes |= dict.fromkeys(numbers(event.buffers), event.slot_bytes)
            elif isinstance(event, PagesInserted) and event.page_class is PageClass.RECLAIMABLE:
                reclaimable |= dict.fromkeys(set(numbers(event.buffers)) - asked)
            elif isinstance(event, facts.WritesSubmitted):
                writing |= dict(zip(numbers(event.slots), numbers(event.buffers), strict=True))
            elif isinstance(event, facts.SlotsWritten):
                written |= dict.fromkeys({writing[slot] for slot in numbers(event.slots)} - asked)
            elif isinstance(event, facts.PagesEvicted | facts.PagesPromoted):
                for buffer in numbers(event.buffers):
                    reclaimable.pop(buffer, None)
                    written.pop(buffer, None)
        room = next((event for event in record.events if isinstance(event, facts.BuffersAllocated)), None)
        if room is None or not any(isinstance(event, facts.SaveBegun) for event in record.events):
            continue
        sizes = {slot_bytes[buffer] for buffer in reclaimable}
        for buffer in written:
            if slot_bytes[buffer] in sizes:
                gone = buffer.to_bytes(4, "little")
                evicted = facts.PagesEvicted(gone, PageClass.RETAINED, EvictionReason.CAPACITY)
                return story.replace(record, room, evicted, facts.BuffersFreed(gone), room)
    raise StopIteration


LIES: dict[Lie, tuple[str, str]] = {
    found_twice: ("page_index", "is there still"),
    found_before_it_is_sealed: ("page_index", "neither sealed nor landed here"),
    a_demands_page_called_reclaimable: ("page_index", "as reclaimable, it should be retained"),
    a_hints_page_called_retained: ("page_index", "as retained, it should be reclaimable"),
    landed_with_another_origin: ("page_index", "with origin demand, it should be warm"),
    sealed_and_not_found: ("page_index", "is sealed, and does not enter the index"),
    landed_and_not_found: ("page_index", "and it does not enter"),
    promoted_for_nothing: ("page_index", "no demand takes it and no save finds it"),
    promotion_forgotten: ("page_index", "and stays reclaimable"),
    promoted_twice: ("page_index", "is promoted, and is retained already"),
    touched_by_a_hint: ("page_index", "is touched by a hint"),
    promoted_by_a_hint: ("page_index", "no demand takes it and no save finds it"),
    touched_and_not_there: ("page_index", "no lookup finds it"),
    evicted_as_another_class: ("page_index", "leaves the index as reclaimable, it is retained"),
    evicted_twice: ("page_index", "no lookup finds it"),
    eviction_forgotten: ("buffer_holds", "is freed, and held still"),
    evicted_for_nothing: ("reclaim", "and nothing is allocated"),
    cleaned_up_by_nobody: ("reclaim", "which no operator asks for"),
    made_way_in_a_cleanup: ("reclaim", "by an operator's cleanup"),
    superblock_never_returned: ("reclaim", "which is not returned"),
    kept_by_a_cleanup: ("reclaim", "is kept by a cleanup"),
    retained_before_reclaimable: ("reclaim", "reclaimable ones are there"),
}
