"""GPU memory too small for what is asked: chunks, evictions and preemptions change no token."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.engines.vllm.cache import Cache
from tests.engines.vllm.engine import Engine, assert_same, prompt, transfer_config
from tests.engines.vllm.settings import BLOCK_TOKENS

TOKENS = 6 * BLOCK_TOKENS + 8
PAGES = 6
SMALL: dict[str, Any] = {"num_gpu_blocks_override": 24, "max_model_len": 512, "max_num_seqs": 4}
CHUNKED: dict[str, Any] = {"max_num_batched_tokens": 64, "enable_chunked_prefill": True}


@pytest.fixture(scope="module")
def engine(cache: Cache, tiny_model: Path) -> Iterator[Engine]:
    """23 blocks of memory, in steps of two."""
    transfer = transfer_config(cache.socket, held_blocks_fraction=0.9)
    with closing(Engine(tiny_model, transfer, **SMALL, **CHUNKED)) as engine:
        yield engine


def test_a_prompt_in_chunks_is_saved_and_restored(engine: Engine, cache: Cache) -> None:
    (cold,) = engine.complete([prompt(1, TOKENS)])
    pages = engine.pages()
    cache.settle()
    engine.forget()
    (restored,) = engine.complete([prompt(1, TOKENS)])
    assert restored.cached_tokens == PAGES * BLOCK_TOKENS
    assert_same([restored], [cold])
    found = engine.pages()
    assert {key: pages[key] for key in found} == found


def test_what_the_device_evicted_comes_back(engine: Engine, cache: Cache) -> None:
    """Eight prompts of six pages in 23 blocks: each pushes others out, twice around."""
    prompts = [prompt(10 + number, TOKENS) for number in range(8)]
    cold = []
    for one in prompts:
        cold += engine.complete([one])
        cache.settle()
    with cache.counting() as tiers:
        again = [engine.complete([one])[0] for one in prompts]
    assert_same(again, cold)
    assert tiers["miss"] == 0
    assert tiers["dram"] + tiers["ssd"] >= 4 * PAGES
    assert all(one.cached_tokens == PAGES * BLOCK_TOKENS for one in again)


def test_a_preempted_request_goes_on_as_if_nothing_had_happened(engine: Engine, cache: Cache) -> None:
    """Three growing answers need more than there is: one is thrown out, and comes back from the cache."""
    prompts = [prompt(30 + number, 5 * BLOCK_TOKENS + 4) for number in range(3)]
    alone = [engine.complete([one], max_tokens=120, salt="alone")[0] for one in prompts]
    cache.settle()
    preempted: list[str] = []
    names = [engine.submit(one, max_tokens=120) for one in prompts]

    def step() -> bool:
        engine.step()
        preempted.extend(request.request_id for request in engine.preempted_requests())
        return all(engine.ended(name) for name in names)

    engine.step_until(step)
    assert preempted, "nothing was preempted: the test tests nothing"
    assert [engine.completion(name).tokens for name in names] == [one.tokens for one in alone]
    cache.settle()
    engine.step_until(lambda: not engine.busy and not any(engine.references()[1:]))


def test_many_at_once(engine: Engine, cache: Cache) -> None:
    """More than fit, some known and some not, in one go."""
    prompts = [prompt(50 + number, 3 * BLOCK_TOKENS + number) for number in range(12)]
    alone = [engine.complete([one], salt="alone")[0] for one in prompts]
    engine.complete(prompts[::2])
    cache.settle()
    engine.forget()
    together = engine.complete(prompts)
    assert [one.tokens for one in together] == [one.tokens for one in alone]
