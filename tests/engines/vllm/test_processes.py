"""Engines whose scheduler and ranks are processes of their own: two on one manager, one with two ranks."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.engines.vllm.cache import Cache, running_cache
from tests.engines.vllm.engine import Engine, assert_same, prompt, transfer_config
from tests.engines.vllm.settings import BLOCK_TOKENS

TOKENS = 6 * BLOCK_TOKENS + 8
PAGES = 6
PROMPTS = [prompt(number, TOKENS) for number in range(3)]


@pytest.fixture(autouse=True)
def in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "spawn")


def test_two_engines_share_one_manager(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One within this process, one outside; what either computes the other restores, while both live."""
    with (
        running_cache(tmp_path) as cache,
        closing(Engine(tiny_model, transfer_config(cache.socket))) as outside,
    ):
        monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        with closing(Engine(tiny_model, transfer_config(cache.socket))) as inside:
            assert len(cache.place.status()["instances"]) == 2
            cold = inside.complete(PROMPTS)
            pages = inside.pages()
            cache.settle()
            with cache.counting() as tiers:
                assert_same(outside.complete(PROMPTS), cold)
            assert tiers["dram"] == 3 * PAGES
            others = [prompt(20 + number, TOKENS) for number in range(3)]
            computed = outside.complete(others)
            cache.settle()
            inside.forget()
            with cache.counting() as tiers:
                restored = inside.complete([*PROMPTS, *others])
            assert_same(restored, [*cold, *computed])
            assert tiers == {"dram": 6 * PAGES, "ssd": 0, "miss": 0}
            found = inside.pages()
            assert {key: found[key] for key in pages} == pages
            cache.settle()


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["dram", "ssd"])
def test_two_tensor_parallel_ranks_restore_what_two_saved(
    tp_engine: Engine, cache: Cache, tier: str
) -> None:
    prompts = [prompt(40 + number + 10 * (tier == "ssd"), TOKENS) for number in range(3)]
    cold = tp_engine.complete(prompts)
    cache.settle()
    tp_engine.forget_prefixes()
    if tier == "ssd":
        assert cache.forget_dram() >= 3 * PAGES
    with cache.counting() as tiers:
        restored = tp_engine.complete(prompts)
    assert tiers[tier] == 3 * PAGES
    assert [one.cached_tokens for one in restored] == [PAGES * BLOCK_TOKENS] * 3
    assert_same(restored, cold)


@pytest.fixture(scope="module")
def tp_engine(cache: Cache, tiny_model: Path) -> Iterator[Engine]:
    two: dict[str, Any] = {"tensor_parallel_size": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
        patch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")
        with closing(Engine(tiny_model, transfer_config(cache.socket), **two)) as engine:
            (instance,) = cache.place.status()["instances"]
            assert instance["ranks"] == [-1, 0, 1], "the scheduler, and two ranks"
            assert instance["sealed"]
            yield engine
