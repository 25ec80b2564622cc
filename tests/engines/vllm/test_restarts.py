"""Engines and managers that come and go: what was saved outlives both, and other engines get none of it."""

from contextlib import closing
from pathlib import Path

import pytest

from benches.single_node.random_model import TINY, make_model
from tests.engines.vllm.cache import Cache, judge, new_place, running_cache
from tests.engines.vllm.conftest import EngineMaker
from tests.engines.vllm.engine import Engine, assert_same, prompt, transfer_config
from tests.engines.vllm.settings import BLOCK_TOKENS

TOKENS = 6 * BLOCK_TOKENS + 8
PAGES = 6
PROMPTS = [prompt(number, TOKENS) for number in range(3)]


@pytest.mark.parametrize("tier", ["dram", "ssd"])
def test_another_engine_of_the_same_model_reuses_its_pages(
    cache: Cache, tiny_model: Path, make_engine: EngineMaker, tier: str
) -> None:
    """The first one's memory is gone; the second one's layout is the same, whatever its size."""
    prompts = [prompt(10 + number + 10 * (tier == "ssd"), TOKENS) for number in range(3)]
    first = make_engine(tiny_model, transfer_config(cache.socket))
    cold = first.complete(prompts)
    pages = first.pages()
    cache.settle()
    first.close()
    if tier == "ssd":
        assert cache.forget_dram() >= 3 * PAGES
    second = make_engine(tiny_model, transfer_config(cache.socket), num_gpu_blocks_override=96)
    second.scribble()
    with cache.counting() as tiers:
        restored = second.complete(prompts)
    assert tiers[tier] == 3 * PAGES
    assert_same(restored, cold)
    found = second.pages()
    assert len(found) >= 3 * PAGES
    assert {key: pages[key] for key in found} == found


def test_a_manager_that_was_restarted_in_order_serves_from_its_ssd(tmp_path: Path, tiny_model: Path) -> None:
    place = new_place(tmp_path)
    with place.manager() as manager, closing(Engine(tiny_model, transfer_config(place.socket))) as engine:
        cold = engine.complete(PROMPTS)
        pages = engine.pages()
        Cache(place, manager).settle()
        engine.close()
        manager.stop()
    with place.manager() as manager:
        assert manager.recovered_pages >= 3 * PAGES
        cache = Cache(place, manager)
        with closing(Engine(tiny_model, transfer_config(place.socket))) as engine:
            engine.scribble()
            with cache.counting() as tiers:
                restored = engine.complete(PROMPTS)
            assert tiers["ssd"] == 3 * PAGES
            assert_same(restored, cold)
            found = engine.pages()
            assert {key: pages[key] for key in found} == found
        manager.stop()
    judge(place.log)


@pytest.mark.parametrize(
    "changed",
    [
        {"dtype": "bfloat16"},
        {"block_size": 64},
        {"prefix_caching_hash_algo": "sha256_cbor"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_an_engine_whose_bytes_would_differ_gets_none(
    tmp_path: Path, tiny_model: Path, make_engine: EngineMaker, changed: dict[str, object]
) -> None:
    with running_cache(tmp_path) as cache:
        first = make_engine(tiny_model, transfer_config(cache.socket))
        first.complete(PROMPTS)
        cache.settle()
        first.close()
        other = make_engine(tiny_model, transfer_config(cache.socket), **changed)
        with cache.counting() as tiers:
            served = other.complete(PROMPTS)
        assert tiers["dram"] == tiers["ssd"] == 0
        assert tiers["miss"] > 0
        assert [one.cached_tokens for one in served] == [0] * 3
        cache.settle()
        other.close()


def test_other_weights_under_the_same_name_get_none(tmp_path: Path, make_engine: EngineMaker) -> None:
    """A model's folder whose weights were replaced: same config, same path."""
    with running_cache(tmp_path / "cache") as cache:
        model = make_model(TINY, tmp_path / "models", seed=1)
        first = make_engine(model, transfer_config(cache.socket))
        cold = first.complete(PROMPTS)
        cache.settle()
        first.close()
        others = make_model(TINY, tmp_path / "models", seed=2)
        (others / "model.safetensors").replace(model / "model.safetensors")
        second = make_engine(model, transfer_config(cache.socket))
        with cache.counting() as tiers:
            served = second.complete(PROMPTS)
        assert tiers["dram"] == tiers["ssd"] == 0
        assert [one.tokens for one in served] != [one.tokens for one in cold]
        cache.settle()
        second.close()
