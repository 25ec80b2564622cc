"""An engine outlives its manager: unanswered calls are misses, and it finds the next manager by itself."""

import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from orbitkv.adapters.embedded.engine import EmbeddedEngine, running_engine
from orbitkv.adapters.embedded.messages import Arrive, EngineReport, Finished, Progress
from tests.demo.real_manager import PAGE_TOKENS, real_manager

FIRST, WITHOUT, AFTER = (1, 2, 3, 4), (11, 12, 13), (21, 22, 23)

pytestmark = pytest.mark.slow


async def serve_one(engine: EmbeddedEngine, number: int, blocks: tuple[int, ...]) -> None:
    """One request, and its end."""
    await engine.submit(Arrive(f"request-{number}", PAGE_TOKENS * len(blocks) + 1, 4, (*blocks, 999)))
    while True:
        match await engine.receive():
            case Progress(ended=ended) if ended == number:
                return


async def last_word(engine: EmbeddedEngine) -> EngineReport:
    await engine.drain()
    while not isinstance(message := await engine.receive(), Finished):
        pass
    return message.report


def test_a_manager_that_is_killed_and_comes_back_costs_hits_only(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            output = stack.enter_context((tmp_path / "engines.out").open("wb"))
            manager = await stack.enter_async_context(real_manager(tmp_path))
            engine = await stack.enter_async_context(
                running_engine(manager.engine_config("survivor"), output)
            )
            await engine.ready()
            await serve_one(engine, 1, FIRST)
            await manager.written(len(FIRST))
            os.kill(manager.child.pid, signal.SIGKILL)
            await manager.child.wait()
            await serve_one(engine, 2, WITHOUT)
            following = await stack.enter_async_context(real_manager(tmp_path))
            await serve_one(engine, 3, AFTER)
            survivor = await last_word(engine)
            fresh = await following.serve("fresh", FIRST)
        assert (survivor.completed, survivor.byte_mismatches) == (3, 0)
        assert survivor.manager_failures > 0
        assert (fresh.restored_pages, fresh.byte_mismatches) == (len(FIRST), 0), "recovered from the SSD"

    trio.run(main)
