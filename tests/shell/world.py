"""A manager over doubles, and clients that talk to it through a channel that is two lists.

Everything real but the world: the loop, the kernel, the requests, the executor, the tasks. `World.now`
is the run's own clock, so under `MockClock(autojump_threshold=0)` a lifetime passes in no time.
"""

import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import attrs
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from orbitkv.events.config import KernelConfig
from orbitkv.events.geometry import GroupGeometry, SliceGeometry
from orbitkv.events.outcomes import SessionEnd, SyncOutcome
from orbitkv.events.record import Record
from orbitkv.io import wire
from orbitkv.io.tokens import TokenSealer
from orbitkv.manager.kernel import invariants
from orbitkv.manager.kernel.columns import unpack
from orbitkv.manager.kernel.state import new_state
from orbitkv.manager.ports import Connected, Disconnected, Inbound, ProcessEnded, Request
from orbitkv.manager.shell.admission import Admission
from orbitkv.manager.shell.assembly import Ports, assemble
from orbitkv.manager.shell.health import Health, Stage
from orbitkv.manager.shell.loop import Loop
from orbitkv.manager.shell.manager import Manager
from orbitkv.manager.shell.start import start_incarnation
from tests.doubles import Medium, MemoryCarrier, MemoryJournal, MemoryStore, PlainPool

KIB, MIB = 1 << 10, 1 << 20
PAGE_BYTES = 24 * KIB
"""Payload; with the trailer a page takes 28 KiB."""
PAGE_TOKENS = 16
NAMESPACE = b"n" * 16
HOST = "this-boot"

CONFIG = KernelConfig(
    pool_bytes=4 * MIB,
    superblock_bytes=2 * MIB,
    query_budget_bytes=3 * MIB,
    instance_query_budget_bytes=3 * MIB,
    ssd_bytes=4 * MIB,
    ssd_segment_bytes=1 * MIB,
    ssd_slots_per_segment_max=64,
    ssd_inflight_bytes_max=1 * MIB,
    ssd_foreground_reserved_bytes=512 * KIB,
)

Reply = TypeVar("Reply")


class RunClock:
    """Implements `ports.Clock` with the time of the trio run."""

    def monotonic_ns(self) -> int:
        return round(trio.current_time() * 1e9)

    def unix_ns(self) -> int:
        return self.monotonic_ns() + 1_700_000_000_000_000_000


class ListChannel:
    """Implements `ports.Channel`: what clients send is put in, what they are sent is kept."""

    def __init__(self) -> None:
        self.sent: dict[int, deque[Any]] = {}
        self.closed: list[int] = []
        self.rounds = 0
        self._inbound: list[Inbound] = []
        self._arrived = trio.Event()

    def put(self, *items: Inbound) -> None:
        self._inbound.extend(items)
        self._arrived.set()

    async def receive(self) -> list[Inbound]:
        while not self._inbound:
            self._arrived = trio.Event()
            await self._arrived.wait()
        self.rounds += 1
        taken, self._inbound = self._inbound, []
        return taken

    def send(self, session: int, reply: object) -> None:
        if session not in self.closed:
            self.sent.setdefault(session, deque()).append(reply)

    def close_session(self, session: int) -> None:
        self.closed.append(session)

    async def aclose(self) -> None:
        pass


class ListBoard:
    """Implements `OperationBoard`; `changed` lists the operations that moved."""

    def __init__(self) -> None:
        self.changed: list[int] = []

    def watch(self, operation: int) -> tuple[int, int]:
        return 3, operation

    def moved(self, operation: int) -> None:
        self.changed.append(operation)


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def page(number: int) -> bytes:
    """Content that is different for each page."""
    return bytes([number % 251 + 1]) * PAGE_BYTES


GROUPS = (GroupGeometry(0, PAGE_TOKENS, (SliceGeometry("all", PAGE_BYTES),)),)


