"""A restore that cannot be finished is a miss: the prompt is computed, once, and the answer is right."""

import pytest

from tests.engines.vllm.cache import Cache
from tests.engines.vllm.engine import Engine, assert_same, prompt
from tests.engines.vllm.seams import copies_that_break, watched_client
from tests.engines.vllm.settings import BLOCK_TOKENS

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
