"""Driving a channel from a test: until it is quiet, until a condition holds, while something else runs."""

from collections.abc import Callable
from typing import TypeVar

import trio

from orbitkv.io.channel import SocketChannel
from orbitkv.manager.ports import Connected, Inbound
from tests.channel.raw import RawClient

Value = TypeVar("Value")


async def settle(channel: SocketChannel) -> list[Inbound]:
    """What comes in until nothing more does; for clients in this very thread, whose messages are there."""
    inbound: list[Inbound] = []
    while True:
        with trio.move_on_after(0.05) as scope:
            inbound += await channel.receive()
        if scope.cancelled_caught:
            return inbound


async def take(channel: SocketChannel, count: int) -> list[Inbound]:
    """The next so many things that come in."""
    inbound: list[Inbound] = []
    with trio.fail_after(20):
        while len(inbound) < count:
            inbound += await channel.receive()
    return inbound


async def serve_while(channel: SocketChannel, work: Callable[[], Value]) -> tuple[list[Inbound], Value]:
    """(what came in, what `work` returned), serving while it runs in another thread."""
    inbound: list[Inbound] = []

    async def serve() -> None:
        while True:
            inbound.extend(await channel.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        value = await trio.to_thread.run_sync(work)
        nursery.cancel_scope.cancel()
    return inbound, value


async def connect(channel: SocketChannel, client: RawClient) -> int:
    """Shake hands; returns the session. Drops what else comes in meanwhile."""
    client.hello()
    with trio.fail_after(20):
        while not any(isinstance(item, Connected) for item in await channel.receive()):
            pass
    welcome = client.welcome()
    return welcome.session  # type: ignore[union-attr]  # a refusal fails the test right here