@attrs.define(eq=False)
class Client:
    """One connection of one process."""

    world: "World"
    session: int
    process: int
    calls: int = 0
    tickets: int = 0
    staging: int = -1

    async def ask(self, build: Callable[[int], wire.Request], descriptor: int = -1) -> Any:
        """Send, let everything happen, and give the reply; notices stay in `notices`."""
        self.calls += 1
        self.world.channel.put(Request(self.session, build(self.calls), descriptor))
        await wait_all_tasks_blocked()
        replies = [item for item in self.inbox if getattr(item, "call", -1) in (self.calls, 0)]
        for reply in replies:
            self.inbox.remove(reply)
        return replies[-1] if replies else None

    @property
    def inbox(self) -> "deque[Any]":
        return self.world.channel.sent.setdefault(self.session, deque())

    def notices(self, kind: type[Reply]) -> list[Reply]:
        return [item for item in self.inbox if isinstance(item, kind)]

    async def register(
        self,
        instance: str = "engine",
        rank: int = 0,
        world_size: int = 1,
        groups: tuple[GroupGeometry, ...] = GROUPS,
        staging_bytes: int = 16 * 28 * KIB,
        window_bytes: int | None = None,
        **changed: Any,
    ) -> Any:
        """`window_bytes`: what is really sent, where it is not what is announced."""
        descriptor = -1
        window_bytes = staging_bytes if window_bytes is None else window_bytes
        if window_bytes:
            self.staging = os.memfd_create("staging", os.MFD_CLOEXEC)
            self.world.windows.append(self.staging)
            os.ftruncate(self.staging, window_bytes)
            descriptor = os.dup(self.staging)
        fields: dict[str, Any] = {
            "instance": instance,
            "rank": rank,
            "world_size": world_size,
            "host": HOST,
            "namespace_digest": NAMESPACE,
            "namespace_document": "{}",
            "hash_process_dependent": False,
            "groups": groups,
            "staging_bytes": staging_bytes,
        }
        return await self.ask(lambda call: wire.RegisterRank(call, **fields | changed), descriptor)

    async def query(
        self, numbers: Sequence[int], request: str = "r", attempt: int = 0, revision: int = 0
    ) -> Any:
        self.tickets += 1
        part = wire.QueryPart(0, PAGE_TOKENS, 0, [key(number) for number in numbers])
        return await self.ask(
            lambda call: wire.SubmitQuery(call, request, attempt, self.tickets, revision, [part])
        )

    async def poll(self, operation: bytes) -> Any:
        return await self.ask(lambda call: wire.PollQuery(call, operation))

    async def begin_save(self, numbers: Sequence[int], credit_pages: int = 16) -> Any:
        keys = [key(number) for number in numbers]
        return await self.ask(lambda call: wire.BeginSave(call, 0, keys, credit_pages))

    async def save(self, numbers: Sequence[int]) -> list[int]:
        """Save pages and wait until everything that follows has happened; the buffers that were wanted."""
        begun = await self.begin_save(numbers)
        positions, buffers = unpack(begun.positions).tolist(), unpack(begun.buffers).tolist()
        for place, position in enumerate(positions):
            os.pwrite(self.staging, page(numbers[position]), place * PAGE_BYTES)
        offsets = b"".join((place * PAGE_BYTES).to_bytes(8, "little") for place in range(len(buffers)))
        await self.ask(lambda call: wire.CommitSave(call, begun.buffers, offsets, begun.generations))
        return buffers

    async def restore(self, lease: bytes) -> Any:
        return await self.ask(lambda call: wire.BeginRestore(call, lease))

    async def sync(self, lease: bytes, pages: int, outcome: SyncOutcome = SyncOutcome.SUCCEEDED) -> Any:
        ranges = ((0, pages),)
        return await self.ask(
            lambda call: wire.ReportSync(call, lease, outcome, ranges, 2, pages * PAGE_BYTES, 10)
        )

    async def release(self, lease: bytes) -> Any:
        return await self.ask(lambda call: wire.ReleaseLease(call, lease))

    async def vanish(self, *, process_too: bool = False) -> None:
        """The connection breaks; with it perhaps the process ends."""
        items: list[Inbound] = [Disconnected(self.session, SessionEnd.BROKEN)]
        if process_too:
            items.append(ProcessEnded(self.process))
        self.world.channel.put(*items)
        await wait_all_tasks_blocked()

    def restored(self, begun: wire.RestoreBegun) -> list[bytes]:
        """What a rank reads of the pool at the offsets that it was given."""
        offsets = memoryview(begun.offsets).cast("Q")
        return [bytes(self.world.pool.view[offset : offset + PAGE_BYTES]) for offset in offsets]


