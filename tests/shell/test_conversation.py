"""What a client hears, word by word, from its registration to its goodbye."""

from trio.testing import wait_all_tasks_blocked

from orbitkv.events import facts
from orbitkv.events.geometry import GroupGeometry, SliceGeometry
from orbitkv.events.outcomes import Refusal, SaveDrop, SyncOutcome
from orbitkv.io import wire
from orbitkv.io.tokens import HandleKind, TokenSealer
from orbitkv.manager.kernel.columns import unpack
from tests.shell.world import PAGE_TOKENS, World, key, page, play


def test_saved_pages_come_back_from_dram() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        buffers = await engine.save([1, 2, 3])
        assert unpack(engine.notices(wire.SlicesCopied)[0].buffers).tolist() == buffers
        assert unpack(engine.notices(wire.PagesSealed)[0].buffers).tolist() == buffers
        answer = await engine.query([1, 2, 3, 4])
        assert answer.status == wire.QueryStatus.READY
        assert (answer.hits, answer.boundary_tokens) == ((3,), 3 * PAGE_TOKENS)
        begun = await engine.restore(answer.lease)
        assert begun.parts == ((0, 3),)
        assert engine.restored(begun) == [page(1), page(2), page(3)]
        assert await engine.sync(answer.lease, 3) == wire.SyncTaken(engine.calls)
        assert world.loop.state.leases == {}
        assert world.loop.state.reserved_bytes == 0

    play(story)


def test_a_page_of_two_ranks_is_saved_when_both_have_filled_it() -> None:
    async def story(world: World) -> None:
        halves = [GroupGeometry(0, PAGE_TOKENS, (SliceGeometry(f"part {rank}", 5000),)) for rank in range(2)]
        first = await world.engine(rank=0, world_size=2, groups=(halves[0],))
        registration = await first.ask(lambda call: wire.ReadRegistration(call))
        assert not registration.sealed
        second = await world.engine(rank=1, world_size=2, groups=(halves[1],))
        registration = await first.ask(lambda call: wire.ReadRegistration(call))
        assert registration.sealed
        assert registration.groups[0].slices == (wire.SlicePlace("part 0", 0, 5000),)
        registration = await second.ask(lambda call: wire.ReadRegistration(call))
        assert registration.groups[0].slices == (wire.SlicePlace("part 1", 8192, 5000),)
        await first.save([1])
        assert first.notices(wire.SlicesCopied)
        assert not first.notices(wire.PagesSealed)
        await second.save([1])
        assert first.notices(wire.PagesSealed), "whoever filled a part hears that the page is saved"
        assert second.notices(wire.PagesSealed)
        ours, theirs = await first.query([1]), await second.query([1])
        assert ours.operation == theirs.operation, "one decision for all ranks"
        assert ours.lease == theirs.lease

    play(story)


def test_a_query_of_the_ssd_loads_and_the_board_says_when() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1, 2])
        await world.forget_dram()
        world.store.stall()
        answer = await engine.query([1, 2])
        assert answer.status == wire.QueryStatus.LOADING
        operation = engine.session << 32 | 1
        assert (answer.cell, answer.word) == (3, operation)
        again = await engine.poll(answer.operation)
        assert again.status == wire.QueryStatus.LOADING
        assert operation not in world.board.changed
        world.store.release()
        await wait_all_tasks_blocked()
        assert operation in world.board.changed
        ready = await engine.poll(answer.operation)
        assert (ready.status, ready.hits) == (wire.QueryStatus.READY, (2,))
        begun = await engine.restore(ready.lease)
        assert engine.restored(begun) == [page(1), page(2)]

    play(story)


def test_a_sync_sent_twice_takes_effect_once() -> None:
    async def story(world: World) -> None:
        first = await world.engine(rank=0, world_size=2, groups=_half(0))
        second = await world.engine(rank=1, world_size=2, groups=_half(1))
        await first.save([1])
        await second.save([1])
        lease = (await first.query([1])).lease
        await first.restore(lease)
        await second.restore(lease)
        assert await first.sync(lease, 1) == wire.SyncTaken(first.calls)
        assert await first.sync(lease, 1) == wire.SyncTaken(first.calls, repeated=True)
        assert len(world.events(facts.GpuSynced)) == 1

    play(story)


def test_handles_of_another_kind_or_run_open_nothing() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1])
        answer = await engine.query([1])
        wrong = await engine.restore(answer.operation)
        assert wrong.name == "INVALID_HANDLE"
        foreign = TokenSealer(7).seal(HandleKind.LEASE, 1)
        old = await engine.restore(foreign)
        assert old.name == "OTHER_INCARNATION"
        assert "incarnation 7" in old.sentence
        before = len(world.records)
        await engine.poll(b"\0" * wire.HANDLE_BYTES)
        assert len(world.records) == before

    play(story)


def test_another_instances_lease_is_refused() -> None:
    async def story(world: World) -> None:
        engine = await world.engine(instance="one")
        other = await world.engine(instance="two")
        await engine.save([1])
        answer = await engine.query([1])
        assert (await other.restore(answer.lease)).refusal == Refusal.FOREIGN
        assert (await other.poll(answer.operation)).refusal == Refusal.FOREIGN

    play(story)


