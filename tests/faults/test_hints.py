"""Hints to real managers over a device that can stand still: nothing leaks, and all is accounted for."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from orbitkv.adapters.client import CacheManagerClient, QueryStatus
from orbitkv.events.facts import (
    HintEnded,
    HintSkipped,
    IncarnationClosed,
    PagesPrepared,
    PagesRestored,
    PagesUnused,
    ReadsSubmitted,
)
from orbitkv.events.outcomes import HintEnd, HintSkip, SyncOutcome, Unused
from replay.auditor import audit_log
from tests.faults.support import (
    Device,
    facts_of,
    forget_dram,
    held,
    is_idle,
    manager_with_device,
    only_on_ssd,
)
from tests.faults.test_books import scraper_of
from tests.faults.test_ownership import other_engine, part
from tests.metrics.scraper import Scrape, Scraper, family
from tests.restart.managers import PAGE_BYTES, Place, ask, content, key, restore, save, until

FOOTPRINT = 102_400
"""Of a page of `PAGE_BYTES`, padded."""
OPEN_HINTS = 'operations{kind="hint"}'
HTTP = {"http-listen": "127.0.0.1:0"}


@contextmanager
def cold(
    path: Path, pages: int, **changed: str
) -> Iterator[tuple[Place, Device, Scraper, CacheManagerClient]]:
    """A manager with so many pages on its SSD and none in DRAM; afterwards its log must verify and add up."""
    place = Place(path, HTTP)
    with manager_with_device(place, **changed) as (manager, device), place.client() as client:
        for first in range(0, pages, 8):
            save(client, range(first, min(first + 8, pages)))
        only_on_ssd(place, pages)
        yield place, device, scraper_of(manager.lines), client
        device.go_on()
        until(lambda: is_idle(place))
        client.close()
        manager.stop()
    adds_up(place)


def adds_up(place: Place) -> None:
    """The log is sound, and both ledgers recomputed from it add up."""
    place.verify()
    audit = audit_log(place.log)
    assert audit.ok, [verdict for verdict in audit.verdicts if verdict.count]


def balanced(scrape: Scrape) -> bool:
    resolved = scrape["warmup_restored_bytes_total"] + family(scrape, "warmup_unused_bytes_total")
    return scrape["warmup_prepared_bytes_total"] == resolved + scrape["warmup_pending_bytes"]


def reads_of(place: Place) -> int:
    return sum(len(event.reads) // 4 for event in facts_of(place, ReadsSubmitted))


def pages_of(column: bytes) -> int:
    return len(column) // 4


def ends_of(place: Place) -> list[HintEnd]:
    return [event.end for event in facts_of(place, HintEnded)]


# --- A1: revised and cancelled while reads are in flight ----------------------------------------------------


def test_a_hint_is_revised_to_other_pages_while_its_reads_run(tmp_path: Path) -> None:
    with cold(tmp_path, 8) as (place, device, scraper, client):
        save(client, range(100, 103))
        device.stall()
        client.warm_prefix("r", 0, part(range(4)))
        client.warm_prefix("r", 0, part(range(2, 8)), revision=1)
        until(lambda: held(place)["reads"] == 8)
        assert scraper.scrape()["query_speculative_reserved_bytes"] == (4 + 6) * FOOTPRINT
        assert restore(client, range(100, 103), "unrelated") == 3, "answered meanwhile"
        client.cancel_hint("r", 0)
        client.cancel_hint("r", 0)
        assert forget_dram(place) == 3, "what is being read stays where it is"
        scraper.until(OPEN_HINTS, 0)
        assert scraper.scrape()["query_speculative_reserved_bytes"] == 8 * FOOTPRINT, (
            "its own reads, once each"
        )
        device.go_on()
        until(lambda: is_idle(place))
        assert restore(client, range(8), "r") == 8
        assert balanced(scraper.scrape())
        assert scraper.scrape()["warmup_restored_bytes_total"] == 8 * FOOTPRINT
    assert (ends_of(place), reads_of(place)) == ([HintEnd.REVISED, HintEnd.CANCELLED], 8)


def test_a_hint_is_withdrawn_under_a_demand_and_a_demand_over_a_hint(tmp_path: Path) -> None:
    """Two instances; the one that leaves takes nothing from the one that stays."""
    with cold(tmp_path, 12) as (place, device, scraper, client), place.client("two") as other:
        device.stall()
        client.warm_prefix("stays a while", 0, part(range(6)))
        until(lambda: held(place)["reads"] == 6)
        waiting = other.query("waits", 0, part(range(6)))
        client.cancel_hint("stays a while", 0)
        scraper.until(OPEN_HINTS, 0)
        assert other.poll(waiting.operation).status is QueryStatus.LOADING
        other.query("leaves", 0, part(range(6)))
        other.cancel(other.query("leaves", 0, part(range(6))).operation)
        device.go_on()
        until(lambda: other.poll(waiting.operation).status is not QueryStatus.LOADING)
        assert restore(other, range(6), "waits, and is restored") == 6
        other.release(other.poll(waiting.operation).lease)
        until(lambda: is_idle(place))
        device.stall()
        client.warm_prefix("goes on", 0, part(range(6, 12)))
        until(lambda: held(place)["reads"] == 6)
        other.cancel(other.query("leaves again", 0, part(range(6, 12))).operation)
        device.go_on()
        scraper.until(OPEN_HINTS, 0)
        assert scraper.scrape()["warmup_pending_bytes"] == 6 * FOOTPRINT
    assert ends_of(place) == [HintEnd.CANCELLED, HintEnd.PREPARED]
    assert reads_of(place) == 12, "each page once"


# --- Never polled -------------------------------------------------------------------------------------------


def test_hints_that_nobody_comes_back_for(tmp_path: Path) -> None:
    """Sixteen of them, then as many skips of every kind as there are; DRAM is dropped under their reads."""
    with cold(tmp_path, 64) as (place, device, scraper, client), place.client("two") as other:
        device.stall()
        for number in range(16):
            client.warm_prefix(f"forgotten {number}", 0, part(range(4 * number % 40, 4 * number % 40 + 3)))
        scraper.until("query_speculative_reserved_bytes", 48 * FOOTPRINT)
        other.warm_prefix("more than its share", 0, part(range(20)))
        other.warm_prefix("more than there is", 0, part(range(62)))
        other.warm_prefix("larger than the pool", 0, part(range(4000)))
        until(lambda: family(scraper.scrape(), "hint_skips_total") == 3)
        forget_dram(place)
        demand = other.query("foreground", 0, part(range(60, 64)))
        other.warm_prefix("beside it", 0, part(range(50, 52)))
        until(lambda: family(scraper.scrape(), "hint_skips_total") == 4)
        other.cancel(demand.operation)
        device.go_on()
        until(lambda: is_idle(place))
        found = scraper.scrape()
        assert (found["query_reserved_bytes"], found["query_speculative_reserved_bytes"]) == (0, 0)
        assert balanced(found)
        assert found["warmup_foreground_skips_total"] == 1
    assert [event.reason for event in facts_of(place, HintSkipped)] == [
        HintSkip.BYTES,
        HintSkip.OVERSIZED,
        HintSkip.OVERSIZED,
        HintSkip.FOREGROUND,
    ]


# --- A9: deaths ---------------------------------------------------------------------------------------------

SIXTEEN_OPEN = """
    for number in range(16):
        client.warm_prefix(f"hint {number}", 0, part(range(3 * number, 3 * number + 3)))
