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
from replay.simulate.simulation import Simulation
from tests.models.observer import Observer
from tests.models.story import BrokenRuleError

SEEDS, STEPS, EACH = (172, 87), 900, 2
"""The first charges owners, the second shares; both prepare pages that come to every end."""

MAY_BE_MISSED = {
    facts.StageReported,  # an engine's own remark; nothing hangs on it
    facts.PagesTouched,  # shows only when the page is evicted out of turn later
    facts.WritesDropped,  # of a page that left DRAM or the SSD in the same record
    facts.ShareEnded,  # of a share that its lease's end takes away as well
    facts.QueryCut,  # of a demand that ends in the same record
    facts.QueryWaiting,  # of a revision that is granted in the same record, when its predecessor lets go
}
MAY_COME_TWICE = {facts.StageReported, facts.PagesTouched, facts.AllocationFailed}


def recorded(seed: int) -> list[Record]:
    records: list[Record] = []
    Simulation(seed, crashes=False, on_record=records.append).run(STEPS)
    return records


CHAINS = {seed: recorded(seed) for seed in SEEDS}


def places() -> Iterator[tuple[int, int, int]]:
    """(seed, record, fact) of the first few of every kind."""
    seen: Counter[type] = Counter()
    for seed, records in CHAINS.items():
        for number, record in enumerate(records[1:], 1):
            for index, event in enumerate(record.events):
                seen[type(event)] += 1
                if seen[type(event)] <= EACH:
                    yield seed, number, index


PLACES = list(places())
NAMES = [
    f"{type(CHAINS[seed][number].events[index]).__name__}-{seed}-{number}" for seed, number, index in PLACES
]


def watched(records: list[Record]) -> None:
    observer = Observer()
    for record in records:
        observer.observe(record)
        observer.check()
    observer.check_drained()


def doctored(records: list[Record], number: int, events: tuple[facts.Event, ...]) -> list[Record]:
    return [
        *records[:number],
        msgspec.structs.replace(records[number], events=events),
        *records[number + 1 :],
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_true_story_passes(seed: int) -> None:
    watched(CHAINS[seed])


def test_hints_shared_charges_and_the_cohort_are_among_the_facts() -> None:
    told = {type(CHAINS[seed][number].events[index]) for seed, number, index in PLACES}
    assert told >= {
        facts.WarmProbed,
        facts.HintAdmitted,
        facts.HintSkipped,
        facts.HintNotNeeded,
        facts.HintEnded,
        facts.PagesPrepared,
        facts.PagesRestored,
        facts.PagesUnused,
        facts.PagesClaimed,
        facts.PagesUnclaimed,
        facts.ReservationGrown,
    }


@pytest.mark.parametrize(("seed", "number", "index"), PLACES, ids=NAMES)
def test_a_missing_fact_is_found_out(seed: int, number: int, index: int) -> None:
    events = CHAINS[seed][number].events
    if type(events[index]) in MAY_BE_MISSED:
        return
    with pytest.raises(BrokenRuleError):
        watched(doctored(CHAINS[seed], number, events[:index] + events[index + 1 :]))


@pytest.mark.parametrize(("seed", "number", "index"), PLACES, ids=NAMES)
def test_a_fact_that_stands_twice_is_found_out(seed: int, number: int, index: int) -> None:
    events = CHAINS[seed][number].events
    if type(events[index]) in MAY_COME_TWICE:
        return
    with pytest.raises(BrokenRuleError):
        watched(doctored(CHAINS[seed], number, (*events[: index + 1], *events[index:])))


def test_a_record_that_is_lost_or_goes_back_in_time_is_found_out() -> None:
    records = CHAINS[SEEDS[0]]
    with pytest.raises(BrokenRuleError, match="seq has no gap"):
        watched(records[:5] + records[6:])
    late = msgspec.structs.replace(records[5], at_ns=-1)
    with pytest.raises(BrokenRuleError, match="at_ns never falls"):
        watched([*records[:5], late])
