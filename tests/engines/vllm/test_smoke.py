"""The least that every supported vLLM has to pass, in one engine: saved, restored from both tiers, hinted."""

from pathlib import Path

import pytest

from orbitkv.adapters.switches import QUEUE_WARMUP
from tests.engines.vllm.cache import Cache
from tests.engines.vllm.conftest import EngineMaker
from tests.engines.vllm.engine import Completion, assert_same, prompt, transfer_config
from tests.engines.vllm.seams import copies_that_break
from tests.engines.vllm.settings import BLOCK_TOKENS
from tests.engines.waiting import until

TOKENS = 6 * BLOCK_TOKENS + 8
PAGES = 6


def test_one_engine_through_every_place_that_a_page_can_be_in(
    tiny_model: Path, cache: Cache, make_engine: EngineMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(QUEUE_WARMUP, "1")
    engine = make_engine(tiny_model, transfer_config(cache.socket))
    prompts = [prompt(number, TOKENS) for number in range(3)]
    cold = engine.complete(prompts)
    hit = engine.complete(prompts)
    assert_same(hit, cold)
    pages = engine.pages()

    def check(tier: str, served: list[Completion], tiers: dict[str, int]) -> None:
        assert tiers[tier] == 3 * PAGES, (tier, tiers)
        assert [one.cached_tokens for one in served] == [PAGES * BLOCK_TOKENS] * 3
        assert_same(served, cold)
        found = engine.pages()
        assert len(found) >= 3 * PAGES
        assert {key: pages[key] for key in found} == found
        cache.settle()
        engine.forget()

    cache.settle()
    engine.forget()
    with cache.counting() as tiers:
        served = engine.complete(prompts)
    check("dram", served, tiers)

    monkeypatch.setenv(QUEUE_WARMUP, "0")
    engine.close()
    engine = make_engine(tiny_model, transfer_config(cache.socket))
    assert cache.forget_dram() >= 3 * PAGES
    with cache.counting() as tiers:
        served = engine.complete(prompts)
    check("ssd", served, tiers)

    monkeypatch.setenv(QUEUE_WARMUP, "1")
    engine.close()
    engine = make_engine(tiny_model, transfer_config(cache.socket))
    assert cache.forget_dram() >= 3 * PAGES
    names = [engine.submit(one) for one in prompts]
    until(lambda: cache.pages_in_dram() >= 3 * PAGES and not cache.scrape()["query_reserved_bytes"])
    with cache.counting() as tiers:
        engine.step_until(lambda: all(engine.ended(name) for name in names))
    check("dram", [engine.completion(name) for name in names], tiers)
    assert cache.scrape()["warmup_restored_bytes_total"] > 0

    with copies_that_break(1):
        assert_same(engine.complete(prompts[:1]), cold[:1])
    aborted = engine.submit(prompts[1])
    engine.step()
    engine.abort(aborted)
    engine.step_until(lambda: not engine.busy and not any(engine.references()[1:]))
    cache.settle()