"""


def test_an_engine_is_killed_with_sixteen_hints_open(tmp_path: Path) -> None:
    with cold(tmp_path, 48) as (place, device, scraper, client):
        device.stall()
        with other_engine(place, SIXTEEN_OPEN) as engine:
            until(lambda: held(place)["hints"] == 16)
            engine.kill()
            engine.wait()
        until(lambda: held(place)["hints"] == 0)
        submitted = scraper.scrape()["query_speculative_reserved_bytes"]
        assert submitted == held(place)["reads"] * FOOTPRINT > 0, "what was submitted, and nothing else"
        client.warm_prefix("the next one", 0, part(range(45, 48)))
        until(lambda: held(place)["hints"] == 1)
        device.go_on()
        until(lambda: is_idle(place))
        assert restore(client, range(48), "what it prepared is there for others") == 48
        assert balanced(scraper.scrape())
    assert reads_of(place) == 48


def test_a_manager_is_killed_with_hints_open(tmp_path: Path) -> None:
    """Four pages are prepared and in the log, four are being read."""
    place = Place(tmp_path)
    with manager_with_device(place) as (manager, device), place.client() as client:
        save(client, range(8))
        only_on_ssd(place, 8)
        client.warm_prefix("first", 0, part(range(4)))
        until(lambda: held(place)["pending"] == 4 * FOOTPRINT)
        device.stall()
        client.warm_prefix("second", 0, part(range(8)))
        until(lambda: held(place)["reads"] == 4)
        until(lambda: len(facts_of(place, HintEnded)) == 1)  # what was prepared is in the log
        manager.kill()
        client.warm_prefix("nobody listens", 0, part(range(3)))
        device.go_on()
        with place.manager() as successor:
            until(client.tend)
            client.warm_prefix("second", 0, part(range(8)))
            until(lambda: held(place)["pending"] == 8 * FOOTPRINT)
            assert restore(client, range(8), "second") == 8
            client.close()
            successor.stop()
    adds_up(place)
    assert len(facts_of(place, IncarnationClosed)) == 2
    prepared = sum(pages_of(event.buffers) for event in facts_of(place, PagesPrepared))
    restored = sum(pages_of(event.buffers) for event in facts_of(place, PagesRestored))
    unused = [(event.cause, pages_of(event.buffers)) for event in facts_of(place, PagesUnused)]
    assert (prepared, restored, unused) == (12, 8, [(Unused.RESTART, 4)])


# --- A5: the sync of prepared pages -------------------------------------------------------------------------


def test_prepared_pages_are_credited_once_however_often_their_sync_is_sent(tmp_path: Path) -> None:
    with cold(tmp_path, 6) as (place, _device, scraper, client):
        client.warm_prefix("r", 0, part(range(6)))
        until(lambda: held(place)["pending"] == 6 * FOOTPRINT)
        answer = ask(client, range(6), "r")
        view = client.begin_restore(answer.lease)
        assert forget_dram(place) == 0
        assert scraper.scrape()["warmup_pending_bytes"] == 6 * FOOTPRINT, "a lease resolves nothing"
        connection = client._session.connection
        assert connection is not None
        connection._socket.shutdown(0)  # what it sends arrives; what it is told does not
        client.report_sync(answer.lease, SyncOutcome.SUCCEEDED, [(0, 4)], 2, 4 * PAGE_BYTES, 1)
        client.report_sync(answer.lease, SyncOutcome.SUCCEEDED, [(0, 4)], 2, 4 * PAGE_BYTES, 1)
        until(lambda: is_idle(place))
        assert len(view) == 6
        found = scraper.scrape()
        assert found["warmup_restored_bytes_total"] == 4 * FOOTPRINT
        assert found["warmup_pending_bytes"] == 2 * FOOTPRINT
        assert forget_dram(place) == 6
        assert family(scraper.scrape(), "warmup_unused_bytes_total") == 2 * FOOTPRINT


# --- Saved while it is read ---------------------------------------------------------------------------------


def test_pages_are_saved_while_a_hint_reads_them(tmp_path: Path) -> None:
    with cold(tmp_path, 6) as (place, device, scraper, client):
        device.stall()
        client.warm_prefix("r", 0, part(range(6)))
        until(lambda: held(place)["reads"] == 6)
        assert save(client, range(3)) == 3, "whole pages are sealed before the reads land"
        plan = client.begin_save(0, [key(number) for number in range(3, 6)])
        device.go_on()
        until(lambda: held(place)["reads"] == 0)
        for position, slot in plan.wanted:
            slot[:PAGE_BYTES] = content(key(3 + position))
        client.commit_save(plan)
        until(lambda: is_idle(place))
        found = scraper.scrape()
        assert (found["warmup_prepared_bytes_total"], balanced(found)) == (6 * FOOTPRINT, True)
        assert family(found, "warmup_unused_bytes_total", "replaced") == 3 * FOOTPRINT
        assert restore(client, range(6), "r") == 6
        assert scraper.scrape()["warmup_restored_bytes_total"] == 3 * FOOTPRINT


# --- B2: broken off everywhere ------------------------------------------------------------------------------

STAGES: Sequence[str] = ("sent", "in flight", "prepared", "loading", "leased", "restoring", "finished")


def _round(place: Place, client: CacheManagerClient, chance: random.Random, number: int) -> None:
    stage, request = STAGES[number % len(STAGES)], f"round {number}"
    first = chance.randrange(0, 24)
    pages = range(first, first + chance.randint(1, 8))
    client.warm_prefix(request, 0, part(pages))
    if stage == "sent" and chance.random() < 0.5:
        client.warm_prefix(request, 0, part(range(first, first + 2)), revision=1)
    if stage == "in flight":
        client.poll(client.query(f"moment {number}", 0, part(range(200, 201))).operation)
    if stage in ("prepared", "leased", "restoring", "finished"):
        until(lambda: held(place)["hints"] == 0)
    if stage in ("loading", "leased", "restoring", "finished"):
        answer = client.query(request, 0, part(pages))
        if stage == "loading":
            client.cancel(answer.operation)
            client.cancel(answer.operation)
            return
        answer = ask(client, pages, request)
        if stage == "leased" or answer.status is not QueryStatus.READY:
            client.cancel(answer.operation)
        else:
            begun = client.begin_restore(answer.lease)
            if chance.random() < 0.3:
                client.cancel(answer.operation)
            good = stage == "finished"
            outcome = SyncOutcome.SUCCEEDED if good else SyncOutcome.STOPPED
            ranges = [(0, len(begun))] if good else []
            client.report_sync(answer.lease, outcome, ranges, 2, len(begun) * PAGE_BYTES * good, 1)
    client.cancel_hint(request, 0)
    client.cancel_hint(request, 0)


@pytest.mark.parametrize("rounds", [300, pytest.param(5000, marks=pytest.mark.slow)])
def test_hints_are_broken_off_everywhere(tmp_path: Path, rounds: int) -> None:
    chance = random.Random(rounds)
    with cold(tmp_path, 32) as (place, _device, scraper, client), place.client("two") as other:
        with scraper.scraping():
            for number in range(rounds):
                _round(place, chance.choice((client, other)), chance, number)
                if number % 25 == 0:
                    forget_dram(place)
                if number % 100 == 99:
                    with other_engine(place, SIXTEEN_OPEN.replace("16", "5"), "killed"):
                        pass
                if number % 50 == 49:
                    _nothing_is_left(place, scraper, client, f"after {number}")
        assert len(scraper.scrapes) > 10 and all(balanced(scrape) for scrape in scraper.scrapes)
        assert scraper.scrape()["warmup_restored_bytes_total"] > 0
    assert set(ends_of(place)) >= {HintEnd.PREPARED, HintEnd.CANCELLED}


def _nothing_is_left(place: Place, scraper: Scraper, client: CacheManagerClient, request: str) -> None:
    """The budget is back at its start, and a hint is admitted."""
    until(lambda: is_idle(place))
    found = scraper.scrape()
    assert (found["query_reserved_bytes"], found["query_speculative_reserved_bytes"]) == (0, 0)
    forget_dram(place)
    admitted = found["hints_admitted_total"]
    client.warm_prefix(request, 0, part(range(8)))
    scraper.until("hints_admitted_total", admitted + 1)
    client.cancel_hint(request, 0)
    until(lambda: is_idle(place))
