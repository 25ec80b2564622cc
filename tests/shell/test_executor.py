"""Effects reach the world in the order that keeps it safe, and come back as completions."""

import trio
from trio.testing import wait_all_tasks_blocked

from orbitkv.events import facts
from orbitkv.events.outcomes import WriteDrop, WriteOutcome
from orbitkv.io import wire
from tests.doubles import CompletionFault, Medium
from tests.doubles.medium import PageData, SegmentFormatted
from tests.shell.world import World, page, play


def test_the_ssd_is_not_touched_before_the_log_says_so() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        world.journal.stall()
        await engine.save([1, 2])
        assert world.loop.state.writing, "the slots are assigned"
        assert not world.store.writes
        assert not world.medium.unsynced, "not even a segment's header"
        world.journal.resume()
        await wait_all_tasks_blocked()
        assert len(world.store.writes) == 2
        assert not world.loop.state.writing

    play(story)


def test_a_segment_is_formatted_before_anything_is_written_into_it() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1])
        kinds = [type(operation) for operation in world.medium.unsynced]
        assert kinds.index(SegmentFormatted) < kinds.index(PageData)

    play(story)


def test_reads_and_copies_wait_for_their_superblock() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        world.pool.stall()
        buffers = await engine.save([1, 2])
        assert buffers
        assert not world.carrier.copied
        assert (await engine.query([1])).status == wire.QueryStatus.MISSED, "others are answered meanwhile"
        world.pool.release()
        await wait_all_tasks_blocked()
        assert len(world.carrier.copied) == 2
        medium.append(world.medium.after_kill())

    async def next_incarnation(world: World) -> None:
        engine = await world.engine()
        world.pool.stall()
        answer = await engine.query([1, 2])
        assert answer.status == wire.QueryStatus.LOADING
        assert not world.store.reads
        world.pool.release()
        await wait_all_tasks_blocked()
        assert len(world.store.reads) == 2
        assert (await engine.poll(answer.operation)).hits == (2,)

    medium: list[Medium] = []
    play(story)
    play(next_incarnation, medium=medium[0], incarnation=2)


def test_memory_that_cannot_be_had_is_said_and_holds_nothing_up() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        world.pool.failures[0] = OSError(
            12, "the host has no memory for superblock 0: make pool_bytes smaller"
        )
        await engine.save([1])
        assert engine.notices(wire.PagesSealed)
        assert "make pool_bytes smaller" in world.manager.health.degradations["pool"]
        assert world.manager.health.serving, "everything is still answered"

    play(story)


def test_a_segment_that_cannot_be_formatted_takes_no_page_and_the_store_is_tried_again() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        world.store.refusal = OSError(30, "Read-only file system")
        await engine.save([1])
        assert not world.store.writes
        assert [change.writable for change in world.events(facts.StoreChanged)] == [False]
        assert WriteDrop.FAILED in [drop.reason for drop in world.events(facts.WritesDropped)]
        await engine.save([2])
        assert (await engine.query([1, 2])).hits == (2,), "DRAM serves on"
        world.store.refusal = None
        await trio.sleep(31)
        assert world.loop.state.store_writable
        await engine.save([3])
        await wait_all_tasks_blocked()
        assert len(world.store.writes) == 1

    play(story)


def test_a_full_disk_stops_writes_and_loses_nothing_else() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        for slot in range(64):
            world.store.faults.script_write(slot, WriteOutcome.NO_SPACE)
        await engine.save([1, 2])
        assert not world.loop.state.store_writable
        assert "ssd_bytes" in world.loop.state.store_reason
        await world.forget_dram()
        assert (await engine.query([1])).status == wire.QueryStatus.MISSED

    play(story)


def test_completions_that_come_twice_are_recorded_and_change_nothing() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        for token in range(1, 20):
            world.carrier.script[token] = CompletionFault.DOUBLE
        await engine.save([1, 2, 3])
        stale = world.events(facts.StaleCompletion)
        assert {event.kind for event in stale} == {"copy", "seal"}
        assert sum(event.count for event in stale) == 6
        begun = await engine.restore((await engine.query([1, 2, 3])).lease)
        assert engine.restored(begun) == [page(1), page(2), page(3)]

    play(story)


def test_a_late_completion_is_not_taken_for_one_of_newer_work_on_the_same_memory() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        world.carrier.script[1] = CompletionFault.DELAY
        first = await engine.save([1])
        await engine.vanish(process_too=True)
        assert world.loop.state.saves, "its copy has not ended, so its memory is not reused"
        other = await world.engine()
        second = await other.save([2])
        assert set(first).isdisjoint(second)
        world.carrier.release()
        await wait_all_tasks_blocked()
        assert not world.loop.state.saves
        assert (await other.save([3])) == first, "now it is"

    play(story)


def test_the_store_is_flushed_when_something_was_written() -> None:
    async def story(world: World) -> None:
        await trio.sleep(60)
        assert world.medium.syncs == 0
        engine = await world.engine()
        await engine.save([1])
        await trio.sleep(60)
        assert world.medium.syncs == 1

    play(story)
