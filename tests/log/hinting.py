"""A small seeded story of hints: logs in which much is prepared, and comes to every end that there is.

The kernel is stepped as a black box, beside the simulator's device (`replay.simulate.world`). Two engines ask
for prefixes of a few fixed prompts, most of them after a hint; an operator empties DRAM now and then, so that
there is something to prepare; processes and the manager die. Everything is drawn from one seed.
"""

from collections.abc import Callable
from random import Random

import attrs
import numpy as np

from orbitkv.events import commands
from orbitkv.events.commands import Command, QueryPart
from orbitkv.events.config import SECOND_NS, KernelConfig
from orbitkv.events.geometry import GroupGeometry, SliceGeometry
from orbitkv.events.ids import NONE_U32
from orbitkv.events.outcomes import SessionEnd, SyncOutcome
from orbitkv.events.record import Record
from orbitkv.manager.kernel import (
    KERNEL_REVISION,
    State,
    effects_of,
    new_state,
    next_deadline,
    resolve_keys,
    step,
)
from orbitkv.manager.kernel.views import QueryStatus, find_operation, group_layout, query_view, save_plan
from replay.simulate.faults import Faults
from replay.simulate.world import World
from replay.simulate.world_ssd import u32, u64

POOL_PAGES = 40
IMAGE_BYTES = 8192
"""Of a page of 4 KiB, with its trailer."""
PROMPTS = 6
PROMPT_PAGES = 8


@attrs.frozen
class Shape:
    group: int
    page_tokens: int
    trailing: int
    payload_bytes: int


@attrs.define
class Engine:
    name: str
    ranks: int
    shapes: tuple[Shape, ...]
    sessions: dict[int, int] = attrs.Factory(dict)
    """By rank."""
    ticket: int = 0
    made: int = 0
    asked: list["Asked"] = attrs.Factory(list)
    hinted: list[tuple[int, int, str, list[bytes]]] = attrs.Factory(list)
    """Session, ticket, request and keys of what may still be asked for."""
    plans: list[tuple[int, bytes, bytes]] = attrs.Factory(list)
    """Session, buffers and generations of saves that wait for their commit."""

    def prefix(self, random: Random) -> list[bytes]:
        prompt, length = random.randrange(PROMPTS), random.randrange(2, PROMPT_PAGES + 1)
        return [f"{self.name} {prompt} {page}".encode() for page in range(length)]


@attrs.define
class Asked:
    request: str
    operation: int
    begun: set[int] = attrs.Factory(set)
    """Ranks that copy."""


