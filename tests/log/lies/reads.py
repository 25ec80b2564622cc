"""Lies about reads from the SSD: their order, who wants them, where they are read to and from, and grants."""

from orbitkv.events import facts
from orbitkv.events.facts import ReadsQueued, ReadsSubmitted
from orbitkv.events.outcomes import Origin
from tests.log.lies.story import Lie, Story, with_first, without
from tests.models.columns import column, numbers


def _several(story: Story) -> tuple[int, ReadsSubmitted]:
    record, submitted = story.first(ReadsSubmitted, lambda event: len(event.reads) > 4)
    return record.seq, submitted


def _swapped(packed: bytes) -> bytes:
    return packed[4:8] + packed[:4] + packed[8:]


def read_left_out(story: Story) -> int:
    record, queued = story.first(ReadsQueued)
    return story.alter(record, queued, read=queued.read + 1)


def queueing_forgotten(story: Story) -> int:
    for record, queued in story.all(ReadsQueued):
        if any(isinstance(event, ReadsSubmitted) for event in record.events):
            return story.replace(record, queued)
    raise StopIteration


def dropped_though_submitted(story: Story) -> int:
    record, submitted = story.first(ReadsSubmitted)
    return story.add(record.seq, facts.ReadsDropped(submitted.reads[:4], False))


def submitted_twice(story: Story) -> int:
    record, submitted = story.first(ReadsSubmitted)
    return story.add(record.seq, submitted)


def submission_forgotten(story: Story) -> int:
    return story.replace(*story.first(ReadsSubmitted))


def landed_twice(story: Story) -> int:
    record, landed = story.first(facts.ReadsLanded)
    return story.add(record.seq + 1, landed)


def landed_and_failed(story: Story) -> int:
    record, landed = story.first(facts.ReadsLanded)
    return story.add(record.seq, facts.ReadsFailed(landed.reads[:4], b"\1"))


def completion_of_no_read(story: Story) -> int:
    record, _ = story.first(facts.ReadsLanded)
    return story.add(record.seq, facts.ReadsFailed(column([4_000_000]), b"\1"))


def landing_forgotten(story: Story) -> int:
    record, landed = story.first(facts.ReadsLanded)
    assert any(isinstance(event, facts.PagesInserted) for event in record.events)
    return story.replace(record, landed)


def joined_when_over(story: Story) -> int:
    record, joined = story.first(facts.ReadsJoined)
    earlier = [
        read
        for other, event in story.all(facts.ReadsLanded)
        if other.seq < record.seq
        for read in numbers(event.reads)
    ]
    if not earlier:
        raise StopIteration
    return story.alter(record, joined, reads=with_first(joined.reads, earlier[0]))


def one_page_read_twice(story: Story) -> int:
    record, queued = story.first(ReadsQueued, lambda event: len(event.pages) > 4)
    pages = queued.pages[:4] * 2 + queued.pages[8:]
    return story.alter(record, queued, pages=pages)


def read_into_another_pages_memory(story: Story) -> int:
    seq, submitted = _several(story)
    return story.alter(story.records[seq - 1], submitted, buffers=_swapped(submitted.buffers))


def read_from_another_pages_slot(story: Story) -> int:
    seq, submitted = _several(story)
    return story.alter(story.records[seq - 1], submitted, slots=_swapped(submitted.slots))


def read_from_a_slot_never_written(story: Story) -> int:
    record, submitted = story.first(ReadsSubmitted)
    return story.alter(record, submitted, slots=with_first(submitted.slots, 3_000_000))


def for_hints_called_foreground(story: Story) -> int:
    record, submitted = story.first(ReadsSubmitted, lambda event: not event.foreground)
    return story.alter(record, submitted, foreground=True)


def for_a_demand_called_background(story: Story) -> int:
    record, submitted = story.first(ReadsSubmitted, lambda event: event.foreground)
    return story.alter(record, submitted, foreground=False)


def queued_with_another_origin(story: Story) -> int:
    record, queued = story.first(ReadsQueued, lambda event: event.origin is Origin.WARM)
    return story.alter(record, queued, origin=Origin.DEMAND)


def half_a_page(story: Story) -> int:
    record, landed = story.first(facts.ReadsLanded)
    size_bytes = numbers(landed.read_bytes)[0]
    return story.alter(record, landed, read_bytes=with_first(landed.read_bytes, size_bytes // 2))


def unwanted_called_no_room(story: Story) -> int:
    record, dropped = story.first(facts.ReadsDropped, lambda event: not event.no_room)
    return story.alter(record, dropped, no_room=True)


def no_room_called_unwanted(story: Story) -> int:
    record, dropped = story.first(facts.ReadsDropped, lambda event: event.no_room)
    return story.alter(record, dropped, no_room=False)


# --- grants -----------------------------------------------------------------------------------------


def a_hit_left_out(story: Story) -> int:
    record, granted = story.first(facts.QueryGranted, lambda event: len(event.buffers) > 4)
    last = numbers(granted.buffers)[-1]
    positions = granted.positions[:-4] if granted.positions else granted.positions
    return story.alter(record, granted, buffers=without(granted.buffers, last), positions=positions)


def two_pages_at_one_position(story: Story) -> int:
    record, queued = story.first(
        ReadsQueued, lambda event: len(event.positions) > 4 and event.origin is Origin.DEMAND
    )
    return story.alter(record, queued, positions=queued.positions[:4] * 2 + queued.positions[8:])


def a_longer_reach(story: Story) -> int:
    record, granted = story.first(facts.QueryGranted, lambda event: event.reach[0] > 0)
    return story.alter(record, granted, reach=(granted.reach[0] + 1, *granted.reach[1:]))


LIES: dict[Lie, tuple[str, str]] = {
    read_left_out: ("read_lives", "is queued after read"),
    queueing_forgotten: ("read_lives", "was never queued"),
    dropped_though_submitted: ("read_lives", "is dropped, and submitted"),
    submitted_twice: ("read_lives", "is submitted again"),
    submission_forgotten: ("buffer_holds", "and nobody holds it then"),
    landed_twice: ("read_lives", "is ended again"),
    landed_and_failed: ("read_lives", "is ended again"),
    completion_of_no_read: ("read_lives", "was never queued"),
    landing_forgotten: ("page_index", "neither sealed nor landed here"),
    joined_when_over: ("read_lives", "which is over"),
    one_page_read_twice: ("read_lives", "already"),
    read_into_another_pages_memory: ("read_lives", "is submitted with buffer"),
    read_from_another_pages_slot: ("ssd_slots", "which holds page"),
    read_from_a_slot_never_written: ("ssd_slots", "which was never assigned"),
    for_hints_called_foreground: ("read_lives", "no demand wants it"),
    for_a_demand_called_background: ("read_lives", "a demand wants it"),
    queued_with_another_origin: ("read_lives", "is queued as demand"),
    half_a_page: ("read_lives", "the page's image has"),
    unwanted_called_no_room: ("read_lives", "no allocation fails"),
    no_room_called_unwanted: ("read_lives", "and is wanted"),
    a_hit_left_out: ("granted_pages", "goes on with"),
    two_pages_at_one_position: ("granted_pages", "goes on with"),
    a_longer_reach: ("granted_pages", "goes on with"),
}
