"""Hints from the wire to the SSD and back to nothing: no reply, whatever becomes of them, and no leak."""

from collections.abc import Sequence

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from orbitkv.events import facts
from orbitkv.events.outcomes import HintEnd, HintSkip, Origin, PageClass, Phase, Refusal
from orbitkv.io import wire
from tests.shell.world import CONFIG, PAGE_BYTES, PAGE_TOKENS, Client, World, key, page, play

FOOTPRINT = PAGE_BYTES
"""One slice, a multiple of the alignment."""


async def on_ssd(world: World, client: Client, numbers: list[int]) -> None:
    """Save pages and take them out of DRAM."""
    await client.save(numbers)
    await world.forget_dram()


async def hint(
    client: Client, numbers: Sequence[int], request: str = "r", attempt: int = 0, revision: int = 0
) -> int:
    """Send it, let everything happen, and see that nothing is answered. The ticket."""
    part = wire.QueryPart(0, PAGE_TOKENS, 0, [key(number) for number in numbers])
    return await hint_parts(client, [part], request, attempt, revision)


async def hint_parts(
    client: Client, parts: list[wire.QueryPart], request: str = "r", attempt: int = 0, revision: int = 0
) -> int:
    client.tickets += 1
    heard = len(client.inbox)
    await client.ask(lambda call: wire.WarmPrefix(call, request, attempt, client.tickets, revision, parts))
    assert len(client.inbox) == heard
    return client.tickets


async def cancel(client: Client, ticket: int) -> None:
    heard = len(client.inbox)
    await client.ask(lambda call: wire.CancelHint(call, ticket))
    assert len(client.inbox) == heard


def ends(world: World) -> list[HintEnd]:
    return [event.end for event in world.events(facts.HintEnded)]


def test_a_hint_is_read_and_never_answered() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await on_ssd(world, engine, [1, 2, 3])
        await hint(engine, [1, 2, 3, 9])
        state = world.loop.state
        assert (len(world.store.reads), ends(world)) == (3, [HintEnd.PREPARED])
        assert (state.reserved_bytes, state.totals.prepared_bytes) == (0, 3 * FOOTPRINT)
        answer = await engine.query([1, 2, 3])
        assert (answer.status, answer.hits) == (wire.QueryStatus.READY, (3,))
        begun = await engine.restore(answer.lease)
        assert engine.restored(begun) == [page(1), page(2), page(3)]
        await engine.sync(answer.lease, 3)
        assert (state.totals.restored_bytes, state.pending_bytes) == (3 * FOOTPRINT, 0)
        assert len(world.store.reads) == 3

    play(story)


def test_reserved_while_read_and_not_longer_though_nobody_polls() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await on_ssd(world, engine, [1, 2])
        world.store.stall()
        await hint(engine, [1, 2])
        state = world.loop.state
        assert state.reserved_by_phase[Phase.WARMING] == state.reserved_bytes == 2 * FOOTPRINT
        world.store.release()
        await wait_all_tasks_blocked()
        assert state.reserved_bytes == 0
        assert state.totals.prepared_bytes == state.pending_bytes == 2 * FOOTPRINT
        inserted = world.events(facts.PagesInserted)[-1]
        assert (inserted.page_class, inserted.origin) == (PageClass.RECLAIMABLE, Origin.WARM)

    play(story)


def test_a_cancelled_hint_drains_under_its_own_reservation() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await on_ssd(world, engine, [1, 2])
        world.store.stall()
        ticket = await hint(engine, [1, 2])
        await cancel(engine, ticket)
        await cancel(engine, ticket)
        await cancel(engine, 4000)
        state = world.loop.state
        assert ends(world) == [HintEnd.CANCELLED]
        assert state.reserved_bytes == 2 * FOOTPRINT
        world.store.release()
        await wait_all_tasks_blocked()
        assert state.reserved_bytes == 0
        again = await hint(engine, [1, 2], attempt=1)
        assert again > ticket
        assert state.totals.hints_not_needed == 1

    play(story)


def test_a_session_that_dies_between_submission_and_completion() -> None:
    async def story(world: World) -> None:
        engine, other = await world.engine(instance="one"), await world.engine(instance="two")
        await on_ssd(world, engine, [1, 2])
        world.store.stall()
        await hint(engine, [1, 2])
        await engine.vanish(process_too=True)
        state = world.loop.state
        assert ends(world) == [HintEnd.DISCONNECTED]
        assert state.reserved_bytes == 2 * FOOTPRINT
        world.store.release()
        await wait_all_tasks_blocked()
        assert (state.reserved_bytes, len(state.hints)) == (0, 0)
        answer = await other.query([1, 2])
        assert answer.status == wire.QueryStatus.READY, "what was read is there for others"
        assert len(world.store.reads) == 2

    play(story)


def test_a_hint_that_nobody_follows_up_expires() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await on_ssd(world, engine, [1])
        world.store.stall()
        await hint(engine, [1])
        await trio.sleep(5.3)
        assert ends(world) == [HintEnd.EXPIRED]
        world.store.release()
        await wait_all_tasks_blocked()
        assert world.loop.state.reserved_bytes == 0

    play(story)


