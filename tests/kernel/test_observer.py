"""The observer can fail: a record from which a fact is taken, or in which one stands twice, is found out.

Otherwise the seeded runs would prove nothing. The facts that may go missing or come twice without a
contradiction are named, each with its reason.
"""

from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from orbitkv.events import facts
from orbitkv.events.record import Record
from replay.simulate import Simulation
from tests.models.observer import Observer
from tests.models.story import BrokenRuleError

SEED, STEPS, EACH = 3, 900, 2

MAY_BE_MISSED = {
    facts.StageReported,  # an engine's own remark; nothing hangs on it
    facts.PagesTouched,  # shows only when the page is evicted out of turn later
    facts.WritesDropped,  # of a page that left DRAM or the SSD in the same record
    facts.ShareEnded,  # of a share that its lease's end takes away as well
    facts.QueryCut,  # of a demand that ends in the same record
    facts.QueryWaiting,  # of a revision that is granted in the same record, when its predecessor lets go
}
MAY_COME_TWICE = {facts.StageReported, facts.PagesTouched, facts.AllocationFailed}


def recorded() -> list[Record]:
    records: list[Record] = []
    Simulation(SEED, crashes=False, on_record=records.append).run(STEPS)
    return records


RECORDS = recorded()


def places() -> Iterator[tuple[int, int]]:
    """(record, fact) of the first few of every kind."""
    seen: Counter[type] = Counter()
    for number, record in enumerate(RECORDS[1:], 1):
        for index, event in enumerate(record.events):
            seen[type(event)] += 1
            if seen[type(event)] <= EACH:
                yield number, index


PLACES = list(places())
NAMES = [f"{type(RECORDS[number].events[index]).__name__}-{RECORDS[number].seq}" for number, index in PLACES]


def watched(records: list[Record]) -> None:
    observer = Observer()
    for record in records:
        observer.observe(record)
        observer.check()
    observer.check_drained()


def doctored(number: int, events: tuple[facts.Event, ...]) -> list[Record]:
    return [
        *RECORDS[:number],
        msgspec.structs.replace(RECORDS[number], events=events),
        *RECORDS[number + 1 :],
    ]


def test_the_true_story_passes() -> None:
    watched(RECORDS)


@pytest.mark.parametrize(("number", "index"), PLACES, ids=NAMES)
def test_a_missing_fact_is_found_out(number: int, index: int) -> None:
    events = RECORDS[number].events
    if type(events[index]) in MAY_BE_MISSED:
        return
    with pytest.raises(BrokenRuleError):
        watched(doctored(number, events[:index] + events[index + 1 :]))


@pytest.mark.parametrize(("number", "index"), PLACES, ids=NAMES)
def test_a_fact_that_stands_twice_is_found_out(number: int, index: int) -> None:
    events = RECORDS[number].events
    if type(events[index]) in MAY_COME_TWICE:
        return
    with pytest.raises(BrokenRuleError):
        watched(doctored(number, (*events[: index + 1], *events[index:])))


def test_a_record_that_is_lost_or_goes_back_in_time_is_found_out() -> None:
    with pytest.raises(BrokenRuleError, match="seq has no gap"):
        watched(RECORDS[:5] + RECORDS[6:])
    late = msgspec.structs.replace(RECORDS[5], at_ns=-1)
    with pytest.raises(BrokenRuleError, match="at_ns never falls"):
        watched([*RECORDS[:5], late])
