"""Lifetimes, idleness, draining: what the clock brings about."""

import msgspec
import trio
from trio.testing import wait_all_tasks_blocked

from orbitkv.events import facts
from orbitkv.events.config import SECOND_NS
from orbitkv.events.outcomes import QueryEnd, Refusal, SaveDrop
from orbitkv.io import wire
from tests.shell.world import CONFIG, World, play


def test_a_minute_of_idleness_changes_nothing() -> None:
    async def story(world: World) -> None:
        await world.engine()
        seq, digest = world.loop.state.seq, repr(world.loop.state)
        await trio.sleep(60)
        assert (world.loop.state.seq, repr(world.loop.state)) == (seq, digest)

    play(story)


def test_a_query_that_waits_too_long_expires_and_its_read_drains_later() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1])
        await world.forget_dram()
        world.store.stall()
        answer = await engine.query([1])
        await trio.sleep(61)
        assert [event.end for event in world.events(facts.QueryEnded)] == [QueryEnd.EXPIRED]
        assert (await engine.poll(answer.operation)).status == wire.QueryStatus.RETIRED
        assert world.loop.state.reserved_bytes > 0, "the submitted read keeps its permit"
        world.store.release()
        await wait_all_tasks_blocked()
        assert world.loop.state.reserved_bytes == 0
        again = await engine.query([1], attempt=1)
        assert again.status == wire.QueryStatus.READY

    play(story)


def test_a_deadline_is_met_between_two_sweeps() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1])
        await world.forget_dram()
        world.store.stall()
        await engine.query([1])
        opened = world.events(facts.QueryOpened)[0]
        await trio.sleep(5)
        expired = next(record for record in world.records if _ends(record.events, QueryEnd.EXPIRED))
        late_ns = expired.at_ns - opened.deadline_ns
        assert 0 <= late_ns <= world.config.sweep_interval_ns

    play(story, msgspec.structs.replace(CONFIG, demand_lifetime_ns=SECOND_NS * 7 // 5))


def test_a_lease_that_expires_under_a_copy_keeps_its_pages_and_tells_the_late_sync() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1])
        lease = (await engine.query([1])).lease
        await engine.restore(lease)
        await trio.sleep(601)
        assert world.events(facts.LeaseEnded)
        assert await world.manager.drop_dram() == {"evicted_pages": 0}
        assert await engine.sync(lease, 1) == wire.SyncTaken(engine.calls, late=True)
        assert await world.manager.drop_dram() == {"evicted_pages": 1}

    play(story)


def test_a_page_that_misses_a_rank_is_given_up_after_its_time() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.begin_save([1])
        await trio.sleep(301)
        assert [event.reason for event in world.events(facts.SavesDropped)] == [SaveDrop.EXPIRED]
        assert not world.loop.state.saves

    play(story)


def test_draining_waits_for_the_devices_and_admits_nothing() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1])
        await world.forget_dram()
        world.store.stall()
        await engine.query([1])
        unfinished: list[str] = []

        async def drain() -> None:
            unfinished.append(await world.manager.drain(30.0))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain)
            await trio.sleep(10)
            assert unfinished == []
            assert world.manager.health.status == "draining"
            assert (await engine.query([2], request="late")).refusal == Refusal.SHUTTING_DOWN
            late = await world.connect()
            assert late.inbox[0].refusal == Refusal.SHUTTING_DOWN
            assert late.session in world.channel.closed
            world.store.release()
        assert unfinished == [""]

    play(story)


def test_draining_has_an_end_even_if_a_device_has_none() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1])
        await world.forget_dram()
        world.store.stall()
        await engine.query([1])
        begun = trio.current_time()
        unfinished = await world.manager.drain(30.0)
        assert trio.current_time() - begun < 31
        assert "reads=1" in unfinished

    play(story)


def _ends(events: tuple[object, ...], end: QueryEnd) -> bool:
    return any(isinstance(event, facts.QueryEnded) and event.end == end for event in events)