def test_cancel_then_submit_hands_the_reads_to_the_demand() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await on_ssd(world, engine, [1, 2])
        world.store.stall()
        ticket = await hint(engine, [1, 2])
        await cancel(engine, ticket)
        loading = await engine.query([1, 2])
        assert loading.status == wire.QueryStatus.LOADING
        world.store.release()
        await wait_all_tasks_blocked()
        answer = await engine.poll(loading.operation)
        assert (answer.status, answer.hits) == (wire.QueryStatus.READY, (2,))
        assert len(world.store.reads) == 2, "joined, not read again"
        await engine.release(answer.lease)
        assert world.loop.state.reserved_bytes == 0

    play(story)


def test_a_hint_after_its_request_has_finished_is_one_like_any_other() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1])
        answer = await engine.query([1])
        await engine.restore(answer.lease)
        await engine.sync(answer.lease, 1)
        await hint(engine, [1])
        await world.forget_dram()
        await hint(engine, [1])
        state = world.loop.state
        assert (state.totals.hints_not_needed, ends(world)) == (1, [HintEnd.PREPARED])
        assert (state.reserved_bytes, len(state.hints), len(state.operations)) == (0, 0, 0)

    play(story)


def test_a_skip_is_in_the_log_and_nowhere_else() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await on_ssd(world, engine, [1])
        await engine.save([9])
        lease = (await engine.query([9], request="foreground")).lease
        await hint(engine, [1])
        assert [event.reason for event in world.events(facts.HintSkipped)] == [HintSkip.FOREGROUND]
        assert world.store.reads == []
        await engine.release(lease)
        await hint(engine, [1])
        assert len(world.store.reads) == 1

    play(story)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([(0, [])], "zero hashes"),
        ([(0, [1, 2, 1])], "a repeated one"),
        ([(0, [7, 7])], "a repeated one that nobody knows"),
        ([(9, [1])], "an unknown group"),
        ([(0, [1]), (0, [2])], "one group twice"),
        ([(0, list(range(1, 10)))], "too many"),
    ],
)
def test_a_malformed_hint_is_counted_and_changes_nothing(
    parts: list[tuple[int, list[int]]], why: str
) -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await on_ssd(world, engine, [1, 2])
        records = len(world.records)
        named = [wire.QueryPart(group, PAGE_TOKENS, 0, [key(n) for n in numbers]) for group, numbers in parts]
        await hint_parts(engine, named)
        assert len(world.records) == records, why
        assert world.admission.refused_hints == {Refusal.MALFORMED: 1}
        assert world.channel.closed == []
        assert world.store.reads == []
        await hint(engine, [1, 2])
        assert len(world.store.reads) == 2, "the session goes on, and so does the request's right to a hint"

    play(story, config=msgspec.structs.replace(CONFIG, query_keys_max=8))


def test_pages_of_another_size_are_malformed() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await hint_parts(engine, [wire.QueryPart(0, PAGE_TOKENS * 2, 0, [key(1)])])
        assert world.admission.refused_hints == {Refusal.MALFORMED: 1}

    play(story)


def test_an_instance_that_is_not_sealed_gets_nothing_and_hears_nothing() -> None:
    async def story(world: World) -> None:
        stranger = await world.connect()
        await hint(stranger, [1])
        await cancel(stranger, 1)
        first = await world.engine(rank=0, world_size=2)
        await hint(first, [1])
        await cancel(first, first.tickets)
        assert world.admission.refused_hints == {Refusal.NOT_REGISTERED: 2}
        assert world.loop.state.hints == {}

    play(story)


def test_tickets_and_revisions_of_the_past_are_refused() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await on_ssd(world, engine, [1, 2, 3])
        world.store.stall()
        await hint(engine, [1], revision=1)
        await hint(engine, [1], revision=1)
        assert world.admission.refused_hints == {}, "the same again is no mistake"
        await hint(engine, [2], revision=1)
        assert world.admission.refused_hints == {Refusal.REVISION_CONFLICT: 1}
        await hint(engine, [2], revision=0)
        assert world.admission.refused_hints[Refusal.STALE] == 1
        await hint(engine, [2, 3], revision=2)
        assert ends(world) == [HintEnd.REVISED]
        engine.tickets = 0
        await hint(engine, [3], request="another")
        assert world.admission.refused_hints[Refusal.STALE] == 2
        world.store.release()
        await wait_all_tasks_blocked()
        assert world.loop.state.reserved_bytes == 0

    play(story)


def test_while_the_log_is_full_hints_are_dropped_and_counted_but_their_ends_go_through() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await on_ssd(world, engine, [1, 2])
        world.store.stall()
        ticket = await hint(engine, [1], request="before")
        world.journal.fill()
        seq = world.loop.state.seq
        await hint(engine, [2], request="meanwhile")
        assert (world.admission.unlogged_hints, world.loop.state.seq) == (1, seq)
        await cancel(engine, ticket)
        assert world.loop.state.totals.hint_ends == {HintEnd.CANCELLED: 1}
        world.store.release()
        await wait_all_tasks_blocked()
        assert world.loop.state.reserved_bytes == 0
        world.journal.resume()
        await hint(engine, [2], request="afterwards")
        assert ends(world) == [HintEnd.CANCELLED, HintEnd.PREPARED]

    play(story)
