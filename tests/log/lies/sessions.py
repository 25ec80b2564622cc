"""Lies about sessions and instances, and about how the chain of records begins and ends."""

import msgspec

from orbitkv.events import facts
from orbitkv.events.outcomes import SessionEnd
from tests.log.lies.story import Lie, Story

# --- sessions and instances -----------------------------------------------------------------------------


def session_number_used_again(story: Story) -> int:
    record, opened = story.first(facts.SessionOpened)
    return story.add(record.seq + 1, opened)


def session_closed_twice(story: Story) -> int:
    record, closed = story.first(facts.SessionClosed)
    return story.add(record.seq + 1, closed)


def superseded_by_nobody(story: Story) -> int:
    record, closed = story.first(facts.SessionClosed, lambda event: event.cause is SessionEnd.BROKEN)
    return story.alter(record, closed, cause=SessionEnd.SUPERSEDED)


def closed_session_reports(story: Story) -> int:
    record, closed = story.first(facts.SessionClosed)
    return story.add(record.seq + 1, facts.StageReported(closed.session, "request", 0, "queued"))


def unknown_session_reports(story: Story) -> int:
    record, _ = story.first(facts.QueryOpened)
    return story.add(record.seq, facts.StageReported(77, "request", 0, "queued"))


def registered_again(story: Story) -> int:
    record, registered = story.first(facts.RankRegistered)
    return story.add(record.seq, registered)


def rank_taken_from_another(story: Story) -> int:
    """Two live sessions of an instance say that they hold the same rank."""
    record, registered = story.first(facts.RankRegistered, lambda event: event.rank > 0)
    return story.alter(record, registered, rank=0)


def rank_beyond_the_world(story: Story) -> int:
    record, registered = story.first(facts.RankRegistered)
    return story.alter(record, registered, rank=registered.world_size)


def asks_for_another_instance(story: Story) -> int:
    for record, opened in story.all(facts.QueryOpened):
        if len({event.instance for _, event in story.all(facts.InstanceSealed)}) > 1:
            return story.alter(record, opened, instance=opened.instance % 2 + 1)
    raise StopIteration


def sealed_without_a_rank(story: Story) -> int:
    for record, sealed in story.all(facts.InstanceSealed):
        for other, registered in story.all(facts.RankRegistered):
            if registered.instance == sealed.instance and registered.rank >= 0 and other.seq < record.seq:
                story.replace(other, registered)
                return record.seq
    raise StopIteration


def sealed_twice(story: Story) -> int:
    record, sealed = story.first(facts.InstanceSealed)
    return story.add(record.seq + 1, sealed)


def instance_closed_while_in_use(story: Story) -> int:
    record, opened = story.first(facts.QueryOpened)
    return story.add(record.seq, facts.InstanceClosed(opened.instance))


def process_gone_with_its_session_open(story: Story) -> int:
    record, opened = story.first(facts.SessionOpened)
    return story.add(record.seq + 1, facts.ProcessReleased(opened.process, False))


def asks_after_the_shutdown(story: Story) -> int:
    record, _ = story.first(facts.ShutdownBegun)
    _, opened = story.first(facts.QueryOpened)
    life_ns = story.records[0].events[0].config.demand_lifetime_ns
    late = msgspec.structs.replace(
        opened,
        operation=opened.operation + 4096,
        request="late",
        deadline_ns=record.at_ns + life_ns,
    )
    return story.add(record.seq, late)


# --- the chain ------------------------------------------------------------------------------------------


def started_again(story: Story) -> int:
    _, started = story.first(facts.IncarnationStarted)
    return story.add(2, started)


def start_not_told(story: Story) -> int:
    return story.replace(*story.first(facts.IncarnationStarted))


def closed_and_goes_on(story: Story) -> int:
    record, _ = story.first(facts.QueryOpened)
    return story.add(record.seq, facts.IncarnationClosed(False))


def never_closed(story: Story) -> int:
    return story.replace(*story.first(facts.IncarnationClosed))


LIES: dict[Lie, tuple[str, str]] = {
    start_not_told: ("chain", "begins at seq 1 with Start"),
    started_again: ("chain", "is started again"),
    closed_and_goes_on: ("chain", "the chain is closed by"),
    never_closed: ("chain", "and the chain is not closed"),
    session_number_used_again: ("sessions", "is opened after session"),
    session_closed_twice: ("sessions", "is closed again"),
    superseded_by_nobody: ("sessions", "is closed as superseded, in a record of CloseSession"),
    closed_session_reports: ("sessions", "reports a stage, and is closed"),
    unknown_session_reports: ("sessions", "reports a stage, and was not opened"),
    registered_again: ("sessions", "registers again"),
    rank_taken_from_another: ("sessions", "has it"),
    rank_beyond_the_world: ("sessions", "is registered for a world of"),
    asks_for_another_instance: ("sessions", ", and belongs to"),
    sealed_without_a_rank: ("sessions", "is sealed with"),
    sealed_twice: ("sessions", "is sealed again"),
    instance_closed_while_in_use: ("sessions", "is closed, and has a session"),
    process_gone_with_its_session_open: ("sessions", "is released, and its session"),
    asks_after_the_shutdown: ("sessions", "after the shutdown has begun"),
}
