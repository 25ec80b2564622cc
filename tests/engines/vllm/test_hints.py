"""Hints of a real engine: sent at enqueue, never polled, exact, and harmless when they cannot be sent."""

from collections.abc import Iterator

import pytest

from orbitkv.adapters.switches import QUEUE_WARMUP
from tests.engines.vllm.cache import Cache
from tests.engines.vllm.engine import Engine, assert_same, prompt
from tests.engines.vllm.seams import watched_client
from tests.engines.vllm.settings import BLOCK_TOKENS
from tests.engines.waiting import until
from tests.metrics.scraper import family

TOKENS = 6 * BLOCK_TOKENS + 8
PAGES = 6


@pytest.fixture(scope="module", autouse=True)
def hints() -> Iterator[bool]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(QUEUE_WARMUP, "1")
        yield True


def only_on_ssd(engine: Engine, cache: Cache, *numbers: int) -> None:
    engine.complete([prompt(number, TOKENS) for number in numbers])
    cache.settle()
    engine.forget()
    assert cache.forget_dram() >= PAGES * len(numbers)


def test_the_warm_gate(engine: Engine, cache: Cache) -> None:
    """A hint brings its pages in while the request waits; the query then finds all of them in DRAM."""
    (cold,) = engine.complete([prompt(1, TOKENS)])
    pages = engine.pages()
    only_on_ssd(engine, cache)
    before = cache.scrape()
    with watched_client("warm_prefix", "query", "poll", "begin_restore") as calls:
        name = engine.submit(prompt(1, TOKENS))
        assert len(calls.of("warm_prefix")) == 1
        until(lambda: cache.pages_in_dram() == PAGES and not cache.scrape()["query_reserved_bytes"])
        warmed = cache.scrape()
        prepared = warmed["warmup_prepared_bytes_total"] - before["warmup_prepared_bytes_total"]
        assert prepared > 0
        assert warmed["warmup_pending_bytes"] - before["warmup_pending_bytes"] == prepared
        assert warmed["query_speculative_reserved_bytes"] == 0
        assert {method for method, _ in calls.made} == {"warm_prefix"}, "nobody asked how the hint does"
        with cache.counting() as tiers:
            engine.step_until(lambda: engine.ended(name))
        assert len(calls.of("query")) == len(calls.of("begin_restore")) == 1
        assert not calls.of("poll"), "the answer was there at once"
    assert tiers == {"dram": PAGES, "ssd": 0, "miss": 0}
    restored = engine.completion(name)
    assert restored.cached_tokens == PAGES * BLOCK_TOKENS
    assert_same([restored], [cold])
    found = engine.pages()
    assert len(found) >= PAGES
    assert {key: pages[key] for key in found} == found
    after = cache.scrape()
    assert after["warmup_restored_bytes_total"] - before["warmup_restored_bytes_total"] == prepared
    assert after["warmup_pending_bytes"] == before["warmup_pending_bytes"]


def test_a_hint_names_what_the_query_will_ask_for(engine: Engine, cache: Cache) -> None:
    """Blocks that GPU memory has are not hinted, and looking at them pins and moves none."""
    only_on_ssd(engine, cache, 10)
    engine.complete([prompt(10, 2 * BLOCK_TOKENS + 1)])
    cache.settle()
    held, order = engine.references(), engine.eviction_order()
    with watched_client("warm_prefix", "query") as calls:
        name = engine.submit(prompt(10, TOKENS))
        assert engine.references() == held
        assert engine.eviction_order() == order
        engine.step_until(lambda: engine.ended(name))
    ((request, attempt, hinted),) = [call[:3] for call in calls.of("warm_prefix")]
    ((asking, asked_attempt, asked),) = [call[:3] for call in calls.of("query")]
    assert (request, attempt) == (asking, asked_attempt)
    assert [(part.group, part.keys) for part in hinted] == [(part.group, part.keys) for part in asked]
    assert sum(len(part.keys) for part in hinted) == PAGES - 2


def test_nothing_is_hinted_that_gpu_memory_has(engine: Engine, cache: Cache) -> None:
    whole = 4 * BLOCK_TOKENS
    engine.complete([prompt(20, whole)])
    cache.settle()
    with watched_client("warm_prefix") as calls:
        engine.complete([prompt(20, whole)])
    assert not calls.made


def test_a_hint_ends_with_its_requests_place_in_the_queue(engine: Engine, cache: Cache) -> None:
    """Aborted before it was scheduled: the hint is withdrawn, and what it brought in stays unused."""
    only_on_ssd(engine, cache, 30)
    before = cache.scrape()
    with watched_client("warm_prefix", "cancel_hint") as calls:
        name = engine.submit(prompt(30, TOKENS))
        until(lambda: cache.pages_in_dram() == PAGES)
        engine.abort(name)
        assert len(calls.of("warm_prefix")) == len(calls.of("cancel_hint")) == 1
    cache.settle()
    cache.scraper.clean_up()
    after = cache.scrape()
    prepared = after["warmup_prepared_bytes_total"] - before["warmup_prepared_bytes_total"]
    assert prepared > 0
    unused = "warmup_unused_bytes_total"
    assert family(after, unused) - family(before, unused) == prepared
    assert after["warmup_pending_bytes"] == before["warmup_pending_bytes"]
