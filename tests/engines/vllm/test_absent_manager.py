"""A manager that goes away under an engine, at the worst moments, and one that comes back."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orbitkv.adapters.switches import QUEUE_WARMUP
from tests.engines.vllm.cache import Cache, judge, new_place
from tests.engines.vllm.conftest import EngineMaker
from tests.engines.vllm.engine import Engine, assert_same, prompt, transfer_config
from tests.engines.vllm.seams import before_restores, watched_client
from tests.engines.vllm.settings import BLOCK_TOKENS
from tests.engines.waiting import until

TOKENS = 6 * BLOCK_TOKENS + 8
PAGES = 6


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


def test_a_manager_that_is_gone_at_enqueue_hurts_nobody(
    tmp_path: Path, tiny_model: Path, make_engine: EngineMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(QUEUE_WARMUP, "1")
    place = new_place(tmp_path)
    with place.manager() as manager:
        engine = make_engine(tiny_model, transfer_config(place.socket))
        (cold,) = engine.complete([prompt(40, TOKENS)])
        Cache(place, manager).settle()
        engine.forget()
        manager.kill()
        with watched_client("warm_prefix") as calls:
            name = engine.submit(prompt(40, TOKENS))
        assert len(calls.made) <= 1
        engine.step_until(lambda: engine.ended(name))
    assert_same([engine.completion(name)], [cold])


def test_without_the_switch_nothing_is_hinted(
    cache: Cache, tiny_model: Path, make_engine: EngineMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(QUEUE_WARMUP, "0")
    with watched_client("warm_prefix") as calls:
        make_engine(tiny_model, transfer_config(cache.socket)).complete([prompt(50, TOKENS)])
    assert not calls.made
