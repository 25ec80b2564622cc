"""A restore that cannot be finished is a miss: the prompt is computed, once, and the answer is right."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.engines.vllm.cache import Cache, judge, new_place
from tests.engines.vllm.engine import Engine, assert_same, prompt, transfer_config
from tests.engines.vllm.seams import before_restores, copies_that_break, watched_client
from tests.engines.vllm.settings import BLOCK_TOKENS
from tests.engines.waiting import until

TOKENS = 6 * BLOCK_TOKENS + 8
PAGES = 6


@pytest.mark.parametrize("copied_blocks", [0, 3])
def test_a_copy_that_breaks_is_computed_instead(engine: Engine, cache: Cache, copied_blocks: int) -> None:
    asked = prompt(1 + copied_blocks, TOKENS)
    (cold,) = engine.complete([asked])
    cache.settle()
    engine.forget()
    before = cache.scrape()
    with copies_that_break(copied_blocks), watched_client("query", "begin_restore") as calls:
        (served,) = engine.complete([asked])
        assert len(calls.of("begin_restore")) == 1, "what failed is not tried again"
    assert served.ended == "length"
    assert_same([served], [cold])
    cache.settle()
    assert cache.scrape()["load_failures_total"] - before["load_failures_total"] == 1
    # Its pages are computed anew by now, and found again.
    engine.forget()
    with cache.counting() as tiers:
        (again,) = engine.complete([asked])
    assert tiers["dram"] == PAGES
    assert again.cached_tokens == PAGES * BLOCK_TOKENS
    assert_same([again], [cold])


def test_other_requests_of_the_batch_do_not_notice(engine: Engine, cache: Cache) -> None:
    prompts = [prompt(10 + number, TOKENS) for number in range(4)]
    cold = engine.complete(prompts)
    cache.settle()
    engine.forget()
    engine.complete(prompts[2:])  # these two stay in GPU memory
    cache.settle()
    with copies_that_break(1):
        served = engine.complete(prompts)
    assert_same(served, cold)
    assert [one.cached_tokens for one in served[2:]] == [PAGES * BLOCK_TOKENS] * 2


@pytest.fixture
def doomed(tmp_path: Path, tiny_model: Path) -> Iterator[tuple[Engine, Cache]]:
    """A manager that a test may kill; its log is judged after a successor has closed it."""
    place = new_place(tmp_path)
    with place.manager() as manager:
        cache = Cache(place, manager)
        with closing(Engine(tiny_model, transfer_config(place.socket))) as engine:
            yield engine, cache
    with place.manager() as successor:
        successor.stop()
    judge(place.log)


def test_a_manager_that_dies_between_answer_and_restore(doomed: tuple[Engine, Cache]) -> None:
    engine, cache = doomed
    (cold,) = engine.complete([prompt(20, TOKENS)])
    cache.settle()
    engine.forget()
    with before_restores(cache.manager.kill):
        (served,) = engine.complete([prompt(20, TOKENS)])
    assert served.ended == "length"
    assert_same([served], [cold])
    (other,) = engine.complete([prompt(21, TOKENS)])
    assert other.ended == "length", "the engine serves without a cache"


def test_a_manager_that_comes_back_is_used_again(doomed: tuple[Engine, Cache]) -> None:
    """Same socket, same SSD, a new incarnation; the engine was not restarted."""
    engine, cache = doomed
    (cold,) = engine.complete([prompt(30, TOKENS)])
    cache.settle()
    engine.forget()
    cache.manager.kill()
    engine.complete([prompt(31, TOKENS)])
    engine.forget()
    with cache.place.manager() as successor:
        revived = Cache(cache.place, successor)
        until(lambda: any(one["sealed"] for one in revived.place.status()["instances"]))
        served = []

        def hit() -> bool:
            engine.forget()
            with revived.counting() as tiers:
                served.extend(engine.complete([prompt(30, TOKENS)]))
            return tiers["ssd"] + tiers["dram"] >= PAGES

        until(hit)
        assert_same(served, [cold] * len(served))
        revived.settle()
        successor.stop()
