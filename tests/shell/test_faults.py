"""Ownership and drain: who lets go of what, when something stalls, leaves, changes its mind or dies."""

import random

import pytest
from trio.testing import wait_all_tasks_blocked

from orbitkv.events import facts
from orbitkv.events.outcomes import SyncOutcome, WriteOutcome
from orbitkv.io import wire
from tests.shell.world import Client, World, page, play


async def on_ssd(world: World, client: Client, numbers: list[int]) -> None:
    """Save pages and take them out of DRAM."""
    await client.save(numbers)
    await world.forget_dram()


def test_a_cancelled_read_is_owned_until_it_drains_and_nobody_else_waits_for_it() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await on_ssd(world, engine, [1, 2])
        await engine.save([9])
        world.store.stall(0, 1)
        paused = await engine.query([1, 2], request="paused")
        await engine.ask(lambda call: wire.CancelQuery(call, paused.operation))
        assert world.loop.state.reserved_bytes > 0
        assert await world.manager.drop_dram() == {"evicted_pages": 1}, "the unrelated page, not the buffers"
        await engine.save([9])
        unrelated = await engine.query([9], request="unrelated")
        assert unrelated.status == wire.QueryStatus.READY
        await engine.release(unrelated.lease)
        world.store.release()
        await wait_all_tasks_blocked()
        assert world.loop.state.reserved_bytes == 0
        again = await engine.query([1, 2], request="paused", attempt=1)
        assert again.status == wire.QueryStatus.READY

    play(story)


def test_a_revised_query_never_gets_what_its_predecessor_waited_for() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await on_ssd(world, engine, [1, 2, 3])
        world.store.stall()
        first = await engine.query([1], request="r")
        revised = await engine.query([2, 3], request="r", revision=1)
        assert first.operation != revised.operation
        world.store.release()
        await wait_all_tasks_blocked()
        assert (await engine.poll(first.operation)).status == wire.QueryStatus.RETIRED
        ready = await engine.poll(revised.operation)
        begun = await engine.restore(ready.lease)
        assert engine.restored(begun) == [page(2), page(3)]

    play(story)


def test_who_started_a_shared_read_may_leave_and_the_others_get_it_whole() -> None:
    async def story(world: World) -> None:
        engine, other = await world.engine(instance="one"), await world.engine(instance="two")
        await on_ssd(world, engine, [1, 2])
        world.store.stall()
        starter = await engine.query([1, 2])
        joined = await other.query([1, 2])
        await engine.ask(lambda call: wire.CancelQuery(call, starter.operation))
        world.store.release()
        await wait_all_tasks_blocked()
        ready = await other.poll(joined.operation)
        assert ready.hits == (2,)
        assert len(world.store.reads) == 2, "one read for any number of waiters"

    play(story)


def test_a_restore_of_a_killed_process_holds_its_pages_until_it_is_known_to_be_gone() -> None:
    async def story(world: World) -> None:
        engine, other = await world.engine(instance="one"), await world.engine(instance="two")
        await engine.save([1])
        for client in (engine, other):
            await client.restore((await client.query([1])).lease)
        await engine.vanish()
        assert await world.manager.drop_dram() == {"evicted_pages": 0}
        await engine.vanish(process_too=True)
        assert await world.manager.drop_dram() == {"evicted_pages": 0}, "the other one still copies"
        await other.vanish(process_too=True)
        assert await world.manager.drop_dram() == {"evicted_pages": 1}
        assert not world.loop.state.processes

    play(story)


def test_a_failed_write_is_a_miss_at_once_and_after_a_restart() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        world.store.faults.script_write(0, WriteOutcome.FAILED)
        world.store.faults.script_write(1, WriteOutcome.SHORT)
        await on_ssd(world, engine, [1, 2, 3])
        assert (await engine.query([1])).status == wire.QueryStatus.MISSED
        assert (await engine.query([3], request="whole")).status == wire.QueryStatus.LOADING
        await wait_all_tasks_blocked()
        found = [key for segment in world.store.recovered() for key in segment.keys]
        assert len(found) == 1

    play(story)


