"""A real manager under real load, scraped all the time: what has to add up does so in every single scrape."""

import random
import re
import time

import attrs
import pytest

from orbitkv.adapters.answers import QueryAnswer
from orbitkv.adapters.client import CacheManagerClient, QueryPart, QueryStatus
from orbitkv.events.outcomes import SyncOutcome
from tests.metrics.scraper import Scrape, Scraper, family
from tests.restart.managers import PAGE_BYTES, PAGE_TOKENS, Place, ask, key, save

PAGES = 96
"""Several times what the pool holds."""
PREFIX_PAGES = 6
ROUNDS = 50
FOOTPRINT = -(-PAGE_BYTES // 4096) * 4096
SWEEPS_S = 1.3
"""Five maintenance sweeps, and a bit."""
OPEN_HINTS = 'operations{kind="hint"}'
COUNTER = re.compile(r"^\w+?_(total|count|sum)\b")


@attrs.define
class Told:
    """What the client itself knows of it."""

    saved_pages: int = 0
    asked_pages: int = 0
    hints: int = 0
    synced_pages: int = 0
    syncs: int = 0
    failed: int = 0


@attrs.define(eq=False)
class Load:
    client: CacheManagerClient
    scraper: Scraper
    moments: random.Random
    told: Told = attrs.Factory(Told)

    def run(self) -> None:
        for number in range(0, PAGES, PREFIX_PAGES):
            self.told.saved_pages += save(self.client, range(number, number + PREFIX_PAGES))
            # A page that is being written cannot be pushed out: the next ones would find no room.
            self.scraper.until("ssd_write_queue_pages", 0)
            self.scraper.until('ssd_inflight_bytes{lane="background"}', 0)
        for number in range(ROUNDS):
            self._request(f"request {number}")
        self._ask("never saved", range(PAGES, PAGES + 2))
        self._prepare_three_times()

    def _prepare_three_times(self) -> None:
        """Pages that others push out, pages that an operator throws out, and pages that are restored."""
        self._prepare("pushed out")
        for first in range(PREFIX_PAGES, PAGES, PREFIX_PAGES):
            self.client.release(self._ask(f"pushing {first}", range(first, first + PREFIX_PAGES)).lease)
        self._prepare("thrown out")
        self._prepare("restored")
        self._restore(self._ask("restored", range(PREFIX_PAGES)), SyncOutcome.SUCCEEDED)

    def _prepare(self, name: str) -> None:
        self.scraper.clean_up()
        self._hint(name, range(PREFIX_PAGES))
        self.scraper.until(OPEN_HINTS, 0)
        self.client.cancel_hint(name, 0)

    def _request(self, name: str) -> None:
        first = self.moments.randrange(0, PAGES + PREFIX_PAGES, PREFIX_PAGES)
        pages = range(first, first + self.moments.randint(1, PREFIX_PAGES))
        hinted, fate = self.moments.random() < 0.7, self.moments.random()
        if hinted:
            self._hint(name, pages)
            if self.moments.random() < 0.5:
                self.scraper.until(OPEN_HINTS, 0)
        if hinted and fate < 0.4:
            self.client.cancel_hint(name, 0)
            return
        answer = self._ask(name, pages)
        if answer.status is QueryStatus.READY and fate > 0.9:
            self.client.release(answer.lease)
        elif answer.status is QueryStatus.READY:
            self._restore(answer, SyncOutcome.STOPPED if fate > 0.8 else SyncOutcome.SUCCEEDED)

    def _hint(self, name: str, pages: range) -> None:
        part = QueryPart(0, PAGE_TOKENS, 0, [key(number) for number in pages])
        assert isinstance(self.client.warm_prefix(name, 0, [part]), int)
        self.told.hints += 1

    def _ask(self, name: str, pages: range) -> QueryAnswer:
        self.told.asked_pages += len(pages)
        return ask(self.client, pages, name)

    def _restore(self, answer: QueryAnswer, outcome: SyncOutcome) -> None:
        hits = len(self.client.begin_restore(answer.lease))
        # While a rank copies there is no room for speculation.
        self._hint(f"beside {answer.lease.hex()}", range(PREFIX_PAGES))
        self.client.cancel_hint(f"beside {answer.lease.hex()}", 0)
        copied = hits if outcome is SyncOutcome.SUCCEEDED else 0
        ranges = [(0, copied)] if copied else []
        self.client.report_sync(answer.lease, outcome, ranges, 2, copied * PAGE_BYTES, 1000)
        self.told.syncs += outcome is SyncOutcome.SUCCEEDED
        self.told.failed += outcome is SyncOutcome.STOPPED
        self.told.synced_pages += copied


@attrs.frozen
class Outcome:
    scrapes: list[Scrape]
    told: Told
    idle: tuple[Scrape, Scrape]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    place = Place(tmp_path_factory.mktemp("scraped"))
    settings = {"pool-bytes": "4MiB", "superblock-bytes": "2MiB", "http-listen": "127.0.0.1:0"}
    with place.manager(**settings) as manager, place.client() as client:
        url = re.search(r"http://[^/]+", manager.lines[1])
        assert url is not None
        scraper = Scraper(url[0])
        load = Load(client, scraper, random.Random(4))
        with scraper.scraping():
            load.run()
        idle = _idle(scraper)
        manager.stop()
    assert "verify: ok" in place.verify()
    return Outcome([*scraper.scrapes, *idle], load.told, idle)


def _idle(scraper: Scraper) -> tuple[Scrape, Scrape]:
    for sample in (OPEN_HINTS, "query_reserved_bytes", "log_lag_bytes"):
        scraper.until(sample, 0)
    before = scraper.scrape()
    time.sleep(SWEEPS_S)
    return before, scraper.scrape()


def test_the_load_was_one(outcome: Outcome) -> None:
    """Otherwise the sums below would hold for nothing."""
    last = outcome.idle[1]
    assert len(outcome.scrapes) > 20
    for sample in (
        "warmup_prepared_bytes_total",
        "warmup_restored_bytes_total",
        'warmup_unused_bytes_total{cause="evicted"}',
        'warmup_unused_bytes_total{cause="cleanup"}',
        'warmup_wait_byte_seconds_total{outcome="restored"}',
        'warmup_wait_byte_seconds_total{outcome="unused"}',
        "hints_admitted_total",
        "hints_not_needed_total",
        "warmup_foreground_skips_total",
        'cache_tier_page_requests_total{kind="demand",tier="dram"}',
        'cache_tier_page_requests_total{kind="demand",tier="ssd"}',
        'cache_tier_page_requests_total{kind="demand",tier="miss"}',
        'cache_tier_page_requests_total{kind="warm",tier="ssd"}',
        'cache_residence_seconds_sum{reason="capacity"}',
        'cache_residence_seconds_sum{reason="cleanup"}',
        "save_seconds_sum",
        "load_failures_total",
    ):
        assert last[sample] > 0, sample
    for sample in ("warmup_pending_bytes", "query_reserved_bytes"):
        assert max(scrape[sample] for scrape in outcome.scrapes) > 0, sample


def test_what_was_prepared_is_restored_unused_or_pending(outcome: Outcome) -> None:
    for scrape in outcome.scrapes:
        ended = scrape["warmup_restored_bytes_total"] + family(scrape, "warmup_unused_bytes_total")
        assert scrape["warmup_prepared_bytes_total"] == ended + scrape["warmup_pending_bytes"]


@pytest.mark.parametrize("kind", ["demand", "warm"])
def test_every_asked_page_has_one_tier(outcome: Outcome, kind: str) -> None:
    for scrape in outcome.scrapes:
        tiers = family(scrape, "cache_tier_page_requests_total", f'kind="{kind}"')
        assert tiers == scrape[f'cache_asked_pages_total{{kind="{kind}"}}']


def test_the_reserved_total_is_the_sum_of_its_phases(outcome: Outcome) -> None:
    for scrape in outcome.scrapes:
        assert scrape["query_reserved_bytes"] == family(scrape, "query_reserved_bytes_by_phase")
        assert scrape["query_reserved_bytes"] <= scrape["query_budget_bytes"]
        speculative = scrape["query_speculative_reserved_bytes"]
        assert speculative == family(scrape, "query_reserved_bytes_by_phase", "warming")
        assert speculative <= scrape["query_speculative_budget_bytes"]


def test_hints_and_evictions_add_up(outcome: Outcome) -> None:
    for scrape in outcome.scrapes:
        open_hints = scrape[OPEN_HINTS]
        assert scrape["hints_admitted_total"] == family(scrape, "hint_ends_total") + open_hints
        for reason in ("capacity", "cleanup", "superblock"):
            evicted = family(scrape, "cache_page_evictions_total", f'reason="{reason}"')
            assert evicted == scrape[f'cache_residence_seconds_count{{reason="{reason}"}}']
        evicted = family(scrape, "cache_page_evictions_total")
        resident = family(scrape, "cache_resident_pages")
        assert scrape["cache_page_insertions_total"] == evicted + resident
        assert scrape["cache_resident_bytes"] == resident * FOOTPRINT
        assert scrape["cache_resident_bytes"] <= scrape["pool_used_bytes"] <= scrape["pool_capacity_bytes"]
        skipped = scrape['hint_skips_total{reason="foreground"}']
        assert scrape["warmup_foreground_skips_total"] == skipped


def test_no_counter_ever_falls(outcome: Outcome) -> None:
    for before, after in zip(outcome.scrapes, outcome.scrapes[1:], strict=False):
        assert before.keys() == after.keys()
        fallen = {name for name in before if COUNTER.match(name) and after[name] < before[name]}
        assert not fallen


def test_an_idle_manager_changes_nothing(outcome: Outcome) -> None:
    before, after = outcome.idle
    assert before == after


def test_it_is_what_the_client_saw(outcome: Outcome) -> None:
    last, told = outcome.idle[1], outcome.told
    assert last['cache_asked_pages_total{kind="demand"}'] == told.asked_pages
    settled = last["hints_admitted_total"] + last["hints_not_needed_total"] + family(last, "hint_skips_total")
    assert settled == told.hints
    assert last["load_bytes_total"] == told.synced_pages * PAGE_BYTES
    assert (last["load_seconds_count"], last["load_failures_total"]) == (told.syncs, told.failed)
    assert last["load_seconds_sum"] == pytest.approx(told.syncs / 1000)
    assert last["save_seconds_count"] == told.saved_pages
