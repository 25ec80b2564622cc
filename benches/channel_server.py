"""A manager in a process of its own for the channel bench: the real kernel and log behind either transport.

    python -m benches.channel_server TRANSPORT SOCKET LOG_DIRECTORY PAGES     TRANSPORT: channel or zmq

`channel` is the manager's own end of the socket with the manager's own task over it. `zmq` is a bare
blocking loop over a pyzmq ROUTER that hands the same decoded requests to the same code, so that what
differs is the transport alone. Prints "ready", and serves until its standard input ends.

Pages are put into DRAM by stepping the commands that a save would; nobody looks at their bytes.
"""

import gc
import os
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import trio

from orbitkv.events.commands import (
    BeginSave,
    Command,
    CommitSave,
    CompleteCopies,
    CompleteSeals,
    OpenSession,
    RegisterRank,
)
from orbitkv.events.config import MIB, KernelConfig
from orbitkv.events.geometry import GroupGeometry, SliceGeometry, image_bytes
from orbitkv.events.record import Record
from orbitkv.io.board import Board
from orbitkv.io.carrier import Carrier
from orbitkv.io.channel import Greeter, SocketChannel
from orbitkv.io.clock import SystemClock
from orbitkv.io.framing import decode_request, encode_message
from orbitkv.io.host import this_host
from orbitkv.io.journal import FileJournal
from orbitkv.io.listener import Listener
from orbitkv.io.memory import MemoryPool
from orbitkv.io.segments import LogDirectory
from orbitkv.io.tokens import TokenSealer
from orbitkv.manager.kernel import KERNEL_REVISION, new_state, views
from orbitkv.manager.kernel.columns import pack, unpack
from orbitkv.manager.kernel.snapshot import snapshot
from orbitkv.manager.kernel.state import State
from orbitkv.manager.ports import Channel, Connected, Inbound, Request
from orbitkv.manager.shell.admission import Admission
from orbitkv.manager.shell.assembly import Ports, assemble
from orbitkv.manager.shell.health import Health
from orbitkv.manager.shell.inbox import inputs
from orbitkv.manager.shell.loop import Loop
from orbitkv.manager.shell.start import NO_STORE, start_incarnation

FOOTPRINT_BYTES = 4096
GROUP = GroupGeometry(0, 64, (SliceGeometry("all", FOOTPRINT_BYTES),))
NAMESPACE_DIGEST = bytes(16)
FILLER_SESSION = 1
INCARNATION = 1
_PAGES_AT_ONCE = 512
_LAG_BYTES_MAX = 256 * MIB
ROUTER_PROCESSES_FROM = 1000


def page_keys(pages: int) -> list[bytes]:
    """The same in the server and in its clients."""
    source = random.Random(7)
    return [source.randbytes(32) for _ in range(pages)]