def test_the_books_balance_however_often_somebody_asks() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await on_ssd(world, engine, [1, 2, 3])
        await engine.save([4])
        for request in ("a", "b", "c"):
            answer = await engine.query([1, 2, 4, 5], request=request)
            seq = world.loop.state.seq
            for _ in range(50):
                answer = await engine.poll(answer.operation)
            assert world.loop.state.seq == seq, "polls leave no record"
            await engine.ask(lambda call, op=answer.operation: wire.CancelQuery(call, op))
            await engine.ask(lambda call, op=answer.operation: wire.CancelQuery(call, op))
        for settled in world.events(facts.DecisionSettled):
            assert settled.dram + settled.peer + settled.ssd + settled.miss == settled.asked == 4
        assert len(world.events(facts.DecisionSettled)) == 3

    play(story)


def test_whoever_asks_and_never_fetches_leaves_nothing_behind() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save(list(range(1, 13)))
        for number in range(90):
            answer = await engine.query(list(range(1, 13)), request=f"r{number}")
            if number % 3 == 0:
                await engine.restore(answer.lease)
                await engine.sync(answer.lease, 12)
            elif number % 3 == 1:
                await engine.restore(answer.lease)
                await engine.sync(answer.lease, 6, SyncOutcome.STOPPED)
            else:
                await engine.release(answer.lease)
        state = world.loop.state
        assert (state.leases, state.reservations, state.reserved_bytes) == ({}, {}, 0)
        assert await world.manager.drop_dram() == {"evicted_pages": 12}

    play(story)


# --- abort everywhere ------------------------------------------------------------------------------------


async def abort_somewhere(world: World, chance: random.Random) -> None:
    """One life of one client, cut off at a random stage in a random way."""
    client = await world.engine(instance=f"engine {world.sessions}")
    numbers = list(range(first := chance.randrange(20), first + chance.randrange(1, 8)))
    if chance.random() < 0.5:
        await client.save(numbers)
    if chance.random() < 0.5:
        await world.forget_dram()
    if chance.random() < 0.5:
        world.store.stall()
    answer = None
    for stage in range(chance.randrange(5)):
        match stage:
            case 0:
                answer = await client.query(numbers)
            case 1:
                for held in world.store.held[: chance.randrange(3)]:
                    world.store.end(held)
            case 2 if answer is not None:
                world.store.release()
                await wait_all_tasks_blocked()
                answer = await client.poll(answer.operation)
            case 3 if answer is not None and answer.lease:
                await client.restore(answer.lease)
            case _:
                pass
    match chance.randrange(4):
        case 0 if answer is not None and answer.operation:
            for _ in range(2):
                await client.ask(lambda call, op=answer.operation: wire.CancelQuery(call, op))
        case 1:
            await client.begin_save([100, 101])
        case 2 if answer is not None and answer.lease:
            await client.release(answer.lease)
        case _:
            pass
    await client.vanish(process_too=True)


def check_nothing_is_left(world: World) -> None:
    state = world.loop.state
    left = (state.sessions, state.instances, state.operations, state.leases, state.saves, state.reads)
    assert not any(left), left
    assert (state.reserved_bytes, state.reserved_by_phase) == (0, [0, 0, 0, 0])
    assert not state.buffers.holds.any()


@pytest.mark.parametrize("rounds", [150, pytest.param(5000, marks=pytest.mark.slow)])
def test_abort_everywhere(rounds: int) -> None:
    async def story(world: World) -> None:
        chance = random.Random(rounds)
        for _ in range(rounds):
            await abort_somewhere(world, chance)
            world.store.release()
            await wait_all_tasks_blocked()
            check_nothing_is_left(world)
        engine = await world.engine()
        await engine.save([1])
        assert (await engine.query([1])).status == wire.QueryStatus.READY

    play(story, lag_bytes_max=1 << 30)