def _config(random: Random) -> KernelConfig:
    pool_bytes = POOL_PAGES * IMAGE_BYTES
    return KernelConfig(
        pool_bytes=pool_bytes,
        superblock_bytes=8 * IMAGE_BYTES,
        query_budget_bytes=pool_bytes,
        instance_query_budget_bytes=random.choice((pool_bytes, pool_bytes // 2)),
        demand_prefix_cut=random.random() < 0.3,
        ssd_bytes=16 << 18,
        ssd_segment_bytes=1 << 18,
        ssd_slots_per_segment_max=32,
        ssd_inflight_bytes_max=random.choice((1 << 16, 1 << 20)),
        ssd_foreground_reserved_bytes=1 << 15,
        reclaim_batch_pages_max=random.choice((2, 512)),
    )


class Hinting:
    """One run. `on_record` is told every record, also those that close the chain of a manager that died."""

    def __init__(self, seed: int, on_record: Callable[[Record], None], *, crashes: bool = True) -> None:
        self.random = Random(seed)
        self.config = _config(self.random)
        self.world = World(self.random, self.config, Faults(rotten_slot=0.01, swapped_slots=0.01, lost=0.0))
        self.engines = [
            Engine("plain", 2, (Shape(0, 64, 0, 4096),)),
            Engine("window", 1, (Shape(0, 64, 0, 4096), Shape(1, 128, 2, 4096))),
        ]
        self.on_record = on_record
        self.clock_ns = 0
        self.state: State = new_state()
        self._incarnation = 0
        self._sessions = 0
        self._crashes = crashes
        self._moves: list[tuple[int, Callable[[Engine], None]]] = [
            (5, self.hint),
            (6, self.ask_hinted),
            (3, self.ask),
            (45, self.copy),
            (2, self.save),
            (2, self.commit),
            (2, self.cancel),
            (1, self.drop_dram),
            (1, self.disconnect),
        ]
        self._start()

    def send(self, command: Command) -> bool:
        """Whether a record came of it."""
        result = step(self.state, self.clock_ns, command)
        if isinstance(result, Record):
            self.on_record(result)
            self.world.follow(result)
            self.world.carry(effects_of(result))
        return isinstance(result, Record)

    def run(self, steps: int) -> None:
        for engine in self.engines:
            self._connect(engine)
            for _ in range(12):
                self.save(engine)
                self.commit(engine)
        self._settle()
        self.send(commands.DropDram())
        weights = [weight for weight, _ in self._moves]
        for _ in range(steps):
            self.world.step += 1
            self.clock_ns += self.random.randrange(50_000_000)
            due = next_deadline(self.state)
            if due is not None and due <= self.clock_ns:
                self.send(commands.Tick())
            report = self.world.deliver() if self.random.random() < 0.6 else None
            if report is not None:
                self.send(report)
                continue
            engine = self.random.choice(self.engines)
            _, move = self.random.choices(self._moves, weights)[0]
            self._connect(engine)
            if len(engine.sessions) == engine.ranks:
                move(engine)
            if self._crashes and self.random.random() < 0.002:
                self.crash()
            elif self.random.random() < 0.05:
                self._quiet()

    def crash(self) -> None:
        """The manager dies; its successor closes the chain and starts again with what the SSD holds."""
        closing = step(self.state, self.clock_ns, commands.CloseIncarnation(lost_tail=True))
        assert isinstance(closing, Record)
        self.on_record(closing)
        self.world.crash()
        for engine in self.engines:
            engine.sessions.clear()
            engine.asked.clear()
            engine.hinted.clear()
            engine.plans.clear()
        self.state = new_state()
        self._start()

    # --- moves ----------------------------------------------------------------------------------------

    def hint(self, engine: Engine) -> None:
        session, keys = self._session(engine), engine.prefix(self.random)
        if engine.hinted and self.random.random() < 0.1:
            _, _, request, _ = self.random.choice(engine.hinted)
        else:
            engine.made += 1
            request = f"{engine.name}-{engine.made}"
        ticket = self._ticket(engine)
        self.send(commands.WarmPrefix(session, request, 0, ticket, 0, self._parts(session, engine, keys)))
        engine.hinted = [*engine.hinted[-5:], (session, ticket, request, keys)]

    def ask_hinted(self, engine: Engine) -> None:
        if engine.hinted:
            session, ticket, request, keys = engine.hinted.pop()
            if self.random.random() < 0.5:
                self.send(commands.CancelHint(session, ticket))
            self._submit(engine, request, keys)

    def ask(self, engine: Engine) -> None:
        engine.made += 1
        self._submit(engine, f"{engine.name}-{engine.made}", engine.prefix(self.random))

    def copy(self, engine: Engine) -> None:
        """One rank begins, or reports what became of its copies; or nobody wants the lease after all."""
        if not engine.asked:
            return
        asked = self.random.choice(engine.asked)
        view = query_view(self.state, asked.operation)
        if view.status is not QueryStatus.READY or view.buffers is None:
            if view.status is not QueryStatus.LOADING:
                engine.asked.remove(asked)
            return
        rank = self.random.randrange(engine.ranks)
        session = engine.sessions[rank]
        if rank not in asked.begun:
            release = self.random.random() < 0.15
            kind = commands.ReleaseLease if release else commands.BeginRestore
            self.send(kind(session, view.lease))
            asked.begun.add(rank)
            return
        outcome = self.random.choices(list(SyncOutcome), (20, 2, 1))[0]
        pages = len(view.buffers)
        ranges = [((0, pages),), ((0, pages // 2),), ((0, 1), (pages - 1, pages))][self.random.randrange(3)]
        if outcome is not SyncOutcome.SUCCEEDED or pages == 1:
            ranges = ((0, 1),) if outcome is SyncOutcome.SUCCEEDED else ()
        self.send(commands.ReportSync(session, view.lease, outcome, ranges, 4, 4096, 100))

    def save(self, engine: Engine, keys: list[bytes] | None = None) -> None:
        """All ranks offer the same pages."""
        keys = keys or engine.prefix(self.random)
        for session in engine.sessions.values():
            for shape in engine.shapes:
                layout = group_layout(self.state, session, shape.group)
                count = len(keys) * engine.shapes[0].page_tokens // shape.page_tokens
                if layout is None or not count:
                    continue
                pages, unknown = resolve_keys(self.state, layout.space, keys[:count])
                command = commands.BeginSave(session, shape.group, pages, unknown)
                if self.send(command):
                    given = [buffer for buffer in save_plan(self.state, command) if buffer != NONE_U32]
                    generations = [int(self.state.buffers.generation[buffer]) for buffer in given]
                    if given:
                        engine.plans.append((session, u32(given), u64(generations)))

    def commit(self, engine: Engine) -> None:
        for session, buffers, generations in engine.plans:
            offsets = np.arange(len(buffers) // 4, dtype="<u8") * 4096
            self.send(commands.CommitSave(session, buffers, offsets.tobytes(), generations))
        engine.plans.clear()

    def cancel(self, engine: Engine) -> None:
        if engine.asked and self.random.random() < 0.5:
            asked = self.random.choice(engine.asked)
            self.send(commands.CancelQuery(self._session(engine), asked.operation))
        elif engine.hinted:
            session, ticket, _, _ = self.random.choice(engine.hinted)
            self.send(commands.CancelHint(session, ticket))

    def drop_dram(self, engine: Engine) -> None:
        self.send(commands.DropDram())

    def disconnect(self, engine: Engine) -> None:
        """A rank's process ends; the manager learns so at once or never."""
        rank = self.random.randrange(engine.ranks)
        session = engine.sessions.pop(rank)
        self.send(commands.CloseSession(session, SessionEnd.BROKEN))
        if self.random.random() < 0.8:
            self.send(commands.ReleaseProcess(session))
        engine.plans.clear()

    # --- helpers --------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._incarnation += 1
        self._sessions = 0
        self.send(commands.Start(self._incarnation, KERNEL_REVISION, self.config))
        for segment in self.world.directory():
            self.send(segment)

    def _connect(self, engine: Engine) -> None:
        """All ranks that are missing; a process has the number of its session."""
        for rank in range(engine.ranks):
            if rank in engine.sessions:
                continue
            self._sessions += 1
            session = self._sessions
            self.send(commands.OpenSession(session, session, 4000 + session, 1000, True))
            groups = tuple(
                GroupGeometry(
                    shape.group, shape.page_tokens, (SliceGeometry(f"rank {rank}", shape.payload_bytes),)
                )
                for shape in engine.shapes
            )
            registered = self.send(
                commands.RegisterRank(
                    session=session,
                    instance=engine.name,
                    rank=rank,
                    world_size=engine.ranks,
                    host="",
                    namespace_digest=engine.name.encode().ljust(16),
                    namespace_document="{}",
                    hash_process_dependent=False,
                    groups=groups,
                    staging_bytes=1 << 20,
                )
            )
            if registered:
                engine.sessions[rank] = session
            else:
                self.send(commands.CloseSession(session, SessionEnd.CLOSED))
                for gone in sorted(self.state.processes):
                    if gone not in engine.sessions.values():
                        self.send(commands.ReleaseProcess(gone))

    def _session(self, engine: Engine) -> int:
        return self.random.choice(list(engine.sessions.values()))

    def _ticket(self, engine: Engine) -> int:
        engine.ticket += 1
        return engine.ticket

    def _parts(self, session: int, engine: Engine, keys: list[bytes]) -> tuple[QueryPart, ...]:
        parts = []
        for shape in engine.shapes:
            layout = group_layout(self.state, session, shape.group)
            count = len(keys) * engine.shapes[0].page_tokens // shape.page_tokens
            if layout is not None and count:
                pages, unknown = resolve_keys(self.state, layout.space, keys[:count])
                parts.append(QueryPart(shape.group, shape.page_tokens, shape.trailing, pages, unknown))
        return tuple(parts)

    def _submit(self, engine: Engine, request: str, keys: list[bytes]) -> None:
        session = self._session(engine)
        parts = self._parts(session, engine, keys)
        self.send(commands.SubmitQuery(session, request, 0, self._ticket(engine), 0, parts))
        operation = find_operation(self.state, session, request, 0)
        if operation is not None:
            engine.asked.append(Asked(request, operation))

    def _settle(self) -> None:
        """The device reports all that it owes."""
        while not self.world.idle:
            self.world.step += 200
            report = self.world.deliver()
            if report is not None:
                self.send(report)

    def _quiet(self) -> None:
        """Nobody asks, every lease is let go: hints that come now find no foreground."""
        self._settle()
        for engine in self.engines:
            for asked in engine.asked:
                for session in engine.sessions.values():
                    self.send(commands.CancelQuery(session, asked.operation))
            engine.asked.clear()
        self.clock_ns += self.random.choice((1, 6)) * SECOND_NS
        for engine in self.engines:
            if len(engine.sessions) == engine.ranks:
                self.hint(engine)
                if self.random.random() < 0.3:
                    self.save(engine, engine.hinted[-1][3])
                    self.commit(engine)
        if self.random.random() < 0.5:
            self._settle()


def hinted_records(seed: int, steps: int, *, crashes: bool = True) -> tuple[list[list[Record]], State]:
    """The records of each incarnation, and the state at the end of the last."""
    incarnations: list[list[Record]] = []

    def keep(record: Record) -> None:
        if record.seq == 1:
            incarnations.append([])
        incarnations[-1].append(record)

    story = Hinting(seed, keep, crashes=crashes)
    story.run(steps)
    return incarnations, story.state
