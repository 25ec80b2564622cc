"""A request that its client abandons, at each stage: nothing leaks, nobody else is disturbed.

After each of them no block is held, nothing is reserved at the manager, and the same prompt is served.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.engines.vllm.cache import Cache, stalling_cache
from tests.engines.vllm.engine import Engine, assert_same, prompt, transfer_config
from tests.engines.vllm.seams import copies_held_up
from tests.engines.vllm.settings import BLOCK_TOKENS
from tests.faults.support import Device, held

TOKENS = 6 * BLOCK_TOKENS + 8
PAGES = 6


@pytest.fixture(scope="module")
def stalling(
    hints: bool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cache, Device]]:
    with stalling_cache(tmp_path_factory.mktemp("cache")) as pair:
        yield pair


@pytest.fixture(scope="module")
def cache(stalling: tuple[Cache, Device]) -> Cache:
    return stalling[0]


@pytest.fixture
def device(stalling: tuple[Cache, Device]) -> Iterator[Device]:
    yield stalling[1]
    stalling[1].go_on()


@pytest.fixture(scope="module")
def engine(cache: Cache, tiny_model: Path) -> Iterator[Engine]:
    """Steps of 64 tokens, so that there is a middle of a prompt."""
    arguments = {"max_num_batched_tokens": 64, "enable_chunked_prefill": True}
    with closing(Engine(tiny_model, transfer_config(cache.socket), **arguments)) as engine:
        yield engine


def nothing_is_left(engine: Engine, cache: Cache) -> None:
    engine.step_until(lambda: not engine.busy and not any(engine.references()[1:]))
    cache.settle()
    assert not cache.scrape()["query_reserved_bytes"]


def served_again(engine: Engine, number: int) -> None:
    """From whatever the cache has of it, as if nothing had happened."""
    (cold,) = engine.complete([prompt(number, TOKENS)], salt="computed anew")
    (served,) = engine.complete([prompt(number, TOKENS)])
    assert_same([served], [cold])


def only_on_ssd(engine: Engine, cache: Cache, number: int) -> None:
    engine.complete([prompt(number, TOKENS)])
    cache.settle()
    engine.forget()
    assert cache.forget_dram() >= PAGES


def test_in_the_queue(engine: Engine, cache: Cache) -> None:
    """Before the engine took a step with it."""
    engine.abort(engine.submit(prompt(1, TOKENS)))
    nothing_is_left(engine, cache)
    served_again(engine, 1)


def test_while_its_pages_are_read_from_a_disk_that_stands_still(
    engine: Engine, cache: Cache, device: Device
) -> None:
    """Its read is under way: another request is served meanwhile; then the read drains, and a hit it is."""
    only_on_ssd(engine, cache, 2)
    device.stall()
    abandoned = engine.submit(prompt(2, TOKENS))
    engine.step_until(lambda: held(cache.place)["reads"])
    other = engine.submit(prompt(3, TOKENS))
    engine.step_until(lambda: engine.ended(other))
    assert not engine.ended(abandoned)
    engine.abort(abandoned)
    engine.step_until(lambda: not engine.busy)
    assert held(cache.place)["reads"], "a submitted read is not taken back"
    device.go_on()
    nothing_is_left(engine, cache)
    engine.forget()
    with cache.counting() as tiers:
        served_again(engine, 2)
    assert tiers["dram"] + tiers["ssd"] >= PAGES


def test_while_its_pages_are_copied(engine: Engine, cache: Cache) -> None:
    """The copy goes on into its blocks, so nobody else gets them before it has ended."""
    engine.complete([prompt(4, TOKENS)])
    cache.settle()
    engine.forget()
    with copies_held_up() as copies:
        abandoned = engine.submit(prompt(4, TOKENS))
        engine.step_until(lambda: copies.begun)
        engine.abort(abandoned)
        for _ in range(20):
            engine.step()
        assert any(engine.references()[1:]), "its blocks are being written"
        other = engine.submit(prompt(5, TOKENS))
        engine.step_until(lambda: engine.ended(other))
        copies.go_on()
        nothing_is_left(engine, cache)
    served_again(engine, 4)


def test_in_the_middle_of_its_prompt(engine: Engine, cache: Cache) -> None:
    abandoned = engine.submit(prompt(6, TOKENS))
    for _ in range(2):
        engine.step()
    assert engine.output_tokens(abandoned) == 0
    engine.abort(abandoned)
    nothing_is_left(engine, cache)
    served_again(engine, 6)


def test_in_the_middle_of_its_answer(engine: Engine, cache: Cache) -> None:
    abandoned = engine.submit(prompt(7, TOKENS), max_tokens=100)
    engine.step_until(lambda: engine.output_tokens(abandoned) >= 3)
    engine.abort(abandoned)
    nothing_is_left(engine, cache)
    served_again(engine, 7)


def test_after_it_has_ended(engine: Engine, cache: Cache) -> None:
    name = engine.submit(prompt(8, TOKENS))
    engine.step_until(lambda: engine.ended(name))
    engine.abort(name)
    nothing_is_left(engine, cache)
    served_again(engine, 8)
