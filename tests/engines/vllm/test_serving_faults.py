"""What happens in service: reports that are lost, and a manager that dies while an engine copies from it."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from orbitkv.adapters.client import CacheManagerClient
from orbitkv.events.facts import GpuSynced
from tests.engines.vllm.cache import Cache, judge, new_place, running_cache
from tests.engines.vllm.engine import Engine, assert_same, prompt, transfer_config
from tests.engines.vllm.seams import copies_held_up
from tests.engines.vllm.settings import BLOCK_TOKENS
from tests.engines.waiting import until

TOKENS = 6 * BLOCK_TOKENS + 8
PAGES = 6


@contextmanager
def a_report_lost_on_the_way() -> Iterator[list[int]]:
    """The connection breaks just when the first GPU sync is reported: whether it arrived nobody knows."""
    honest = CacheManagerClient.report_sync
    lost: list[int] = []

    def report(self: CacheManagerClient, *arguments: Any, **named: Any) -> Any:
        if not lost:
            lost.append(1)
            connection = self._session.connection
            assert connection is not None
            socket.socket(fileno=os.dup(connection.fileno())).shutdown(socket.SHUT_RDWR)
        return honest(self, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CacheManagerClient, "report_sync", report)
        yield lost


def test_a_lost_sync_report_is_made_good_once(tmp_path: Path, tiny_model: Path) -> None:
    with (
        running_cache(tmp_path) as cache,
        closing(Engine(tiny_model, transfer_config(cache.socket))) as engine,
    ):
        (cold,) = engine.complete([prompt(1, TOKENS)])
        cache.settle()
        engine.forget()
        with a_report_lost_on_the_way() as lost:
            (restored,) = engine.complete([prompt(1, TOKENS)])
            assert lost
            cache.settle()
        assert_same([restored], [cold])
        until(lambda: len(cache.facts(GpuSynced)) == 1)
        assert not cache.scrape()["query_reserved_bytes"]
        # It is served as before, by the same manager.
        engine.forget()

        def hit() -> bool:
            with cache.counting() as tiers:
                assert_same(engine.complete([prompt(1, TOKENS)]), [cold])
            engine.forget()
            return tiers["dram"] == PAGES

        until(hit)
        cache.settle()


def test_a_manager_killed_in_the_middle_of_a_restore_and_started_again(
    tmp_path: Path, tiny_model: Path
) -> None:
    """The copy ends on memory that outlives the manager; its successor knows nothing of the lease."""
    place = new_place(tmp_path)
    with place.manager() as manager:
        cache = Cache(place, manager)
        engine = Engine(tiny_model, transfer_config(place.socket, request_timeout="5s"))
        with closing(engine):
            cold = engine.complete([prompt(number, TOKENS) for number in (1, 2)])
            pages = engine.pages()
            cache.settle()
            engine.forget()
            with copies_held_up() as copies:
                name = engine.submit(prompt(1, TOKENS))
                engine.step_until(lambda: copies.begun)
                manager.kill()
                with place.manager() as successor:
                    copies.go_on()
                    engine.step_until(lambda: engine.ended(name))
                    assert_same([engine.completion(name)], cold[:1])
                    revived = Cache(place, successor)
                    _reused(engine, revived, cold[1], pages)
                    revived.settle()
                    engine.close()
                    successor.stop()
    judge(place.log)


def _reused(engine: Engine, cache: Cache, cold: Any, pages: dict[bytes, bytes]) -> None:
    """The engine has found the successor by itself, and is served from the SSD."""
    until(lambda: any(one["sealed"] for one in cache.place.status()["instances"]))

    def hit() -> bool:
        engine.forget()
        with cache.counting() as tiers:
            assert_same(engine.complete([prompt(2, TOKENS)]), [cold])
        return tiers["ssd"] + tiers["dram"] >= PAGES

    until(hit)
    found = engine.pages()
    assert found.keys() <= pages.keys()
    assert {key: pages[key] for key in found} == found