def kernel_config(pages: int) -> KernelConfig:
    pool_bytes = (pages * image_bytes(FOOTPRINT_BYTES) // (16 * MIB) + 2) * 16 * MIB
    return KernelConfig(
        pool_bytes=pool_bytes,
        superblock_bytes=16 * MIB,
        query_budget_bytes=pool_bytes,
        # One query of 1,024 pages fits and a second one waits, which is what the poll is measured on.
        instance_query_budget_bytes=1536 * FOOTPRINT_BYTES,
    )


def fill(loop: Loop, keys: Sequence[bytes]) -> None:
    """One engine saves all these pages, and stays."""
    _step(loop, OpenSession(FILLER_SESSION, 1, os.getpid(), os.getuid(), True))
    _step(
        loop,
        RegisterRank(
            FILLER_SESSION, "filler", 0, 1, this_host(), NAMESPACE_DIGEST, "{}", False, (GROUP,), 1 << 40
        ),
    )
    for first in range(0, len(keys), _PAGES_AT_ONCE):
        _save(loop, keys[first : first + _PAGES_AT_ONCE])


def _save(loop: Loop, keys: Sequence[bytes]) -> None:
    pages, unknown = views.resolve_keys(loop.state, 0, keys)
    begin = BeginSave(FILLER_SESSION, 0, pages, unknown)
    _step(loop, begin)
    buffers = pack(views.save_plan(loop.state, begin))
    generations = views.generations(loop.state, unpack(buffers).tolist())
    _step(loop, CommitSave(FILLER_SESSION, buffers, bytes(8 * len(keys)), generations))
    _step(loop, CompleteCopies(FILLER_SESSION, 0, buffers, bytes(len(keys)), 1))
    _step(loop, CompleteSeals(buffers))


def _step(loop: Loop, command: Command) -> None:
    result = loop.ask(command)
    assert isinstance(result, Record), result


class RouterChannel:
    """The channel's port over a pyzmq ROUTER, as far as a bench needs it: whoever writes is a session."""

    def __init__(self, path: str) -> None:
        import zmq

        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.bind(f"ipc://{path}")
        self._sessions: dict[bytes, int] = {}
        self._identities: dict[int, bytes] = {}

    def next_round(self) -> list[Inbound]:
        """Blocks for one request."""
        identity, data = self._socket.recv_multipart()
        request = decode_request(data)
        session = self._sessions.get(identity)
        if session is not None:
            return [Request(session, request)]
        session = FILLER_SESSION + 1 + len(self._sessions)
        self._sessions[identity] = session
        self._identities[session] = identity
        process = ROUTER_PROCESSES_FROM + session
        return [
            Connected(session, process, process, os.getuid(), this_host(), True),
            Request(session, request),
        ]

    def send(self, session: int, reply: object) -> None:
        self._socket.send_multipart([self._identities[session], encode_message(reply)])  # type: ignore[arg-type]  # the port says object

    async def receive(self) -> list[Inbound]:
        raise NotImplementedError("the bench's own loop receives")

    def close_session(self, session: int) -> None:
        pass

    async def aclose(self) -> None:
        pass


async def _meet_filler(channel: SocketChannel, path: Path) -> None:
    """Use up the session number that the filler has in the kernel."""
    from orbitkv.adapters.handshake import shake_hands

    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            while True:
                await channel.receive()

        nursery.start_soon(serve)
        greeted = await trio.to_thread.run_sync(shake_hands, str(path), 5.0)
        nursery.cancel_scope.cancel()
    greeted.socket.close()
    os.close(greeted.pool_fd)
    os.close(greeted.board_fd)
    await channel.receive()


def begin_log(directory: Path, state: State) -> FileJournal:
    """A real log for a state that is still empty."""
    return FileJournal.begin(
        LogDirectory.open(directory),
        SystemClock(),
        incarnation=INCARNATION,
        kernel_revision=KERNEL_REVISION,
        snapshot=snapshot(state),
    )


async def serve(
    transport: str, path: Path, loop: Loop, pages: int, until: Callable[[], Awaitable[None]]
) -> None:
    """Fill the pool of a loop that is still empty, print "ready", and serve `until` that returns."""
    config = kernel_config(pages)
    start_incarnation(loop, INCARNATION, config, NO_STORE, this_host(), ())
    fill(loop, page_keys(pages))
    pool = MemoryPool(config.pool_bytes, config.superblock_bytes)
    board = Board(config.operations_max)
    channel: Channel
    if transport == "zmq":
        channel = RouterChannel(str(path))
    else:
        greeter = Greeter("bench", INCARNATION, pool.pool_bytes, pool.reader_fd(), board)
        channel = SocketChannel(Listener(path), greeter)
        await _meet_filler(channel, path)
    manager = assemble(
        loop,
        Ports(
            channel=channel,
            carrier=Carrier(pool.view),
            pool=pool,
            store=None,
            board=board,
            handles=TokenSealer(INCARNATION),
        ),
        Health(lambda line: None),
        Admission(loop.journal, _LAG_BYTES_MAX),
        lambda: "{}",
    )
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    if isinstance(channel, RouterChannel):
        while True:
            loop.process(inputs(manager.desk, channel.next_round()))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.run)
        await until()
        nursery.cancel_scope.cancel()
    await channel.aclose()
    await loop.journal.aclose()


async def _input_ends() -> None:
    await trio.lowlevel.wait_readable(sys.stdin.fileno())


async def main() -> None:
    transport, path, log, pages = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    state = new_state()
    loop = Loop(state, begin_log(log, state), SystemClock())
    await serve(transport, path, loop, pages, _input_ends)


if __name__ == "__main__":
    trio.run(main)
