"""Lies about operations: what they reserve, how many there are, in what order, and who waits for whom."""

import msgspec

from orbitkv.events import facts
from orbitkv.events.outcomes import QueryEnd
from orbitkv.events.record import Record
from tests.log.lies.story import Lie, Story


def _ended(story: Story, end: QueryEnd) -> tuple[Record, facts.QueryEnded]:
    return story.first(facts.QueryEnded, lambda event: event.end is end)


# --- what is reserved -------------------------------------------------------------------------------


def reservation_ended_twice(story: Story) -> int:
    record, ended = story.first(facts.ReservationEnded)
    return story.add(record.seq + 1, ended)


def reservation_of_nobody(story: Story) -> int:
    record, _ = story.first(facts.QueryOpened)
    return story.add(record.seq, facts.ReservationShrunk(77 << 32 | 1, 4096))


def reserved_beyond_the_limit(story: Story) -> int:
    for record, granted in story.all(facts.QueryGranted):
        if not any(isinstance(event, facts.ReservationEnded | facts.LeaseGranted) for event in record.events):
            return story.alter(record, granted, charge_bytes=1 << 40)
    raise StopIteration


def hint_beyond_its_share(story: Story) -> int:
    record, admitted = story.first(facts.HintAdmitted)
    return story.alter(record, admitted, charge_bytes=1 << 40)


def shrunk_to_more(story: Story) -> int:
    record, shrunk = story.first(facts.ReservationShrunk)
    return story.alter(record, shrunk, charge_bytes=shrunk.charge_bytes + (1 << 16))


def less_than_nothing_reserved(story: Story) -> int:
    record, shrunk = story.first(facts.ReservationShrunk)
    return story.alter(record, shrunk, charge_bytes=-4096)


def reservation_left_over(story: Story) -> int:
    return story.replace(*story.first(facts.ReservationEnded))


def reservation_ended_while_leased(story: Story) -> int:
    record, granted = story.first(facts.LeaseGranted, lambda event: event.charge_bytes > 0)
    if any(isinstance(event, facts.LeaseReleased) for event in record.events):
        raise StopIteration
    return story.add(record.seq, facts.ReservationEnded(granted.operation))


def opened_for_less(story: Story) -> int:
    """Where every hash is paid for: no part of it is trailing, and it is not cut to what fits."""
    config = story.records[0].events[0].config
    if config.demand_prefix_cut:
        raise StopIteration
    record, opened = story.first(facts.QueryOpened)
    return story.alter(record, opened, charge_bytes=opened.charge_bytes - 4096)


def granted_for_more(story: Story) -> int:
    record, granted = story.first(facts.QueryGranted)
    return story.alter(record, granted, charge_bytes=granted.charge_bytes + 4096)


def shrinking_forgotten(story: Story) -> int:
    return story.replace(*story.first(facts.ReservationShrunk))


def growing_forgotten(story: Story) -> int:
    return story.replace(*story.first(facts.ReservationGrown))


def claim_forgotten(story: Story) -> int:
    record, claimed = story.first(facts.PagesClaimed)
    return story.alter(record, claimed, pages=claimed.pages[4:])


def claims_for_less(story: Story) -> int:
    record, claimed = story.first(facts.PagesClaimed)
    return story.alter(record, claimed, footprint_bytes=claimed.footprint_bytes - 4096)


def claim_not_given_back(story: Story) -> int:
    """By a demand that is over."""
    for record, ended in story.all(facts.QueryEnded):
        for event in record.events:
            if isinstance(event, facts.PagesUnclaimed) and event.operation == ended.operation:
                return story.replace(record, event)
    raise StopIteration


# --- how many, and in what order ----------------------------------------------------------------------


def _crowd(opened: facts.QueryOpened, count: int) -> list[facts.QueryOpened]:
    return [
        msgspec.structs.replace(opened, operation=opened.operation + number, request=f"crowd {number}")
        for number in range(1, count + 1)
    ]


def too_many_demands_of_a_session(story: Story) -> int:
    record, opened = story.first(facts.QueryOpened)
    return story.add(record.seq, *_crowd(opened, 129))


def too_many_demands(story: Story) -> int:
    record, opened = story.first(facts.QueryOpened)
    return story.add(record.seq, *_crowd(opened, 1025))


def too_many_hints(story: Story) -> int:
    record, admitted = story.first(facts.HintAdmitted)
    crowd = [
        msgspec.structs.replace(admitted, operation=admitted.operation + number, request=f"crowd {number}")
        for number in range(1, 17)
    ]
    return story.add(record.seq, *crowd)


def too_many_sessions(story: Story) -> int:
    record, opened = story.first(facts.SessionOpened)
    crowd = [msgspec.structs.replace(opened, session=900 + number) for number in range(1024)]
    return story.add(record.seq, *crowd)


def ticket_used_again(story: Story) -> int:
    record, opened = story.first(facts.QueryOpened)
    return story.add(record.seq + 1, msgspec.structs.replace(opened, request="another one", parts=()))


def cut_after_its_end(story: Story) -> int:
    record, ended = _ended(story, QueryEnd.CANCELLED)
    return story.add(record.seq + 1, facts.QueryCut(ended.operation, (0,)))


def cut_and_never_opened(story: Story) -> int:
    record, _ = story.first(facts.QueryOpened)
    return story.add(record.seq, facts.QueryCut(77 << 32 | 1, (0,)))