def test_who_has_not_registered_is_told_to() -> None:
    async def story(world: World) -> None:
        client = await world.connect()
        for reply in (await client.query([1]), await client.begin_save([1])):
            assert reply.refusal == Refusal.NOT_REGISTERED
        unregistered = await client.ask(lambda call: wire.ReadRegistration(call))
        assert unregistered.refusal == Refusal.NOT_REGISTERED

    play(story)


def test_repeated_keys_and_foreign_groups_are_malformed() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        assert (await engine.query([1, 2, 1])).refusal == Refusal.MALFORMED
        part = wire.QueryPart(9, PAGE_TOKENS, 0, [key(1)])
        reply = await engine.ask(lambda call: wire.SubmitQuery(call, "r", 0, 50, 0, [part]))
        assert reply.refusal == Refusal.MALFORMED
        assert "group 9" in reply.sentence

    play(story)


def test_a_full_table_answers_busy_and_opens_nothing() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1])
        for number in range(world.config.operations_per_session_max):
            assert (await engine.query([1], request=str(number))).status == wire.QueryStatus.READY
        busy = await engine.query([1], request="one too many")
        assert busy == wire.QueryAnswered(engine.calls, wire.QueryStatus.BUSY)

    play(story)


def test_the_same_request_again_is_the_same_operation() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1])
        first, again = await engine.query([1]), await engine.query([1])
        assert first.operation == again.operation
        conflict = await engine.query([2])
        assert conflict.refusal == Refusal.REVISION_CONFLICT
        revised = await engine.query([2], revision=1)
        assert revised.status == wire.QueryStatus.MISSED
        assert (await engine.poll(first.operation)).status == wire.QueryStatus.RETIRED

    play(story)


def test_what_is_resident_in_progress_or_without_credit_is_not_wanted() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1])
        begun = await engine.begin_save([1, 2, 3, 4], credit_pages=2)
        assert unpack(begun.positions).tolist() == [1, 2]
        assert dict(begun.dropped) == {SaveDrop.RESIDENT: 1, SaveDrop.NO_CREDIT: 1}
        aborted = await engine.ask(lambda call: wire.AbortSave(call, begun.buffers, begun.generations))
        assert aborted == wire.Done(engine.calls)
        assert world.loop.state.saves == {}

    play(story)


def test_a_window_that_is_not_as_announced_is_refused_and_the_rank_may_try_again() -> None:
    async def story(world: World) -> None:
        client = await world.connect()
        unsent = await client.register(staging_bytes=4096, window_bytes=0)
        assert unsent.refusal == Refusal.MALFORMED
        assert "none was sent" in unsent.sentence
        unannounced = await client.register(staging_bytes=0, window_bytes=4096)
        assert "one was sent" in unannounced.sentence
        short = await client.register(staging_bytes=8192, window_bytes=4096)
        assert "shorter than announced" in short.sentence
        assert not world.loop.state.instances
        assert isinstance(await client.register(), wire.Registered)
        twice = await client.register(staging_bytes=0)
        assert twice.refusal == Refusal.MALFORMED
        assert await client.save([1]), "the second registration left the first one's window alone"

    play(story)


def test_an_operator_drops_dram_and_releases_a_process() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1, 2])
        admin = await world.connect()
        assert await admin.ask(lambda call: wire.DropDram(call)) == wire.Done(1, 2)
        assert await admin.ask(lambda call: wire.ReadStatus(call)) == wire.StatusReport(2, "{}")
        await engine.save([3])
        lease = (await engine.query([3])).lease
        await engine.restore(lease)
        await engine.vanish()
        assert world.loop.state.leases, "its copy may still run"
        assert await admin.ask(lambda call: wire.ReleaseProcess(call, engine.process)) == wire.Done(3, 1)
        assert not world.loop.state.leases

    play(story)


def test_a_goodbye_is_answered_and_then_the_connection_is_closed() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        assert await engine.ask(lambda call: wire.CloseSession(call)) == wire.Done(engine.calls)
        assert world.channel.closed == [engine.session]
        assert engine.session not in world.loop.state.sessions

    play(story)


def test_a_stage_is_a_fact_without_an_answer() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        reply = await engine.ask(lambda call: wire.ReportStage(call, "r", 0, "first_use", 1, 2))
        assert reply is None
        assert [event.stage for event in world.events(facts.StageReported)] == ["first_use"]

    play(story)


def test_a_failed_copy_with_an_unknown_end_holds_its_pages_until_the_process_is_gone() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1])
        lease = (await engine.query([1])).lease
        await engine.restore(lease)
        await engine.sync(lease, 1, SyncOutcome.UNKNOWN)
        assert await world.manager.drop_dram() == {"evicted_pages": 0}
        await engine.vanish(process_too=True)
        assert await world.manager.drop_dram() == {"evicted_pages": 1}

    play(story)


def _half(rank: int) -> tuple[GroupGeometry, ...]:
    return (GroupGeometry(0, PAGE_TOKENS, (SliceGeometry(f"part {rank}", 5000),)),)
