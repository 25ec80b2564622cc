"""Lies about saves, and about what is written to the SSD afterwards."""

from orbitkv.events import commands, facts
from orbitkv.events.outcomes import SaveDrop, WriteDrop
from tests.log.lies.story import Lie, Story
from tests.models.columns import numbers


def _by_two_ranks(story: Story) -> tuple[int, facts.SlicesFilled]:
    """The second of two ranks fills its slices, and they are being sealed."""
    for record, filled in story.all(facts.SlicesFilled):
        sealing = any(isinstance(event, facts.SealsStarted) for event in record.events)
        if filled.rank == 1 and sealing:
            return record.seq, filled
    raise StopIteration


# --- saves ------------------------------------------------------------------------------------------


def sealed_without_a_rank(story: Story) -> int:
    """Rank 0 has filled its slice, rank 1 has not."""
    for record, filled in story.all(facts.SlicesFilled):
        if filled.rank == 0 and not any(isinstance(event, facts.SealsStarted) for event in record.events):
            return story.add(record.seq, facts.SealsStarted(filled.buffers[:4]))
    raise StopIteration


def filled_by_nobody(story: Story) -> int:
    seq, filled = _by_two_ranks(story)
    return story.replace(story.records[seq - 1], filled)


def filled_by_another_session(story: Story) -> int:
    record, filled = story.first(facts.SlicesFilled)
    return story.alter(record, filled, session=filled.session + 77)


def filled_by_another_rank(story: Story) -> int:
    record, filled = story.first(facts.SlicesFilled)
    return story.alter(record, filled, rank=filled.rank + 7)


def filled_twice(story: Story) -> int:
    record, filled = story.first(facts.SlicesFilled)
    return story.replace(record, filled, filled, filled)


def copied_by_a_stranger(story: Story) -> int:
    record, started = story.first(facts.CopiesStarted)
    return story.alter(record, started, rank=started.rank + 7)


def copied_twice(story: Story) -> int:
    record, started = story.first(facts.CopiesStarted)
    return story.replace(record, started, started, started)


def whole_and_not_sealed(story: Story) -> int:
    return story.replace(*story.first(facts.SealsStarted))


def sealed_though_its_seal_runs(story: Story) -> int:
    return story.replace(*story.first(facts.SealsEnded))


def sealed_early(story: Story) -> int:
    record, begun = story.first(facts.SaveBegun)
    return story.add(record.seq, facts.PagesSealed(begun.buffers[:4]))


def sealed_and_never_saved(story: Story) -> int:
    record, submitted = story.first(facts.ReadsSubmitted)
    return story.add(record.seq, facts.PagesSealed(submitted.buffers[:4]))


def sealed_and_silent(story: Story) -> int:
    return story.replace(*story.first(facts.PagesSealed))


def joined_when_sealed(story: Story) -> int:
    record, sealed = story.first(facts.PagesSealed)
    _, opened = story.first(facts.SessionOpened)
    return story.add(record.seq, facts.SaveJoined(opened.session, sealed.buffers[:4]))


def dropped_when_sealed(story: Story) -> int:
    record, sealed = story.first(facts.PagesSealed)
    return story.add(record.seq, facts.SavesDropped(SaveDrop.ABORTED, 1, sealed.buffers[:4]))


def given_up_and_not_dropped(story: Story) -> int:
    record, begun = story.first(facts.SaveBegun)
    return story.add(record.seq, facts.SavesEnded(begun.buffers[:4]))


def given_up_under_a_copy(story: Story) -> int:
    record, started = story.first(facts.CopiesStarted)
    buffer = started.buffers[:4]
    return story.add(record.seq, facts.SavesDropped(SaveDrop.ABORTED, 1, buffer), facts.SavesEnded(buffer))


def never_given_up(story: Story) -> int:
    return story.replace(*story.first(facts.SavesEnded))


def a_shorter_deadline(story: Story) -> int:
    record, begun = story.first(facts.SaveBegun)
    return story.alter(record, begun, deadline_ns=begun.deadline_ns - 1)


def expired_early(story: Story) -> int:
    record, dropped = story.first(
        facts.SavesDropped, lambda event: bool(event.buffers) and event.reason is not SaveDrop.EXPIRED
    )
    return story.alter(record, dropped, reason=SaveDrop.EXPIRED)


