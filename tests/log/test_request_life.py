"""One request's life told from the log: its hint, its query, the copy, and what became of its pages."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from textwrap import dedent

import trio
from click.testing import CliRunner
from trio.testing import wait_all_tasks_blocked

from orbitkv.events.facts import Event
from orbitkv.events.outcomes import ReadOutcome
from orbitkv.io import wire
from replay.__main__ import main
from replay.wording.sentences import _SENTENCES
from tests.log.simulated import write_log
from tests.shell.test_hints import cancel, hint, on_ssd
from tests.shell.world import Client, World, play

Story = Callable[[World, Client], Awaitable[None]]


async def stage(client: Client, request: str, name: str) -> None:
    await client.ask(lambda call: wire.ReportStage(call, request, 0, name, 1, 2))


def told(path: Path, story: Story, request: str = "r") -> str:
    """What the timeline prints of the request after this story; no seqs, and a line for each sentence."""

    async def recorded(world: World) -> None:
        await story(world, await world.engine())
        write_log(path, [list(world.records)])

    play(recorded)
    answer = CliRunner().invoke(main, ["timeline", str(path), "--request", request], catch_exceptions=False)
    assert answer.exit_code == 0, answer.stderr
    heading, *lines = answer.stdout.splitlines()
    assert re.fullmatch(rf"request '{request}', incarnation 1, 2023-11-14 22:13:\d\d\.\d{{3}} UTC", heading)
    shape = re.compile(r" *\d+ \+ *(?P<ms>[\d.]+) ms  (?P<cause>.{15,}?)  (?P<facts>.*)")
    text = ""
    for line in lines:
        found = shape.fullmatch(line)
        assert found, line
        text += f"{found['ms']} {found['cause'].rstrip()}\n"
        text += "".join(f"    {sentence}\n" for sentence in found["facts"].split("; "))
    return text


def test_a_hint_that_was_worth_it(tmp_path: Path) -> None:
    async def story(world: World, engine: Client) -> None:
        await on_ssd(world, engine, [1, 2, 3])
        await stage(engine, "r", "queued")
        world.store.stall()
        await hint(engine, [1, 2])
        await trio.sleep(0.1)
        world.store.release()
        await wait_all_tasks_blocked()
        await engine.query([7], request="another")
        await trio.sleep(0.2)
        asked = await engine.query([1, 2, 3, 9])
        await wait_all_tasks_blocked()
        ready = await engine.poll(asked.operation)
        await engine.restore(ready.lease)
        await engine.sync(ready.lease, 3)
        await stage(engine, "r", "first_use")

    assert told(tmp_path, story) == dedent(
        """\
        0.000 report stage
            stage queued of 'r'
        0.000 warm prefix
            hint looked up 2 pages: 2 ssd
            hint 1.1 admitted: 2 pages asked, 2 to be had, 48.0 KiB reserved, for 5 s at most
            2 reads queued (warm)
            2 reads at the device (warm)
        100.000 complete reads
            2 reads landed after 0.1 ms
            2 pages prepared
            hint 1.1 ended: prepared
            1.1 gives back its budget
        300.000 submit query
            query 1.3 opened: 4 pages asked, needs 96.0 KiB
            query 1.3 granted: 96.0 KiB reserved, 3 pages to be had, 2 in DRAM
            1 read queued (demand)
            1 read at the device (demand)
        300.000 complete reads
            1 read landed after 0.1 ms
            answered 4 pages: 2 dram, 1 ssd, 1 miss
            lease 1 on 48 tokens, 72.0 KiB, for 600 s
        300.000 begin restore
            rank 0 begins to copy lease 1
        300.000 report sync
            rank 0 restored 3 pages of lease 1: 72.0 KiB in 0.0 ms
            2 prepared pages restored
            lease 1 ended: consumed
            query 1.3 ended: consumed
            1.3 gives back its budget
        300.000 report stage
            stage first_use of 'r'
        """
    )


def test_a_hint_in_vain_and_the_reads_that_it_shared(tmp_path: Path) -> None:
    async def story(world: World, engine: Client) -> None:
        await on_ssd(world, engine, [1, 2, 3])
        world.store.faults.script_read(1, ReadOutcome.SHORT)
        world.store.stall()
        await hint(engine, [1], request="other")
        ticket = await hint(engine, [1, 2, 3])
        await trio.sleep(0.01)
        await cancel(engine, ticket)
        await trio.sleep(0.01)
        world.store.release()
        await wait_all_tasks_blocked()
        await trio.sleep(1)
        await world.forget_dram()

    assert told(tmp_path, story) == dedent(
        """\
        0.000 warm prefix
            hint looked up 3 pages: 3 ssd
            hint 1.2 admitted: 3 pages asked, 3 to be had, 72.0 KiB reserved, for 5 s at most
            joins 1 read that run already
            2 reads queued (warm)
            2 reads at the device (warm)
        10.000 cancel hint
            hint 1.2 ended: cancelled
            1.2 keeps 48.0 KiB reserved
        20.000 complete reads
            2 reads landed after 0.1 ms
            2 pages prepared
            1 read failed (short)
            1.2 gives back its budget
        1020.000 drop dram
            2 prepared pages unused (cleanup)
        """
    )


def test_a_hint_that_is_skipped_and_one_that_expires(tmp_path: Path) -> None:
    async def story(world: World, engine: Client) -> None:
        await on_ssd(world, engine, [1, 2])
        await engine.save([3])
        held = await engine.query([3], request="holder")
        await hint(engine, [1, 2])
        await engine.release(held.lease)
        world.store.stall()
        await hint(engine, [1, 2, 3], attempt=1)
        await trio.sleep(6)
        world.store.release()
        await wait_all_tasks_blocked()
        await hint(engine, [1, 2, 3], attempt=2)

    assert told(tmp_path, story) == dedent(
        """\
        0.000 warm prefix
            hint looked up 2 pages: 2 ssd
            hint skipped (foreground): 2 pages asked, but queries hold or wait for budget, 24.0 KiB reserved
        0.000 warm prefix
            hint looked up 3 pages: 1 dram, 2 ssd
            hint 1.3 attempt 1 admitted: 3 pages asked, 3 to be had, 72.0 KiB reserved, for 5 s at most
            2 reads queued (warm)
            2 reads at the device (warm)
        5000.000 tick
            hint 1.3 ended: expired
            1.3 keeps 48.0 KiB reserved
        6000.000 complete reads
            2 reads landed after 0.1 ms
            2 pages prepared
            1.3 gives back its budget
        6000.000 warm prefix
            hint looked up 3 pages: 3 dram
            hint not needed: nothing of 3 pages to be read
        """
    )


def test_a_query_that_is_cut_at_a_rotten_page(tmp_path: Path) -> None:
    async def story(world: World, engine: Client) -> None:
        await on_ssd(world, engine, [1, 2, 3])
        world.store.faults.script_read(1, ReadOutcome.CORRUPT)
        await engine.query([1, 2, 3])
        await wait_all_tasks_blocked()

    assert told(tmp_path, story) == dedent(
        """\
        0.000 submit query
            query 1.1 opened: 3 pages asked, needs 72.0 KiB
            query 1.1 granted: 72.0 KiB reserved, 3 pages to be had, 0 in DRAM
            3 reads queued (demand)
            3 reads at the device (demand)
        0.000 complete reads
            2 reads landed after 0.1 ms
            1 read failed (corrupt)
            1.1 cut to 1 page
            answered 3 pages: 1 ssd, 2 miss
            lease 1 on 16 tokens, 24.0 KiB, for 600 s
        """
    )


def test_every_fact_of_a_hint_has_its_sentence() -> None:
    named = {
        kind for kind in Event.__args__ if re.search("Hint|Warm|Prepared|Restored|Unused", kind.__name__)
    }
    assert len(named) == 8
    assert named <= _SENTENCES.keys()
