"""A client that never stops talking holds up neither completions nor the clock."""

from itertools import count

import trio
from trio.testing import wait_all_tasks_blocked

from orbitkv.io import wire
from orbitkv.manager.ports import Inbound, Request
from orbitkv.manager.shell.inbox import TURN_MESSAGES_MAX
from tests.shell.world import World, play


def test_completions_come_in_between_the_turns_of_a_flood() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1])
        await world.forget_dram()
        world.store.stall()
        loading = await engine.query([1])
        calls = count(engine.calls + 1)
        received: list[int] = []
        honest = world.channel.receive

        async def flood() -> list[Inbound]:
            """Always something to do, and never a wait: as a channel whose sockets are all ready."""
            if not world.loop.state.reads or (received and sum(received) > 100_000):
                return await honest()
            batch: list[Inbound] = [
                Request(engine.session, wire.PollQuery(next(calls), loading.operation)) for _ in range(16)
            ]
            received.append(len(batch))
            return batch

        world.channel.receive = flood  # type: ignore[method-assign]  # the double's own
        world.channel.put()
        world.store.release()
        engine.calls = 1000
        await engine.ask(lambda call: wire.ReadStatus(call))
        assert not world.loop.state.reads, "the read's completion was stepped"
        assert sum(received) <= 4 * TURN_MESSAGES_MAX

    play(story)


def test_order_within_a_session_is_kept() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        messages = [wire.ReadStatus(engine.calls + number) for number in range(1, 11)]
        world.channel.put(*(Request(engine.session, message) for message in messages))
        await wait_all_tasks_blocked()
        assert [reply.call for reply in engine.inbox] == [message.call for message in messages]
        await trio.lowlevel.checkpoint()

    play(story)
