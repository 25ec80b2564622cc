"""A model with sliding-window layers beside full ones: several KV groups, all of them right or no hit.

Of a window's group only the last pages before the boundary are needed, and its blocks are reused while a
request still runs. Only bytes that stand where they belong give the cold run's tokens.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.engines.vllm.cache import Cache
from tests.engines.vllm.engine import Engine, assert_same, prompt, transfer_config
from tests.engines.vllm.seams import copies_that_break
from tests.engines.vllm.settings import BLOCK_TOKENS

TOKENS = 12 * BLOCK_TOKENS + 8
"""Four windows long."""
PAGES = 12


@pytest.fixture(scope="module")
def engine(cache: Cache, hybrid_model: Path) -> Iterator[Engine]:
    transfer = transfer_config(cache.socket, held_blocks_fraction=0.9)
    with closing(Engine(hybrid_model, transfer, num_gpu_blocks_override=256)) as engine:
        assert len(engine.scheduler.kv_cache_config.kv_cache_groups) == expected_groups()
        yield engine


def expected_groups() -> int:
    """A vLLM that cannot be told which request's load has failed would die of it with several groups; there
    the connector has it keep one, in which every page is needed."""
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1

    return 3 if hasattr(KVConnectorBase_V1, "get_transfer_results") else 1


def test_outputs_depend_on_the_pages_of_every_group(engine: Engine) -> None:
    asked = prompt(1, TOKENS)
    cold = engine.complete([asked])
    assert_same(engine.complete([asked]), cold)
    engine.scribble()
    (spoilt,) = engine.complete([asked])
    assert spoilt.cached_tokens > 0
    assert spoilt.distance(cold[0]) > 1e-2
    engine.forget()


@pytest.mark.parametrize("tier", ["dram", "ssd"])
def test_all_groups_come_back(engine: Engine, cache: Cache, tier: str) -> None:
    prompts = [prompt(10 + number + 10 * (tier == "ssd"), TOKENS + 17 * number) for number in range(3)]
    cold = engine.complete(prompts)
    pages = engine.pages()
    cache.settle()
    engine.forget()
    if tier == "ssd":
        cache.forget_dram()
    with cache.counting() as tiers:
        restored = engine.complete(prompts)
    assert tiers[tier] >= 3 * PAGES
    assert all(one.cached_tokens >= PAGES * BLOCK_TOKENS for one in restored)
    assert_same(restored, cold)
    found = engine.pages()
    common = found.keys() & pages.keys()
    assert len(common) >= 3 * PAGES
    assert {key: found[key] for key in common} == {key: pages[key] for key in common}


def test_a_longer_prompt_reuses_what_is_before_it(engine: Engine, cache: Cache) -> None:
    engine.complete([prompt(40, 6 * BLOCK_TOKENS + 1)])
    cache.settle()
    (cold,) = engine.complete([prompt(40, TOKENS)], salt="computed anew")
    engine.forget()
    (restored,) = engine.complete([prompt(40, TOKENS)])
    assert restored.cached_tokens == 6 * BLOCK_TOKENS
    assert_same([restored], [cold])


def test_a_prompt_that_ends_earlier_is_not_given_another_ones_window(engine: Engine, cache: Cache) -> None:
    """The pages that its window needs may be gone or may never have been kept: then it is a shorter hit."""
    engine.complete([prompt(50, TOKENS)])
    cache.settle()
    shorter = prompt(50, 7 * BLOCK_TOKENS + 3)
    (cold,) = engine.complete([shorter], salt="computed anew")
    engine.forget()
    (served,) = engine.complete([shorter])
    assert served.cached_tokens <= 7 * BLOCK_TOKENS
    assert_same([served], [cold])


def test_answers_that_run_out_of_their_window(engine: Engine, cache: Cache) -> None:
    asked = prompt(60, 5 * BLOCK_TOKENS + 3)
    (cold,) = engine.complete([asked], max_tokens=150, salt="computed anew")
    (first,) = engine.complete([asked], max_tokens=150)
    cache.settle()
    engine.forget()
    (again,) = engine.complete([asked], max_tokens=150)
    assert_same([first, again], [cold, cold])
    assert again.cached_tokens == 5 * BLOCK_TOKENS


def test_a_load_that_fails_is_computed(engine: Engine, cache: Cache) -> None:
    (cold,) = engine.complete([prompt(70, TOKENS)])
    cache.settle()
    engine.forget()
    with copies_that_break(2):
        (served,) = engine.complete([prompt(70, TOKENS)])
    assert served.ended == "length"
    assert_same([served], [cold])


def test_nothing_is_held_in_the_end(engine: Engine, cache: Cache) -> None:
    cache.settle()
    engine.step_until(lambda: not engine.busy and not any(engine.references()[1:]))
