"""`cache_timeline`: the manager's stages of a request, in order, with times of its own clock."""

import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from orbitkv.io import wire
from orbitkv.manager.shell.timeline import Timeline
from tests.doubles import Medium
from tests.shell.world import RunClock, World, play

Line = dict[str, Any]


def traced(world: World) -> list[Line]:
    lines: list[Line] = []
    timeline = Timeline(lambda text: lines.append(json.loads(text)), RunClock())
    world.loop.followers = (*world.loop.followers, timeline.follow)
    return lines


def play_with_pages_on_ssd(story: Callable[[World], Awaitable[None]]) -> None:
    """Pages 1, 2 and 3 are on the SSD and in no DRAM."""
    medium: list[Medium] = []

    async def fill(world: World) -> None:
        await (await world.engine()).save([1, 2, 3])
        medium.append(world.medium.after_kill())

    play(fill)
    play(story, medium=medium[0], incarnation=2)


def stages(lines: list[Line]) -> list[tuple[str, str]]:
    return [(line["request_id"], line["stage"]) for line in lines]


def test_a_read_from_ssd_and_a_hit_in_dram() -> None:
    async def story(world: World) -> None:
        lines = traced(world)
        engine = await world.engine()
        world.store.stall()
        await engine.query([1, 2, 9], request="cold")
        await trio.sleep(0.5)
        world.store.release()
        await wait_all_tasks_blocked()
        await engine.query([1, 2], request="warm")
        assert stages(lines) == [("cold", "read_start"), ("cold", "host_ready"), ("warm", "host_ready")]
        start, cold, warm = lines
        assert (cold["hits"], cold["elapsed_us"]) == (2, 500_000)
        assert (warm["hits"], warm["elapsed_us"]) == (2, 0)
        assert cold["monotonic_ns"] - start["monotonic_ns"] == 500_000_000
        assert {line["engine"] for line in lines} == {"engine"}
        assert {line["pid"] for line in lines} == {os.getpid()}
        assert {line["event"] for line in lines} == {"cache_timeline"}

    play_with_pages_on_ssd(story)


def test_who_joins_a_read_has_its_own_start() -> None:
    async def story(world: World) -> None:
        lines = traced(world)
        engine = await world.engine()
        world.store.stall()
        await engine.query([1, 2], request="first")
        await trio.sleep(0.2)
        await engine.query([1, 2], request="second")
        await trio.sleep(0.3)
        world.store.release()
        await wait_all_tasks_blocked()
        assert stages(lines)[:2] == [("first", "read_start"), ("second", "read_start")]
        ready = {line["request_id"]: line["elapsed_us"] for line in lines if line["stage"] == "host_ready"}
        assert ready == {"first": 500_000, "second": 300_000}

    play_with_pages_on_ssd(story)


def test_a_cancelled_query_whose_read_had_started() -> None:
    async def story(world: World) -> None:
        lines = traced(world)
        engine = await world.engine()
        world.store.stall()
        answer = await engine.query([1, 2], request="r")
        await engine.ask(lambda call: wire.CancelQuery(call, answer.operation))
        assert stages(lines) == [("r", "read_start"), ("r", "query_cancel"), ("r", "read_stopped")]
        assert lines[-1]["cause"] == "cancelled"
        world.store.release()

    play_with_pages_on_ssd(story)


def test_a_query_whose_lifetime_ends_first() -> None:
    async def story(world: World) -> None:
        lines = traced(world)
        engine = await world.engine()
        world.store.stall()
        await engine.query([1, 2], request="r")
        await trio.sleep(61)
        assert stages(lines) == [("r", "read_start"), ("r", "read_deadline")]
        world.store.release()

    play_with_pages_on_ssd(story)


def test_a_miss_has_no_stage_and_nothing_is_remembered() -> None:
    async def story(world: World) -> None:
        lines: list[str] = []
        timeline = Timeline(lines.append, RunClock())
        world.loop.followers = (*world.loop.followers, timeline.follow)
        engine = await world.engine()
        await engine.query([7, 8], request="miss")
        hit = await engine.query([1], request="hit")
        await wait_all_tasks_blocked()
        await engine.ask(lambda call: wire.CancelQuery(call, hit.operation))
        await engine.vanish(process_too=True)
        assert [json.loads(line)["stage"] for line in lines] == ["read_start", "host_ready", "query_cancel"]
        assert not timeline._askers
        assert not timeline._queued
        assert not timeline._engines

    play_with_pages_on_ssd(story)
