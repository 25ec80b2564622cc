"""Lies about the SSD: segments, slots, failures, recovery."""

from orbitkv.events import facts
from orbitkv.events.outcomes import ReadOutcome, SlotEnd
from tests.log.lies.story import Lie, Story, with_first
from tests.models.columns import column, numbers


def _failed(story: Story, outcome: ReadOutcome, answer: type[facts.Event]) -> tuple[int, facts.Event]:
    """The seq of a read that ended so, and the fact that answers it."""
    for record, failed in story.all(facts.ReadsFailed):
        answers = [event for event in record.events if isinstance(event, answer)]
        if outcome in failed.outcomes and len(failed.outcomes) == 1 and answers:
            return record.seq, answers[0]
    raise StopIteration


# --- segments ---------------------------------------------------------------------------------------


def beyond_the_cap(story: Story) -> int:
    record, opened = story.first(facts.SegmentOpened)
    return story.alter(record, opened, segment=99)


def opened_twice(story: Story) -> int:
    record, opened = story.first(facts.SegmentOpened)
    return story.add(record.seq + 1, opened)


def opening_forgotten(story: Story) -> int:
    for record, opened in story.all(facts.SegmentOpened):
        if any(isinstance(event, facts.WritesSubmitted) for event in record.events):
            return story.replace(record, opened)
    raise StopIteration


def opened_for_another_size(story: Story) -> int:
    for record, opened in story.all(facts.SegmentOpened):
        if any(isinstance(event, facts.WritesSubmitted) for event in record.events):
            return story.alter(record, opened, slot_bytes=opened.slot_bytes * 2)
    raise StopIteration


def drained_twice(story: Story) -> int:
    record, draining = story.first(facts.SegmentDraining)
    return story.replace(record, draining, draining, draining)


def drained_and_not_emptied(story: Story) -> int:
    for record, draining in story.all(facts.SegmentDraining):
        place = record.events.index(draining)
        freed = record.events[place + 1] if place + 1 < len(record.events) else None
        if isinstance(freed, facts.SlotsFreed):
            return story.replace(record, freed)
    raise StopIteration


def returned_undrained(story: Story) -> int:
    record, opened = story.first(facts.SegmentOpened)
    return story.add(record.seq, facts.SegmentReturned(opened.segment))


def draining_forgotten(story: Story) -> int:
    return story.replace(*story.first(facts.SegmentDraining))


# --- slots ------------------------------------------------------------------------------------------


def assigned_though_taken(story: Story) -> int:
    (_, first), (record, second) = [*story.all(facts.WritesSubmitted)][:2]
    return story.alter(record, second, slots=with_first(second.slots, numbers(first.slots)[0]))


def in_no_open_segment(story: Story) -> int:
    record, submitted = story.first(facts.WritesSubmitted)
    return story.alter(record, submitted, slots=with_first(submitted.slots, 3_000_000))


def freed_and_holds_nothing(story: Story) -> int:
    record, submitted = story.first(facts.WritesSubmitted)
    return story.add(record.seq - 1, facts.SlotsFreed(submitted.slots[:4], SlotEnd.RECLAIMED))


def read_after_it_was_freed(story: Story) -> int:
    for record, submitted in story.all(facts.ReadsSubmitted):
        if record.seq > 1:
            freed = facts.SlotsFreed(submitted.slots[:4], SlotEnd.OTHER_PAGE)
            story.replace(record, submitted, freed, submitted)
            return record.seq
    raise StopIteration


def written_late(story: Story) -> int:
    """Its memory is freed before the write is said to have ended."""
    for record, written in story.all(facts.SlotsWritten):
        _, submitted = story.first(
            facts.WritesSubmitted, lambda event, slots=written.slots: slots[:4] in event.slots
        )
        buffer = numbers(submitted.buffers)[numbers(submitted.slots).index(numbers(written.slots)[0])]
        for other, freed in story.all(facts.BuffersFreed):
            if len(written.slots) == 4 and other.seq > record.seq and buffer in numbers(freed.buffers):
                story.replace(record, written)
                return story.add(other.seq, written)
    raise StopIteration


def write_called_failed(story: Story) -> int:
    record, written = story.first(facts.SlotsWritten, lambda event: len(event.slots) == 4)
    return story.replace(record, written, facts.WritesFailed(written.slots, b"\2"))


def a_page_in_two_slots(story: Story) -> int:
    record, submitted = story.first(facts.WritesSubmitted)
    again = facts.WritesSubmitted(column([numbers(submitted.slots)[0] + 7]), submitted.buffers[:4])
    return story.replace(record, submitted, submitted, again)


