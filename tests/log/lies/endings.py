"""Lies about hints that are skipped, about why demands, hints and leases end, and about their deadlines."""

from orbitkv.events import commands, facts
from orbitkv.events.outcomes import HintEnd, HintSkip, LeaseEnd, QueryEnd
from orbitkv.events.record import Record
from tests.log.lies.story import Lie, Story, without
from tests.models.columns import numbers


def _ended(story: Story, end: QueryEnd) -> tuple[Record, facts.QueryEnded]:
    return story.first(facts.QueryEnded, lambda event: event.end is end)


def _hint_ended(story: Story, end: HintEnd) -> tuple[Record, facts.HintEnded]:
    return story.first(facts.HintEnded, lambda event: event.end is end)


# --- hints that are skipped -----------------------------------------------------------------------------


def _skipped(story: Story, reason: HintSkip) -> tuple[Record, facts.HintSkipped]:
    return story.first(facts.HintSkipped, lambda event: event.reason is reason)


def skipped_for_another_reason(story: Story) -> int:
    record, skipped = _skipped(story, HintSkip.FOREGROUND)
    return story.alter(record, skipped, reason=HintSkip.BYTES)


def skipped_with_other_figures(story: Story) -> int:
    record, skipped = _skipped(story, HintSkip.FOREGROUND)
    return story.alter(record, skipped, reserved=skipped.reserved + 1)


def skipped_with_another_limit(story: Story) -> int:
    record, skipped = _skipped(story, HintSkip.OVERSIZED)
    return story.alter(record, skipped, limit=skipped.limit + 1)


def skipped_though_all_was_free(story: Story) -> int:
    record, admitted = story.first(facts.HintAdmitted)
    skipped = facts.HintSkipped(
        admitted.session,
        admitted.instance,
        admitted.operation & 0xFFFF_FFFF,
        admitted.request,
        admitted.attempt,
        HintSkip.BYTES,
        admitted.asked_pages,
        admitted.charge_bytes,
        0,
        0,
    )
    return story.replace(record, admitted, skipped)


# --- why things end, and when ---------------------------------------------------------------------------


def missed_called_cancelled(story: Story) -> int:
    record, ended = _ended(story, QueryEnd.MISSED)
    if isinstance(record.cause, commands.CancelQuery):
        raise StopIteration
    return story.alter(record, ended, end=QueryEnd.CANCELLED)


def missed_called_bypassed(story: Story) -> int:
    record, ended = _ended(story, QueryEnd.MISSED)
    return story.alter(record, ended, end=QueryEnd.BYPASSED)


def expired_before_its_time(story: Story) -> int:
    record, ended = _hint_ended(story, HintEnd.CANCELLED)
    return story.alter(record, ended, end=HintEnd.EXPIRED)


def ended_twice(story: Story) -> int:
    record, ended = _hint_ended(story, HintEnd.PREPARED)
    return story.add(record.seq + 1, ended)


def prepared_while_it_reads(story: Story) -> int:
    record, admitted = story.first(facts.HintAdmitted)
    if any(isinstance(event, facts.HintEnded) for event in record.events):
        raise StopIteration
    return story.add(record.seq, facts.HintEnded(admitted.operation, HintEnd.PREPARED))


def prepared_and_goes_on(story: Story) -> int:
    return story.replace(*_hint_ended(story, HintEnd.PREPARED))


def demand_outlives_its_session(story: Story) -> int:
    record, ended = _ended(story, QueryEnd.DISCONNECTED)
    if not any(isinstance(event, facts.SessionClosed) for event in record.events):
        raise StopIteration
    return story.replace(record, ended)


def hint_outlives_its_demand(story: Story) -> int:
    return story.replace(*_hint_ended(story, HintEnd.ADMITTED))


def consumed_called_expired(story: Story) -> int:
    record, ended = story.first(facts.LeaseEnded, lambda event: event.end is LeaseEnd.CONSUMED)
    return story.alter(record, ended, end=LeaseEnd.EXPIRED)


def lives_longer_than_set(story: Story) -> int:
    record, opened = story.first(facts.QueryOpened)
    return story.alter(record, opened, deadline_ns=opened.deadline_ns + 1)


def lease_lives_shorter_than_set(story: Story) -> int:
    record, granted = story.first(facts.LeaseGranted)
    return story.alter(record, granted, deadline_ns=granted.deadline_ns - 1)


def expiry_forgotten(story: Story) -> int:
    record, ended = story.first(facts.LeaseEnded, lambda event: event.end is LeaseEnd.EXPIRED)
    return story.replace(record, ended)


def expired_save_goes_on(story: Story) -> int:
    for record in story.caused_by(commands.Tick):
        for event in record.events:
            if isinstance(event, facts.SavesDropped) and event.buffers:
                return story.alter(record, event, buffers=without(event.buffers, numbers(event.buffers)[0]))
    raise StopIteration


LIES: dict[Lie, tuple[str, str]] = {
    skipped_for_another_reason: ("hint_skips", ": bytes, it should be foreground"),
    skipped_with_other_figures: ("hint_skips", "which is not so"),
    skipped_with_another_limit: ("hint_skips", "which is not so"),
    skipped_though_all_was_free: ("hint_skips", ": bytes, it should be admitted"),
    missed_called_cancelled: ("endings", "ends as cancelled, in a record of"),
    missed_called_bypassed: ("endings", "ends as bypassed, in a record of"),
    expired_before_its_time: ("endings", "ends as expired, in a record of CancelHint"),
    ended_twice: ("endings", "ends again (prepared)"),
    prepared_while_it_reads: ("endings", "is prepared while"),
    prepared_and_goes_on: ("endings", "have ended, and it goes on"),
    demand_outlives_its_session: ("endings", "of it goes on"),
    hint_outlives_its_demand: ("endings", "and its hint"),
    consumed_called_expired: ("endings", "ends as expired, in a record of"),
    lives_longer_than_set: ("lifetimes", "is to live for"),
    lease_lives_shorter_than_set: ("lifetimes", "is to live for"),
    expiry_forgotten: ("lifetimes", "is past its deadline at this tick"),
    expired_save_goes_on: ("lifetimes", "is past its deadline at this tick"),
}
