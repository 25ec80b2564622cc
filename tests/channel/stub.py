"""A manager without a kernel: the real channel in a thread of its own, answered from a dictionary.

It lets the tests of the client and of the channel run against real sockets and a real pool without
anything else of the manager. It knows one rank per instance and keeps no promises beyond that.
"""

import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import trio

from orbitkv.events.geometry import padded_bytes
from orbitkv.events.ids import ALIGNMENT_BYTES
from orbitkv.events.outcomes import CopyOutcome, Refusal
from orbitkv.io import wire
from orbitkv.io.board import Board
from orbitkv.io.channel import ChannelLimits, Greeter, SocketChannel
from orbitkv.io.listener import Listener
from orbitkv.io.peers import ProcessTable
from orbitkv.io.tokens import HandleKind, HandleRefused, TokenSealer
from orbitkv.manager.ports import Inbound, Request

POOL_BYTES = 4 << 20


def pool_file(pool_bytes: int = POOL_BYTES) -> tuple[int, mmap.mmap]:
    """(descriptor for readers, the owner's mapping)."""
    fd = os.memfd_create("test-pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, pool_bytes)
    return fd, mmap.mmap(fd, pool_bytes)


def make_channel(
    path: Path,
    *,
    incarnation: int = 1,
    limits: ChannelLimits | None = None,
    processes: ProcessTable | None = None,
    board: Board | None = None,
    pool_fd: int = -1,
) -> SocketChannel:
    if pool_fd < 0:
        pool_fd, mapping = pool_file()
        mapping.close()
    greeter = Greeter("0.test", incarnation, POOL_BYTES, pool_fd, board or Board(16))
    return SocketChannel(Listener(path), greeter, limits, processes)


class StubManager:
    """Answers every request at once, unless `hook` answers it first."""

    def __init__(self, path: Path, *, incarnation: int = 1, limits: ChannelLimits | None = None) -> None:
        self.path = path
        self.incarnation = incarnation
        self.sealer = TokenSealer(incarnation)
        self.board = Board(64)
        self.seen: list[Inbound] = []
        self.resident: dict[bytes, int] = {}
        """Key to pool offset."""
        self.loading: set[int] = set()
        """Operations that have no answer yet."""
        self.staging: dict[int, mmap.mmap] = {}
        self.hold_copies = False
        """True: committed slices are not fetched until `fetch()`."""
        self.hook: Callable[[Request], wire.Reply | bool | None] = lambda request: None
        """May return a reply, or True for "nothing is to be said"."""
        self._limits = limits
        self._groups: dict[int, tuple[wire.GroupLayout, ...]] = {}
        self._operations: dict[tuple[str, int], int] = {}
        self._asked: dict[int, wire.SubmitQuery] = {}
        self._leases: dict[int, tuple[tuple[tuple[int, int], ...], list[int]]] = {}
        self._wanted: dict[int, bytes] = {}
        self._committed: list[tuple[int, wire.CommitSave]] = []
        self._synced: set[int] = set()
        self._next_buffer = 0
        fd, self.pool = pool_file()
        self._next_offset = 0
        self._pool_fd = fd
        self._ready = threading.Event()
        self._finished = threading.Event()
        self._thread = threading.Thread(target=lambda: trio.run(self._main), daemon=True)

    # --- life -----------------------------------------------------------------------------------------

    def __enter__(self) -> "StubManager":
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._token.run_sync_soon(self._scope.cancel)
            self._thread.join(10)
        self.pool.close()
        for window in self.staging.values():
            window.close()
        self.staging.clear()

    def call(self, function: Callable[[], None]) -> None:
        """Run something in the manager's thread, and wait for it."""
        done = threading.Event()

        def run() -> None:
            function()
            done.set()

        self._token.run_sync_soon(run)
        assert done.wait(10)

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        channel = make_channel(
            self.path,
            incarnation=self.incarnation,
            limits=self._limits,
            board=self.board,
            pool_fd=self._pool_fd,
        )
        self.channel = channel
        with trio.CancelScope() as self._scope:
            self._ready.set()
            while True:
                for item in await channel.receive():
                    self.seen.append(item)
                    if isinstance(item, Request):
                        self._serve(item)
        await channel.aclose()

    # --- answers --------------------------------------------------------------------------------------

    def _serve(self, request: Request) -> None:
        reply = self.hook(request)
        if reply is None:
            reply = self._reply(request)
        if not isinstance(reply, bool):
            self.channel.send(request.session, reply)
        if isinstance(request.message, wire.CommitSave) and not self.hold_copies:
            self._fetch()
        if isinstance(request.message, wire.CloseSession):
            self.channel.close_session(request.session)

    def _reply(self, request: Request) -> wire.Reply | bool:
        message = request.message
        assert isinstance(message, wire.Request)
        session = request.session
        try:
            match message:
                case wire.RegisterRank():
                    return self._register(session, message, request.descriptor)
                case wire.ReadRegistration():
                    return wire.Registered(message.call, 1, True, self._groups[session])
                case wire.SubmitQuery():
                    return self._submit(session, message)
                case wire.PollQuery():
                    return self._answer(
                        message.call, self.sealer.open(HandleKind.OPERATION, message.operation)
                    )
                case wire.CancelQuery():
                    self.board.moved(self.sealer.open(HandleKind.OPERATION, message.operation))
                    return wire.Done(message.call, 1)
                case wire.BeginRestore():
                    lease = self.sealer.open(HandleKind.LEASE, message.lease)
                    parts, offsets = self._leases[lease]
                    asked = self._asked[lease]
                    return wire.RestoreBegun(
                        message.call, parts, _wide(offsets), asked.request, asked.attempt
                    )
                case wire.ReportSync():
                    lease = self.sealer.open(HandleKind.LEASE, message.lease)
                    repeated = lease in self._synced
                    self._synced.add(lease)
                    return wire.SyncTaken(message.call, repeated=repeated)
                case wire.BeginSave():
                    return self._begin_save(message)
                case wire.CommitSave():
                    self._committed.append((session, message))
                    return wire.SaveCommitted(message.call, message.buffers)
                case wire.ReportStage() | wire.WarmPrefix() | wire.CancelHint():
                    return True
                case wire.ReadStatus():
                    return wire.StatusReport(message.call, "{}")
                case wire.ReleaseLease():
                    self.sealer.open(HandleKind.LEASE, message.lease)
                    return wire.Done(message.call, 1)
                case wire.AbortSave() | wire.CloseSession() | wire.ReleaseProcess():
                    return wire.Done(message.call)
                case wire.DropDram():
                    return wire.Done(message.call, 7)
        except HandleRefused as no:
            return wire.ErrorReply(message.call, no.refusal, no.refusal.name, str(no), no.refusal.retry_helps)
        raise AssertionError(message)

    def _register(self, session: int, message: wire.RegisterRank, descriptor: int) -> wire.Registered:
        layouts = []
        for group in message.groups:
            offset = 0
            places = []
            for piece in group.slices:
                places.append(wire.SlicePlace(piece.slice, offset, piece.payload_bytes))
                offset += padded_bytes(piece.payload_bytes)
            layouts.append(wire.GroupLayout(group.group, offset, tuple(places)))
        self._groups[session] = tuple(layouts)
        if descriptor >= 0:
            self.staging[session] = mmap.mmap(descriptor, message.staging_bytes, prot=mmap.PROT_READ)
            os.close(descriptor)
        return wire.Registered(message.call, 1, True, self._groups[session])

    def _submit(self, session: int, message: wire.SubmitQuery) -> wire.Reply:
        operation = self._operations.setdefault(
            (message.request, message.attempt), (session << 32) | message.ticket
        )
        self._asked.setdefault(operation, message)
        return self._answer(message.call, operation)

    def _answer(self, call: int, operation: int) -> wire.Reply:
        handle = self.sealer.seal(HandleKind.OPERATION, operation)
        if operation in self.loading:
            return wire.QueryAnswered(call, wire.QueryStatus.LOADING, handle, *self.board.watch(operation))
        message = self._asked.get(operation)
        if message is None:
            refusal = Refusal.RETIRED
            return wire.ErrorReply(call, refusal, refusal.name, "It has ended. Query again.", False)
        hits, offsets = [], []
        for part in message.parts:
            found = [self.resident[key] for key in part.keys if key in self.resident]
            hits.append(len(found))
            offsets += found
        if not offsets:
            return wire.QueryAnswered(call, wire.QueryStatus.MISSED, handle)
        parts = tuple((part.group, count) for part, count in zip(message.parts, hits, strict=True))
        self._leases[operation] = (parts, offsets)
        return wire.QueryAnswered(
            call,
            wire.QueryStatus.READY,
            handle,
            boundary_tokens=hits[0] * message.parts[0].page_tokens,
            hits=tuple(hits),
            lease=self.sealer.seal(HandleKind.LEASE, operation),
            offsets=_wide(offsets),
        )

    def _begin_save(self, message: wire.BeginSave) -> wire.Reply:
        positions: list[int] = []
        buffers: list[int] = []
        for position, key in enumerate(message.keys):
            if key not in self.resident and len(positions) < message.credit_pages:
                positions.append(position)
                self._next_buffer += 1
                buffers.append(self._next_buffer)
                self._wanted[self._next_buffer] = key
        return wire.SaveBegun(message.call, _narrow(positions), _narrow(buffers), _wide(buffers))

    def fetch(self) -> None:
        """Copy what has been committed, as the manager would when it gets to it."""
        self.call(self._fetch)

    def _fetch(self) -> None:
        committed, self._committed = self._committed, []
        for session, message in committed:
            window = self.staging[session]
            buffers = memoryview(message.buffers).cast("I").tolist()
            places = memoryview(message.staging_offsets).cast("Q").tolist()
            for buffer, place in zip(buffers, places, strict=True):
                size = self._groups[session][0].footprint_bytes
                offset = self._next_offset
                self._next_offset += size + ALIGNMENT_BYTES
                self.pool[offset : offset + size] = window[place : place + size]
                self.resident[self._wanted.pop(buffer)] = offset
            outcomes = bytes([CopyOutcome.COPIED]) * len(buffers)
            self.channel.send(session, wire.SlicesCopied(message.buffers, outcomes))
            self.channel.send(session, wire.PagesSealed(message.buffers))


def _narrow(numbers: list[int]) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in numbers)


def _wide(numbers: list[int]) -> bytes:
    return b"".join(number.to_bytes(8, "little") for number in numbers)