def two_demands_for_one_request(story: Story) -> int:
    for record, opened in story.all(facts.QueryOpened):
        if not any(isinstance(event, facts.QueryEnded) for event in record.events):
            again = msgspec.structs.replace(opened, operation=opened.operation + 1, revision=9)
            return story.add(record.seq, again)
    raise StopIteration


def revision_does_not_rise(story: Story) -> int:
    record, ended = _ended(story, QueryEnd.REVISED)
    _, former = story.first(facts.QueryOpened, lambda event: event.operation == ended.operation)
    new = next(event for event in record.events if isinstance(event, facts.QueryOpened))
    return story.alter(record, new, revision=former.revision)


# --- waiting ------------------------------------------------------------------------------------------


def _wait(story: Story, *, by_instance: bool | None = None) -> tuple[facts.QueryOpened, int, int]:
    """A demand that waits alone for some records and is granted then; the seqs of both."""
    waiting: set[int] = set()
    for record in story.records:
        for event in record.events:
            if isinstance(event, facts.QueryWaiting):
                wanted = by_instance is None or event.by_instance == by_instance
                if not waiting and wanted:
                    granted = [
                        other.seq
                        for other, grant in story.all(facts.QueryGranted)
                        if grant.operation == event.operation
                    ]
                    if granted and granted[0] > record.seq + 2:
                        _, opened = story.first(
                            facts.QueryOpened, lambda each, event=event: each.operation == event.operation
                        )
                        return opened, record.seq, granted[0]
                waiting.add(event.operation)
            elif isinstance(event, facts.QueryGranted | facts.QueryEnded):
                waiting.discard(event.operation)
    raise StopIteration


def _granted_at_once(opened: facts.QueryOpened, **changes: object) -> tuple[facts.Event, ...]:
    changes = {"operation": opened.operation + 900, "request": "pushy", "asked_pages": 0} | changes
    pushy = msgspec.structs.replace(opened, charge_bytes=0, **changes)
    return pushy, facts.QueryGranted(pushy.operation, 0, (0,), b"", b"")


def pushed_in_front(story: Story) -> int:
    opened, seq, _ = _wait(story)
    return story.add(seq + 1, *_granted_at_once(opened))


def passed_by_another_instance(story: Story) -> int:
    config = story.records[0].events[0].config
    if config.charge != "owner":
        raise StopIteration
    opened, seq, _ = _wait(story, by_instance=False)
    return story.add(seq + 1, *_granted_at_once(opened, instance=opened.instance + 100))


def waits_for_what_is_not_so(story: Story) -> int:
    record, waiting = story.first(facts.QueryWaiting)
    return story.alter(record, waiting, reserved_bytes=waiting.reserved_bytes - 4096)


def left_waiting(story: Story) -> int:
    config = story.records[0].events[0].config
    if config.charge != "owner":
        raise StopIteration
    opened, _, seq = _wait(story)
    record = story.records[seq - 1]
    granted = next(
        event
        for event in record.events
        if isinstance(event, facts.QueryGranted) and event.operation == opened.operation
    )
    return story.replace(record, granted)


LIES: dict[Lie, tuple[str, str]] = {
    reservation_ended_twice: ("reservation_limits", "is ended, and was ended before"),
    reservation_of_nobody: ("reservation_limits", "and was never granted before"),
    reserved_beyond_the_limit: ("reservation_limits", "bytes reserved, their limit is"),
    hint_beyond_its_share: ("reservation_limits", "bytes reserved, their share is"),
    shrunk_to_more: ("reservation_limits", "is shrunk from"),
    less_than_nothing_reserved: ("reservation_limits", "has -4096 bytes reserved"),
    reservation_left_over: ("reservation_amounts", "its reservation has not ended"),
    reservation_ended_while_leased: ("reservation_amounts", "its reservation has ended"),
    opened_for_less: ("reservation_amounts", ", and is opened for"),
    granted_for_more: ("reservation_amounts", ", and is granted"),
    shrinking_forgotten: ("reservation_amounts", " reserved"),
    growing_forgotten: ("reservation_amounts", "is first in line for"),
    claim_forgotten: ("reservation_amounts", ", and did not claim it"),
    claims_for_less: ("reservation_amounts", ", and is first in line for"),
    claim_not_given_back: ("reservation_amounts", "is first in line for"),
    too_many_demands_of_a_session: ("operation_limits", "operations of session"),
    too_many_demands: ("operation_limits", "operations are open, the limit is"),
    too_many_hints: ("operation_limits", "hints of session"),
    too_many_sessions: ("operation_limits", "sessions are open, the limit is 1024"),
    ticket_used_again: ("operation_order", " is used after "),
    cut_after_its_end: ("operation_order", "is cut, and has ended"),
    cut_and_never_opened: ("operation_order", "is cut, and was not opened"),
    two_demands_for_one_request: ("operation_order", "is open for it"),
    revision_does_not_rise: ("operation_order", "replaces revision"),
    pushed_in_front: ("waiting", "is granted while an earlier demand of its instance waits"),
    passed_by_another_instance: ("waiting", "which waits for the global budget"),
    waits_for_what_is_not_so: ("waiting", " waits for "),
    left_waiting: ("waiting", "is first in line for"),
}
