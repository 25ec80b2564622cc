"""An embedded engine as its front sees it: started, fed, drained, ended.

Owns the engine's processes: however the `running_engine` block is left, they are gone afterwards.
"""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import IO

import msgspec
import trio

from orbitkv.adapters.embedded.child import Child, Family
from orbitkv.adapters.embedded.link import MESSAGE_BYTES_MAX, encode, pair
from orbitkv.adapters.embedded.messages import (
    Abort,
    Arrive,
    Configure,
    Drain,
    EngineConfig,
    Failed,
    Finished,
    Progress,
    Ready,
    SchedulerMessage,
)
from orbitkv.adapters.errors import AdapterError

END_GRACE_S = 5.0
"""How long a process may take to end by itself; its link is closed by then, so it has nothing to wait for."""

_decoder = msgspec.msgpack.Decoder[SchedulerMessage](SchedulerMessage)


class EngineFailed(AdapterError):
    """The engine's processes cannot go on."""


class EmbeddedEngine:
    def __init__(self, name: str, front: trio.socket.SocketType) -> None:
        self.name = name
        self._front = front

    async def ready(self) -> None:
        """Wait until all ranks are registered. Raises EngineFailed."""
        message = await self.receive()
        assert isinstance(message, Ready)

    async def submit(self, request: Arrive) -> None:
        """Put a request into the engine's queue; waits while the engine takes nothing."""
        await self._send(request)

    async def abort(self, name: str) -> None:
        """Nobody waits for this request any more."""
        await self._send(Abort(name))

    async def drain(self) -> None:
        """No more requests: the engine will report when all have ended."""
        await self._send(Drain())

    async def receive(self) -> Ready | Progress | Finished:
        """The engine's next word. Raises EngineFailed."""
        try:
            data = await self._front.recv(MESSAGE_BYTES_MAX)
        except OSError:
            data = b""
        if not data:
            raise self._gone("It ended without a word.")
        message = _decoder.decode(data)
        if isinstance(message, Failed):
            raise self._gone(message.sentence)
        return message

    async def _send(self, message: msgspec.Struct) -> None:
        try:
            await self._front.send(encode(message))
        except OSError as error:
            raise self._gone(f"It takes no messages any more ({error.strerror}).") from error

    def _gone(self, why: str) -> EngineFailed:
        remedy = "see what its processes printed, in the engines' log"
        return EngineFailed(f"The engine {self.name} cannot go on.", why, remedy)


@asynccontextmanager
async def running_engine(config: EngineConfig, output: IO[bytes]) -> AsyncGenerator[EmbeddedEngine, None]:
    """Start scheduler and ranks; their words for people go to `output`. Main thread only. Raises OSError."""
    async with Family(END_GRACE_S) as family:
        front = _start(config, family, output)
        with front:
            await front.send(encode(Configure(config)))
            yield EmbeddedEngine(config.instance, front)


def _start(config: EngineConfig, family: Family, output: IO[bytes]) -> trio.socket.SocketType:
    """All processes of the engine, each with one end of its link; the other ends are closed here."""
    front, inner_front = pair()
    inner: list[socket.socket] = [inner_front]
    try:
        for rank in range(config.ranks):
            upper, lower = pair()
            inner.append(upper)
            with lower:
                family.add(_process(f"{config.instance} rank {rank}", "rank_process", [lower], output))
        family.add(_process(f"{config.instance} scheduler", "scheduler_process", inner, output))
    except BaseException:
        front.close()
        raise
    finally:
        for end in inner:
            end.close()
    return trio.socket.from_stdlib_socket(front)


def _process(name: str, module: str, links: list[socket.socket], output: IO[bytes]) -> Child:
    descriptors = [link.fileno() for link in links]
    arguments = ["-m", f"orbitkv.adapters.embedded.{module}", *map(str, descriptors)]
    return Child(name, arguments, output=output, pass_fds=descriptors)