def recovered_beyond_its_segment(story: Story) -> int:
    record, recovered = story.first(facts.SlotsRecovered)
    return story.alter(record, recovered, slots=with_first(recovered.slots, 3_000_000))


def recovered_twice(story: Story) -> int:
    record, recovered = story.first(facts.SlotsRecovered)
    return story.replace(record, recovered, recovered, recovered)


def condemned_and_used(story: Story) -> int:
    record, submitted = story.first(facts.WritesSubmitted)
    opened = next(event for event in record.events if isinstance(event, facts.SegmentOpened))
    condemned = facts.SlotsCondemned(opened.segment, submitted.slots[:4])
    return story.replace(record, opened, opened, condemned)


# --- failures ---------------------------------------------------------------------------------------


def corrupt_and_served_on(story: Story) -> int:
    seq, answer = _failed(story, ReadOutcome.CORRUPT, facts.SlotsQuarantined)
    return story.replace(story.records[seq - 1], answer)


def another_page_and_kept(story: Story) -> int:
    seq, answer = _failed(story, ReadOutcome.OTHER_PAGE, facts.SlotsFreed)
    return story.replace(story.records[seq - 1], answer)


def failed_and_not_counted(story: Story) -> int:
    for record, counted in story.all(facts.SlotFailureCounted):
        return story.replace(record, counted)
    raise StopIteration


def counted_for_nothing(story: Story) -> int:
    record, _ = story.first(facts.ReadsLanded)
    _, submitted = story.first(facts.ReadsSubmitted)
    return story.add(record.seq, facts.SlotFailureCounted(numbers(submitted.slots)[0]))


def quarantined_for_nothing(story: Story) -> int:
    record, written = story.first(facts.SlotsWritten)
    return story.add(record.seq, facts.SlotsQuarantined(written.slots[:4]))


def write_failed_and_kept(story: Story) -> int:
    record, _ = story.first(facts.WritesFailed)
    freed = next(event for event in record.events if isinstance(event, facts.SlotsFreed))
    return story.replace(record, freed)


def freed_for_a_write_that_did_not_fail(story: Story) -> int:
    record, written = story.first(facts.SlotsWritten)
    return story.add(record.seq, facts.SlotsFreed(written.slots[:4], SlotEnd.WRITE_FAILED))


def reclaimed_alone(story: Story) -> int:
    record, written = story.first(facts.SlotsWritten)
    return story.add(record.seq, facts.SlotsFreed(written.slots[:4], SlotEnd.RECLAIMED))


LIES: dict[Lie, tuple[str, str]] = {
    beyond_the_cap: ("ssd_segments", "the cap has room for"),
    opened_twice: ("ssd_segments", "is opened, and was opened before"),
    opening_forgotten: ("ssd_segments", "which is not open"),
    opened_for_another_size: ("ssd_segments", "is assigned to a page of"),
    drained_twice: ("ssd_segments", "is draining, and was draining before"),
    drained_and_not_emptied: ("ssd_segments", "holds a page still"),
    returned_undrained: ("ssd_segments", "is returned, and was opened before"),
    draining_forgotten: ("ssd_failures", "which is not drained"),
    assigned_though_taken: ("ssd_slots", "is assigned, and was assigned before"),
    in_no_open_segment: ("ssd_segments", "which is not open"),
    freed_and_holds_nothing: ("ssd_slots", "is freed, and holds no page"),
    read_after_it_was_freed: ("ssd_slots", "which is free"),
    written_late: ("buffer_holds", "is freed, and held still"),
    write_called_failed: ("ssd_writes", "failed, and is not dropped"),
    a_page_in_two_slots: ("ssd_slots", "already"),
    recovered_beyond_its_segment: ("ssd_segments", "is recovered in segment"),
    recovered_twice: ("ssd_slots", "is recovered, and was recovered before"),
    condemned_and_used: ("ssd_slots", "is assigned, and was condemned before"),
    corrupt_and_served_on: ("ssd_failures", "and the slot is not quarantined"),
    another_page_and_kept: ("ssd_failures", "and the slot is not freed"),
    failed_and_not_counted: ("ssd_failures", "and the slot is not counted"),
    counted_for_nothing: ("ssd_failures", "and no read of it fails so"),
    quarantined_for_nothing: ("ssd_failures", "and no read of it fails so"),
    write_failed_and_kept: ("ssd_failures", "and the slot is not freed"),
    freed_for_a_write_that_did_not_fail: ("ssd_failures", "it did not"),
    reclaimed_alone: ("ssd_failures", "which is not drained"),
}
