"""Steps that overlap, as on a GPU: hundreds of requests in a small memory, every token right.

Prefixes are shared, forgotten and restored, requests are preempted for want of blocks and aborted at any
moment; at the end nothing is held and nothing is reserved.
"""

from contextlib import closing
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import attrs
import pytest

from tests.engines.vllm.cache import Cache
from tests.engines.waiting import until

REQUESTS, TOGETHER_MAX = 150, 12


@pytest.fixture(scope="module")
def chain() -> ModuleType:
    """Imported when a test wants it: vLLM warns of its own affairs, which a test may ignore."""
    from tests.engines.vllm import chain_engine

    return chain_engine


@attrs.define
class Workload:
    """Seeded: who comes when, is aborted when, and when GPU memory forgets."""

    chain: Any
    engine: Any
    random: Random
    served: int = 0
    aborted: int = 0
    wrong: list[str] = attrs.Factory(list)
    _live: dict[str, tuple[list[int], int, Any]] = attrs.Factory(dict)

    def run(self) -> None:
        draw = self.random
        prefixes = [self._tokens(draw.choice([32, 80, 160, 240])) for _ in range(8)]
        begun = 0
        while begun < REQUESTS or self._live:
            while begun < REQUESTS and len(self._live) < TOGETHER_MAX and draw.random() < 0.5:
                prefix = draw.choice(prefixes)
                prompt = prefix[: draw.choice([len(prefix), len(prefix) // 2])] + self._tokens(
                    draw.choice([0, 1, self.chain.BLOCK_TOKENS - 1, self.chain.BLOCK_TOKENS, 40])
                )
                tokens, name = draw.choice([1, 3, 20, 60]), str(begun)
                self._live[name] = (prompt, tokens, self.engine.add(name, prompt, tokens))
                begun += 1
            if self._live and draw.random() < 0.02:
                name = draw.choice(list(self._live))
                self.engine.abort(name)
                del self._live[name]
                self.aborted += 1
            if draw.random() < 0.05:
                self.engine.scheduler.reset_prefix_cache()
            self.engine.step()
            self._judge()

    def _tokens(self, count: int) -> list[int]:
        return [self.random.randrange(self.chain.VOCABULARY) for _ in range(count)]

    def _judge(self) -> None:
        for name in [name for name, (_, _, request) in self._live.items() if request.is_finished()]:
            prompt, tokens, request = self._live.pop(name)
            self.served += 1
            if list(request.output_token_ids) != self.chain.continuation(prompt, tokens):
                self.wrong.append(name)


@pytest.mark.parametrize(("seed", "blocks", "ahead"), [(1, 40, 2), (2, 64, 2), (3, 40, 3)])
def test_every_token_is_right(
    chain: ModuleType, tiny_model: Path, cache: Cache, seed: int, blocks: int, ahead: int
) -> None:
    engine = chain.ChainEngine(tiny_model, cache.socket, blocks=blocks, ahead=ahead, tenant=f"seed {seed}")
    with closing(engine):
        work = Workload(chain, engine, Random(seed))
        with cache.counting() as tiers:
            work.run()
            until(lambda: _at_rest(engine, blocks))
        assert work.wrong == []
        assert work.served + work.aborted == REQUESTS
        assert tiers["dram"] + tiers["ssd"] > 100  # else it showed little
        cache.settle()


def test_one_wrong_byte_of_a_restored_page_shows(
    chain: ModuleType, tiny_model: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: else the test above could not fail."""
    engine = chain.ChainEngine(tiny_model, cache.socket, blocks=40, ahead=2, tenant="control")
    with closing(engine):
        restorer = engine.worker._worker._restorer
        copy = restorer._copy

        def spoil(order, view):  # type: ignore[no-untyped-def]
            copied = copy(order, view)
            engine.kv[order.pages[-1].blocks[-1], 0, -1] += 1
            return copied

        monkeypatch.setattr(restorer, "_copy", spoil)
        work = Workload(chain, engine, Random(1))
        work.run()
        assert work.wrong
        until(lambda: _at_rest(engine, 40))


def _at_rest(engine: Any, blocks: int) -> bool:
    """Stepped until saves have let go of every block but vLLM's null block."""
    engine.step()
    return engine.free_blocks == blocks - 1 and not engine.scheduler.connector.has_pending_push_work()