@attrs.define(eq=False)
class World:
    config: KernelConfig
    medium: Medium
    journal: MemoryJournal
    pool: PlainPool
    store: MemoryStore
    carrier: MemoryCarrier
    channel: ListChannel
    board: ListBoard
    loop: Loop
    manager: Manager
    admission: Admission
    said: list[str]
    sessions: int = 0
    processes: int = 0
    windows: list[int] = attrs.Factory(list)
    """Descriptors of staging windows, closed when the story ends."""

    @property
    def records(self) -> list[Record]:
        return self.journal.records

    def events(self, kind: type[Reply]) -> list[Reply]:
        return [event for record in self.records for event in record.events if isinstance(event, kind)]

    async def connect(self, process: int = 0) -> Client:
        """A new connection, of a new process unless one is named."""
        self.sessions += 1
        if not process:
            self.processes += 1
            process = self.processes
        self.channel.put(Connected(self.sessions, process, 1000 + process, 0, HOST, True))
        await wait_all_tasks_blocked()
        return Client(self, self.sessions, process)

    async def engine(self, **registration: Any) -> Client:
        client = await self.connect()
        registered = await client.register(**registration)
        assert isinstance(registered, wire.Registered), registered
        return client

    async def forget_dram(self) -> None:
        """What an operator's cleanup does: from here on pages come from the SSD."""
        await self.manager.drop_dram()
        await wait_all_tasks_blocked()


def build(
    config: KernelConfig = CONFIG, medium: Medium | None = None, incarnation: int = 1, **journal: Any
) -> World:
    """To be called inside trio. The manager's tasks do not run yet."""
    medium = medium or Medium(config.ssd_segment_bytes)
    pool = PlainPool(config.pool_bytes)
    store = MemoryStore(
        pool.view,
        medium,
        capacity_bytes=config.ssd_bytes,
        slots_per_segment_max=config.ssd_slots_per_segment_max,
    )
    carrier = MemoryCarrier(pool.view)
    channel, board = ListChannel(), ListBoard()
    log = MemoryJournal(**journal)
    loop = Loop(new_state(), log, RunClock(), check_interval_records=1)
    start_incarnation(loop, incarnation, config, store.info, HOST, store.recovered())
    said: list[str] = []
    health = Health(said.append, stage=Stage.SERVING)
    admission = Admission(log, lag_bytes_max=512 * KIB)
    ports = Ports(
        channel=channel,
        carrier=carrier,
        pool=pool,
        store=store,
        board=board,
        handles=TokenSealer(incarnation, b"s" * 32),
    )
    manager = assemble(loop, ports, health, admission, lambda: "{}")
    return World(config, medium, log, pool, store, carrier, channel, board, loop, manager, admission, said)


def play(story: Callable[[World], Awaitable[None]], config: KernelConfig = CONFIG, **options: Any) -> None:
    """Run a story against a manager whose tasks run; afterwards the whole state is checked."""

    async def main() -> None:
        world = build(config, **options)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.manager.run)
            await wait_all_tasks_blocked()
            await story(world)
            invariants.check(world.loop.state)
            nursery.cancel_scope.cancel()
        await world.carrier.aclose()
        for window in world.windows:
            os.close(window)

    trio.run(main, clock=MockClock(autojump_threshold=0))
