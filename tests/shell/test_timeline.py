"""`cache_timeline`: the manager's stages of a request, in order, with times of its own clock."""

import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from orbitkv.events.outcomes import ReadOutcome
from orbitkv.io import wire
from orbitkv.manager.shell.timeline import Timeline
from tests.doubles import Medium
from tests.shell.world import PAGE_TOKENS, Client, RunClock, World, key, play

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


async def hint(engine: Client, numbers: list[int], request: str) -> None:
    engine.tickets += 1
    part = wire.QueryPart(0, PAGE_TOKENS, 0, [key(number) for number in numbers])
    await engine.ask(lambda call: wire.WarmPrefix(call, request, 0, engine.tickets, 0, [part]))


def test_a_hint_is_ready_when_its_pages_have_landed() -> None:
    async def story(world: World) -> None:
        lines = traced(world)
        engine = await world.engine()
        world.store.stall()
        await hint(engine, [1, 2, 9], "r")
        await trio.sleep(0.5)
        world.store.release()
        await wait_all_tasks_blocked()
        await hint(engine, [1, 2], "nothing to read")
        await engine.query([1, 2], request="r")
        assert stages(lines) == [("r", "read_start"), ("r", "host_ready"), ("r", "host_ready")]
        _, warm, demand = lines
        assert (warm["origin"], warm["hits"], warm["elapsed_us"]) == ("warm", 2, 500_000)
        assert (demand["origin"], demand["hits"], demand["elapsed_us"]) == ("demand", 2, 0)
        assert warm["engine"] == "engine"

    play_with_pages_on_ssd(story)


def test_a_hint_whose_reads_go_on_without_it() -> None:
    async def story(world: World) -> None:
        lines = traced(world)
        engine = await world.engine()
        world.store.stall()
        await hint(engine, [1], "cancelled")
        await engine.ask(lambda call: wire.CancelHint(call, engine.tickets))
        await hint(engine, [2], "expired")
        await trio.sleep(6)
        await hint(engine, [3], "overtaken")
        await engine.query([3], request="overtaken")
        ended = [line for line in lines if line["stage"] != "read_start"]
        assert [(line["request_id"], line["stage"], line["cause"]) for line in ended] == [
            ("cancelled", "read_stopped", "cancelled"),
            ("expired", "read_deadline", "expired"),
            ("overtaken", "read_stopped", "admitted"),
        ]
        assert {line["origin"] for line in ended} == {"warm"}
        world.store.release()

    play_with_pages_on_ssd(story)


def test_a_hint_of_which_nothing_could_be_read_is_not_ready() -> None:
    async def story(world: World) -> None:
        lines = traced(world)
        engine = await world.engine()
        for slot in range(3):
            world.store.faults.script_read(slot, ReadOutcome.FAILED)
        await hint(engine, [1, 2], "r")
        assert stages(lines) == [("r", "read_start"), ("r", "read_stopped")]

    play_with_pages_on_ssd(story)