def never_expired(story: Story) -> int:
    for record in story.caused_by(commands.Tick):
        for event in record.events:
            if isinstance(event, facts.SavesDropped) and event.reason is SaveDrop.EXPIRED:
                return story.replace(record, event)
    raise StopIteration


def more_dropped_than_named(story: Story) -> int:
    record, dropped = story.first(facts.SavesDropped, lambda event: bool(event.buffers))
    return story.alter(record, dropped, count=dropped.count + 1)


def begun_in_old_memory(story: Story) -> int:
    record, begun = story.first(facts.SaveBegun)
    return story.add(record.seq + 1, begun)


# --- writes -----------------------------------------------------------------------------------------


def written_without_a_queue(story: Story) -> int:
    for record, queued in story.all(facts.WritesQueued):
        if any(isinstance(event, facts.WritesSubmitted) for event in record.events):
            return story.replace(record, queued)
    raise StopIteration


def queued_twice(story: Story) -> int:
    record, queued = story.first(facts.WritesQueued)
    return story.replace(record, queued, queued, queued)


def written_twice(story: Story) -> int:
    record, written = story.first(facts.SlotsWritten)
    return story.add(record.seq + 1, written)


def written_at_once(story: Story) -> int:
    record, submitted = story.first(facts.WritesSubmitted)
    return story.add(record.seq, facts.SlotsWritten(submitted.slots[:4]))


def written_and_never_submitted(story: Story) -> int:
    record, written = story.first(facts.SlotsWritten)
    slots = (numbers(written.slots)[0] + 1_000_000).to_bytes(4, "little") + written.slots[4:]
    return story.alter(record, written, slots=slots)


def queue_full_and_is_not(story: Story) -> int:
    record, sealed = story.first(facts.PagesSealed)
    queued = next(event for event in record.events if isinstance(event, facts.WritesQueued))
    return story.replace(record, queued, facts.WritesDropped(WriteDrop.QUEUE_FULL, sealed.buffers))


def dropped_for_an_eviction(story: Story) -> int:
    record, queued = story.first(facts.WritesQueued)
    return story.replace(record, queued, queued, facts.WritesDropped(WriteDrop.EVICTED, queued.buffers[:4]))


LIES: dict[Lie, tuple[str, str]] = {
    sealed_without_a_rank: ("save_slices", "of its slices are missing"),
    filled_by_nobody: ("save_slices", "of its slices are missing"),
    filled_by_another_session: ("save_slices", "by session"),
    filled_by_another_rank: ("save_slices", "no copy of it was under way"),
    filled_twice: ("save_slices", "no copy of it was under way"),
    copied_by_a_stranger: ("save_slices", "registered no such slice"),
    copied_twice: ("save_slices", "it was started before"),
    whole_and_not_sealed: ("save_slices", "and it is not being sealed"),
    sealed_though_its_seal_runs: ("saves", "ends at seq none"),
    sealed_early: ("saves", "it is sealed at seq"),
    sealed_and_never_saved: ("saves", "and no save was begun in it"),
    sealed_and_silent: ("saves", "it is sealed at seq none"),
    joined_when_sealed: ("saves", "its save is over"),
    dropped_when_sealed: ("saves", "its save is over"),
    given_up_and_not_dropped: ("saves", "and its save was not dropped"),
    given_up_under_a_copy: ("saves", "a copy or seal of it is under way"),
    never_given_up: ("saves", "and it is not given up"),
    a_shorter_deadline: ("saves", "its lifetime ends at"),
    expired_early: ("saves", "is dropped as expired"),
    never_expired: ("saves", "its deadline was"),
    more_dropped_than_named: ("saves", "dropped pages are counted"),
    begun_in_old_memory: ("saves", "which is not new"),
    written_without_a_queue: ("ssd_writes", "is written to the SSD, and was sealed before"),
    queued_twice: ("ssd_writes", "is queued, and was queued before"),
    written_twice: ("ssd_writes", "and none was submitted"),
    written_at_once: ("ssd_writes", "ends in the record that submits it"),
    written_and_never_submitted: ("ssd_writes", "and none was submitted"),
    queue_full_and_is_not: ("ssd_writes", "because the queue is full"),
    dropped_for_an_eviction: ("ssd_writes", "because it was evicted"),
}
