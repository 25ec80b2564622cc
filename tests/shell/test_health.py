"""Which component is degraded, and why; what is only said; and when nothing is served."""

import json
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from orbitkv.events.outcomes import WriteOutcome
from orbitkv.io import wire
from orbitkv.manager.ports import Connected, StoreInfo
from orbitkv.manager.shell.health import Stage
from orbitkv.manager.shell.ssd import RETRY_INTERVAL_S
from orbitkv.manager.shell.status import StatusReader
from tests.shell.world import HOST, Client, World, play

A_MOMENT_S = 1.0
"""Longer than a watch's interval and a flush that is due."""
LONG_ENOUGH_S = 10.0


def document(world: World, store: StoreInfo | None = None) -> dict[str, Any]:
    """What `/health` and `orbitkv admin status` say."""
    reader = StatusReader(
        version="0",
        socket_path="/socket",
        state=world.loop.state,
        health=world.manager.health,
        journal=world.journal,
        admission=world.admission,
        store=store or world.store.info,
        clock=world.loop.clock,
        started_ns=0,
    )
    told: dict[str, Any] = json.loads(reader.json())
    return told


def condition(world: World) -> tuple[str, bool, list[str]]:
    told = document(world)
    return told["status"], told["serving"], list(told["degradations"])


def test_a_fallback_of_the_io_engine_is_said_and_is_no_degradation() -> None:
    async def story(world: World) -> None:
        fallback = StoreInfo("threads", False, "io_uring is refused here (EPERM)", "/ssd", 1, 1)
        told = document(world, fallback)
        assert told["io"] == {"engine": "threads", "direct": False, "reason": fallback.reason}
        assert condition(world) == ("ok", True, [])
        assert not world.said

    play(story)


def test_an_ssd_that_takes_no_pages_is_degraded_until_it_has_taken_one() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        world.store.faults.script_write(0, WriteOutcome.NO_SPACE, WriteOutcome.NO_SPACE)
        await engine.save([1])
        await trio.sleep(A_MOMENT_S)
        assert condition(world) == ("degraded", True, ["ssd"])
        told = document(world)
        assert not told["ssd"]["writable"]
        assert "no space left" in told["degradations"]["ssd"]
        assert "lower ssd_bytes" in told["degradations"]["ssd"]
        assert (await engine.query([1])).status == wire.QueryStatus.READY, "every request is still answered"

        await trio.sleep(RETRY_INTERVAL_S)
        assert document(world)["ssd"]["writable"], "it may be tried again"
        await engine.save([2])
        await trio.sleep(A_MOMENT_S)
        assert condition(world) == ("degraded", True, ["ssd"]), "in vain: it never was well in between"

        await trio.sleep(RETRY_INTERVAL_S)
        await engine.save([3])
        await trio.sleep(A_MOMENT_S)
        assert condition(world) == ("ok", True, [])
        assert [line.split(":")[0] for line in world.said] == ["degraded (ssd)", "recovered (ssd)"]

    play(story)


def test_an_ssd_that_cannot_be_flushed() -> None:
    async def story(world: World) -> None:
        await (await world.engine()).save([1])
        world.store.refusal = OSError(5, "Input/output error")
        await trio.sleep(LONG_ENOUGH_S)
        assert condition(world) == ("degraded", True, ["ssd_sync"])
        assert "look at the device behind ssd_path" in document(world)["degradations"]["ssd_sync"]

    play(story)


def test_a_log_that_takes_nothing_means_that_nothing_new_is_served() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        world.journal.fill("No space left on device: free space")
        await trio.sleep(A_MOMENT_S)
        assert condition(world) == ("degraded", False, ["log"])
        await engine.query([1])
        told = document(world)
        assert "free space" in told["degradations"]["log"]
        assert told["log"]["unlogged_queries"] == 1
        world.journal.resume()
        await trio.sleep(A_MOMENT_S)
        assert condition(world) == ("ok", True, [])

    play(story)


def test_a_log_that_cannot_be_tidied_is_told_and_served_on() -> None:
    async def story(world: World) -> None:
        world.journal.housekeeping_trouble = "/log: Permission denied; give the manager's user write access"
        await trio.sleep(A_MOMENT_S)
        assert condition(world) == ("degraded", True, ["log_size"])
        told = document(world)["degradations"]["log_size"]
        assert "log_bytes_max" in told
        assert "write access" in told
        world.journal.housekeeping_trouble = ""
        await trio.sleep(A_MOMENT_S)
        assert condition(world) == ("ok", True, [])

    play(story)


def test_a_process_that_left_while_copying_and_whose_end_cannot_be_seen() -> None:
    async def story(world: World) -> None:
        operator = await world.engine(instance="operator")
        await operator.save([1])
        world.channel.put(Connected(50, 60, 7070, 0, HOST, False))
        await wait_all_tasks_blocked()
        engine = Client(world, 50, 60)
        await engine.register()
        await engine.restore((await engine.query([1])).lease)
        await trio.sleep(A_MOMENT_S)
        assert condition(world) == ("ok", True, []), "it copies, and will say when it has ended"
        await engine.vanish()
        await trio.sleep(A_MOMENT_S)
        assert condition(world) == ("degraded", True, ["processes"])
        told = document(world)
        assert "60 (pid 7070)" in told["degradations"]["processes"]
        assert "orbitkv admin release-process" in told["degradations"]["processes"]
        held = [one for one in told["processes"] if one["copies_held"]]
        assert [(one["process"], one["end_observable"]) for one in held] == [(60, False)]
        await operator.ask(lambda call: wire.ReleaseProcess(call, 60))
        await trio.sleep(A_MOMENT_S)
        assert condition(world) == ("ok", True, [])

    play(story)


@pytest.mark.parametrize("stage", [Stage.STARTING, Stage.DRAINING])
def test_before_and_after_serving(stage: Stage) -> None:
    async def story(world: World) -> None:
        world.manager.health.stage = stage
        assert condition(world) == (stage.value, False, [])

    play(story)
