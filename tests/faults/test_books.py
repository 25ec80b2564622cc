"""The books of a real manager, read from outside: nothing is left behind, everything is accounted for."""

import random
import time
from pathlib import Path

import pytest

from orbitkv.adapters.answers import QueryAnswer
from orbitkv.adapters.client import CacheManagerClient, QueryPart, QueryStatus
from orbitkv.events.facts import DecisionSettled
from orbitkv.events.outcomes import SyncOutcome
from tests.faults.support import facts_of, forget_dram, held, is_idle, only_on_ssd
from tests.metrics.scraper import Scraper, family
from tests.restart.managers import PAGE_BYTES, PAGE_TOKENS, Place, ask, key, restore, save, until

NO_SSD = {"ssd-path": ""}
HTTP = {"http-listen": "127.0.0.1:0"}


def scraper_of(lines: list[str]) -> Scraper:
    return Scraper(lines[1].split("metrics at ")[1].removesuffix("/metrics\n"))


# --- B1: ask but never fetch --------------------------------------------------------------------------------

PREFIX = range(6)


def take(client: CacheManagerClient, answer: QueryAnswer, pages: int) -> None:
    """Restore so many pages of the lease's six; 0: never come back to it."""
    if not pages:
        return
    view = client.begin_restore(answer.lease)
    assert view.page(pages - 1)[0] >= 0
    client.report_sync(view.lease, SyncOutcome.SUCCEEDED, [(0, pages)], 2, pages * PAGE_BYTES, 1)


def answered(client: CacheManagerClient, request: str, attempt: int, numbers: range) -> QueryAnswer:
    """Asked until it is neither busy nor loading: leases of those that never fetch must expire first."""
    part = QueryPart(0, PAGE_TOKENS, 0, [key(number) for number in numbers])
    answers = [client.query(request, attempt, [part])]

    def settled() -> bool:
        if answers[-1].status is QueryStatus.BUSY:
            answers.append(client.query(request, attempt, [part]))
        elif answers[-1].status is QueryStatus.LOADING:
            answers.append(client.poll(answers[-1].operation))
        return answers[-1].status not in (QueryStatus.BUSY, QueryStatus.LOADING)

    until(settled)
    return answers[-1]


def test_a_thousand_ask_and_a_third_of_them_never_fetches(tmp_path: Path) -> None:
    place = Place(tmp_path, NO_SSD | HTTP | {"lease-lifetime": "150ms", "demand-lifetime": "20s"})
    with place.manager() as manager, place.client() as client:
        assert save(client, PREFIX) == len(PREFIX)
        for number in range(1000):
            answer = answered(client, f"request {number}", 0, PREFIX)
            assert answer.status is QueryStatus.READY, number
            take(client, answer, (6, 3, 0)[number % 3])
        until(lambda: is_idle(place))
        scrape = scraper_of(manager.lines).scrape()
        assert family(scrape, "query_reserved_bytes_by_phase") == scrape["query_reserved_bytes"] == 0
        _fill(client, int(scrape["pool_capacity_bytes"]))
        assert ask(client, PREFIX, "after the filler").status is QueryStatus.MISSED
        forget_dram(place)
        assert held(place)["used"] == 0, "every page can be evicted"
        manager.stop()
    place.verify()


def _fill(client: CacheManagerClient, capacity_bytes: int) -> None:
    """As many new pages as the pool can hold; each must find room."""
    pages = capacity_bytes // PAGE_BYTES
    for first in range(10_000, 10_000 + pages, 30):
        assert save(client, range(first, first + 30)) == 30


# --- B9: retries --------------------------------------------------------------------------------------------


def _retry(client: CacheManagerClient, chance: random.Random, number: int) -> None:
    """One request: polled 50 times, preempted and resumed, perhaps skipped, perhaps restored."""
    numbers = range(first := chance.randrange(12), first + chance.randrange(1, 12))
    for attempt in range(chance.randrange(1, 4)):
        answer = answered(client, f"request {number}", attempt, numbers)
        for _ in range(50):
            assert client.poll(answer.operation).status in (answer.status, QueryStatus.RETIRED)
        match chance.randrange(3):
            case 0:
                client.cancel(answer.operation)
                client.cancel(answer.operation)
            case 1 if answer.lease:
                view = client.begin_restore(answer.lease)
                client.report_sync(view.lease, SyncOutcome.SUCCEEDED, [(0, len(view))], 2, PAGE_BYTES, 1)
            case _ if answer.lease:
                client.release(answer.lease)
            case _:
                pass


@pytest.mark.parametrize("requests", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_books_balance_under_retries(tmp_path: Path, requests: int) -> None:
    place = Place(tmp_path, HTTP)
    chance = random.Random(requests)
    with place.manager() as manager, place.client() as client:
        scraper = scraper_of(manager.lines)
        save(client, range(10))
        only_on_ssd(place, 10)
        save(client, range(15, 18))
        with scraper.scraping():
            for number in range(requests):
                _retry(client, chance, number)
                if number % 10 == 0:
                    forget_dram(place)
                    client.warm_prefix(f"queued {number}", 0, [_part(range(10))])
        until(lambda: is_idle(place))
        _no_counter_fell(scraper)
        _nothing_moves_while_idle(place, scraper)
        manager.stop()
    decisions = facts_of(place, DecisionSettled)
    assert len(decisions) >= requests
    for settled in decisions:
        assert settled.dram + settled.peer + settled.ssd + settled.miss == settled.asked
    assert {True} == {
        any(getattr(settled, tier) for settled in decisions) for tier in ("dram", "ssd", "miss")
    }
    assert "verify: ok" in place.verify()


def _part(numbers: range) -> QueryPart:
    return QueryPart(0, PAGE_TOKENS, 0, [key(number) for number in numbers])


def _no_counter_fell(scraper: Scraper) -> None:
    assert len(scraper.scrapes) > 3
    for before, after in zip(scraper.scrapes, scraper.scrapes[1:], strict=False):
        fallen = [
            name for name in before if "_total" in name and after.get(name, before[name]) < before[name]
        ]
        assert not fallen


def _nothing_moves_while_idle(place: Place, scraper: Scraper) -> None:
    """A second, four sweeps long; tests/shell/test_time.py idles for a minute on the run's own clock."""
    before = scraper.scrape()
    resolved = before["warmup_restored_bytes_total"] + family(before, "warmup_unused_bytes_total")
    assert before["warmup_prepared_bytes_total"] == resolved + before["warmup_pending_bytes"]
    told = place.status()["state"].split("seq=")[1].split()[1:]
    time.sleep(1)
    after = scraper.scrape()
    moved = {name for name in before if before[name] != after[name]}
    assert {name.split("{")[0] for name in moved} <= {"log_bytes_total", "log_lag_bytes", "log_records_total"}
    assert place.status()["state"].split("seq=")[1].split()[1:] == told


def test_a_restore_is_exact_whoever_else_polls(tmp_path: Path) -> None:
    """Polls of a ready operation give the same lease until it ends, and leave no record."""
    place = Place(tmp_path, NO_SSD)
    with place.manager() as manager, place.client() as client:
        save(client, range(4))
        ready = ask(client, range(4), "r")
        records = place.status()["log"]["records"]
        assert {client.poll(ready.operation).lease for _ in range(50)} == {ready.lease}
        # The operators that look open and close a session each.
        assert place.status()["log"]["records"] - records <= 3
        assert restore(client, range(4), "r") == 4
        assert client.poll(ready.operation).status is QueryStatus.RETIRED
        manager.stop()
    place.verify()
