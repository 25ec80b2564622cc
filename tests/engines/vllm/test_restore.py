"""What was computed once comes back from the manager: the same bytes, the same tokens, from every tier."""

import pytest

from tests.engines.vllm.cache import Cache
from tests.engines.vllm.engine import Engine, assert_same, prompt
from tests.engines.vllm.settings import BLOCK_TOKENS

TOKENS = 200
PAGES = TOKENS // BLOCK_TOKENS


def test_a_miss_is_computed_and_saved(engine: Engine, cache: Cache) -> None:
    with cache.counting() as tiers:
        (cold,) = engine.complete([prompt(10, TOKENS)])
    assert cold.cached_tokens == 0
    assert (tiers["dram"], tiers["ssd"]) == (0, 0)
    assert tiers["miss"] >= PAGES
    engine.step_until(lambda: cache.pages_in_dram() >= PAGES)


@pytest.mark.parametrize("tier", ["dram", "ssd"])
def test_a_forgotten_prefix_is_restored_byte_for_byte(engine: Engine, cache: Cache, tier: str) -> None:
    prompts = [prompt(20 + (tier == "ssd") * 10 + number, TOKENS) for number in range(3)]
    cold = engine.complete(prompts)
    hit = engine.complete(prompts)
    pages = engine.pages()
    cache.settle()
    engine.forget()
    if tier == "ssd":
        assert cache.forget_dram() >= 3 * PAGES
    with cache.counting() as tiers:
        restored = engine.complete(prompts)
    assert tiers[tier] >= 3 * PAGES
    assert [one.cached_tokens for one in restored] == [PAGES * BLOCK_TOKENS] * 3
    assert_same(restored, cold)
    assert_same(restored, hit)
    found = engine.pages()
    assert len(found) >= 3 * PAGES
    assert {key: pages[key] for key in found} == found


def test_a_longer_prompt_restores_the_part_that_is_known(engine: Engine, cache: Cache) -> None:
    engine.complete([prompt(40, 4 * BLOCK_TOKENS + 5)])
    cache.settle()
    (cold,) = engine.complete([prompt(40, 300)])
    engine.forget()
    with cache.counting() as tiers:
        (restored,) = engine.complete([prompt(40, 300)])
    assert restored.cached_tokens == 9 * BLOCK_TOKENS
    assert tiers["dram"] >= 9
    assert_same([restored], [cold])


def test_only_what_the_device_misses_is_asked_for(engine: Engine, cache: Cache) -> None:
    """The device has the first pages, the manager has them all."""
    (cold,) = engine.complete([prompt(50, 300)])
    cache.settle()
    engine.forget()
    engine.complete([prompt(50, 3 * BLOCK_TOKENS + 1)])
    cache.settle()
    with cache.counting() as tiers:
        (restored,) = engine.complete([prompt(50, 300)])
    assert restored.cached_tokens == 9 * BLOCK_TOKENS
    assert tiers["dram"] == 6
    assert tiers["miss"] == 0
    assert_same([restored], [cold])


@pytest.mark.parametrize("tokens", [4 * BLOCK_TOKENS, 4 * BLOCK_TOKENS + 1])
def test_a_whole_prompt_may_be_restored_and_its_last_token_is_computed(
    engine: Engine, cache: Cache, tokens: int
) -> None:
    (cold,) = engine.complete([prompt(60 + tokens, tokens)])
    cache.settle()
    engine.forget()
    (restored,) = engine.complete([prompt(60 + tokens, tokens)])
    assert BLOCK_TOKENS * 3 <= restored.cached_tokens <= BLOCK_TOKENS * 4
    assert_same([restored], [cold])


def test_a_prompt_shorter_than_a_page_asks_nothing(engine: Engine, cache: Cache) -> None:
    with cache.counting() as tiers:
        (served,) = engine.complete([prompt(70, BLOCK_TOKENS - 1)], max_tokens=1)
    assert served.cached_tokens == 0
    assert set(tiers.values()) == {0}


def test_salted_prompts_share_within_their_salt_only(engine: Engine, cache: Cache) -> None:
    (cold,) = engine.complete([prompt(80, TOKENS)], salt="mine")
    cache.settle()
    engine.forget()
    for salt, shared in (("yours", 0), (None, 0), ("mine", PAGES)):
        with cache.counting() as tiers:
            (served,) = engine.complete([prompt(80, TOKENS)], salt=salt)
        assert served.cached_tokens == shared * BLOCK_TOKENS, salt
        assert tiers["dram"] == shared
        assert_same([served], [cold])
        cache.settle()
        engine.forget()


def test_a_request_that_must_not_read_the_cache_reads_none(engine: Engine, cache: Cache) -> None:
    """Log probabilities of the prompt's own tokens need every one of them computed."""
    (cold,) = engine.complete([prompt(90, TOKENS)])
    cache.settle()
    engine.forget()
    with cache.counting() as tiers:
        (served,) = engine.complete([prompt(90, TOKENS)], prompt_logprobs=0)
    assert served.cached_tokens == 0
    assert tiers["dram"] == tiers["ssd"] == 0
    assert_same([served], [cold])


def test_generated_tokens_are_saved_too(engine: Engine, cache: Cache) -> None:
    """A conversation's next turn begins with the answer to the one before."""
    asked = prompt(95, 60)
    (answer,) = engine.complete([asked], max_tokens=80)
    turn = [*asked, *answer.tokens, *prompt(96, 20)]
    cache.settle()
    (cold,) = engine.complete([turn], salt="not cached")
    engine.forget()
    (restored,) = engine.complete([turn])
    assert restored.cached_tokens >= (60 + 80 - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    assert_same([restored], [cold])
