"""The log's disk is full: nothing new is let in, everything under way ends, and it recovers by itself."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from orbitkv.events.outcomes import SaveDrop
from orbitkv.io import wire
from orbitkv.manager.shell.loop import FailStop
from tests.shell.world import World, build, play


def test_new_queries_miss_and_new_saves_are_dropped_without_a_record() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1])
        world.journal.fill()
        seq = world.loop.state.seq
        assert (await engine.query([1])) == wire.QueryAnswered(engine.calls, wire.QueryStatus.MISSED)
        begun = await engine.begin_save([2, 3])
        assert begun == wire.SaveBegun(engine.calls, b"", b"", b"", ((SaveDrop.DEGRADED, 2),))
        await engine.ask(lambda call: wire.ReportStage(call, "r", 0, "queued", 1, 2))
        assert world.loop.state.seq == seq
        assert (world.admission.unlogged_queries, world.admission.unlogged_save_pages) == (1, 2)

    play(story)


def test_what_was_under_way_ends() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1, 2])
        await world.forget_dram()
        world.store.stall()
        loading = await engine.query([1, 2])
        world.journal.fill()
        world.store.release()
        await wait_all_tasks_blocked()
        ready = await engine.poll(loading.operation)
        assert ready.status == wire.QueryStatus.READY
        await engine.restore(ready.lease)
        assert await engine.sync(ready.lease, 2) == wire.SyncTaken(engine.calls)
        await engine.vanish(process_too=True)
        assert world.loop.state.reserved_bytes == 0
        assert not world.loop.state.sessions
        assert len(world.records) < world.loop.state.seq, "the records wait in memory"
        world.journal.resume()
        assert len(world.records) == world.loop.state.seq

    play(story)


def test_health_says_so_until_it_is_over() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1])
        world.journal.fill("No space left on device")
        await trio.sleep(1)
        assert world.manager.health.status == "degraded"
        assert not world.manager.health.serving
        assert "No space left on device" in world.manager.health.degradations["log"]
        await engine.query([1], request="meanwhile")
        world.journal.resume()
        await trio.sleep(1)
        assert world.manager.health.status == "ok"
        assert [line.split(":")[0] for line in world.said] == ["degraded (log)", "recovered (log)"]
        assert (await engine.query([1], request="afterwards")).status == wire.QueryStatus.READY

    play(story)


def test_one_decision_for_all_ranks_whatever_the_log_does_in_between() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1])
        before = await engine.query([1], request="asked before")
        world.journal.fill()
        again = await engine.query([1], request="asked before")
        assert again.operation == before.operation, "its decision stands"
        await engine.query([1], request="asked meanwhile")
        world.journal.resume()
        late = await engine.query([1], request="asked meanwhile")
        assert late.status == wire.QueryStatus.MISSED
        revised = await engine.query([1], request="asked meanwhile", revision=1)
        assert revised.status == wire.QueryStatus.READY, "another question, another answer"

    play(story)


def test_a_log_that_lags_too_far_behind_stops_admission_as_well() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        world.admission.lag_bytes_max = 3000
        world.journal.stall()
        number = 0
        while not world.admission.stopped:
            await engine.query([number], request=str(number))
            number += 1
        assert "log_lag_bytes_max" in world.admission.stopped
        world.journal.resume()
        assert not world.admission.stopped

    play(story)


def test_beyond_the_bound_in_memory_the_manager_stops() -> None:
    async def main() -> None:
        world = build(lag_bytes_max=20_000)
        with pytest.RaisesGroup(FailStop, flatten_subgroups=True) as stopped:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(world.manager.run)
                engine = await world.engine()
                world.journal.fill("No space left on device")
                for _ in range(1000):
                    await engine.vanish()
                    engine = await world.connect()
        assert "No space left on device" in str(stopped.value.exceptions[0].exceptions[0])

    trio.run(main, clock=MockClock(autojump_threshold=0))
