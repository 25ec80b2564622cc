"""What the simulated engines and the operator do next: one command at a time, right and wrong ones mixed."""

from collections.abc import Callable
from random import Random
from typing import Protocol

from orbitkv.events import commands
from orbitkv.events.commands import Command
from orbitkv.events.config import KernelConfig
from orbitkv.events.ids import NONE_U32, SCHEDULER_RANK
from orbitkv.events.outcomes import SessionEnd
from orbitkv.events.record import Record
from orbitkv.manager.kernel import Answer, Refused, State, resolve_keys
from orbitkv.manager.kernel.views import (
    QueryStatus,
    find_operation,
    group_layout,
    page_name,
    pool_offsets,
    query_view,
    save_plan,
)
from replay.workload import Engine, GroupShape, Prompts, Request, SavePlan, staging_offsets
from replay.world import World, u32, u64

REQUESTS_AT_ONCE = 6


class Host(Protocol):
    """What the actions need of the simulation."""

    random: Random
    config: KernelConfig
    world: World
    state: State

    def send(self, command: Command) -> Record | Answer | Refused: ...


class Actions:
    """Engines with their ranks, and an operator. Each call of `one` makes one small move, or none."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.random = host.random
        self.next_session = 1
        self.next_process = 1
        self.dead: list[int] = []
        """Processes that have ended and whose end the manager does not know yet."""
        self.schedulers: dict[str, int] = {}
        prompts = Prompts(self.random)
        self.engines = [
            Engine("alpha", 2, (GroupShape(0, 64, 0, 4096),), b"\1" * 16, self.random, prompts),
            Engine("beta", 1, (GroupShape(0, 64, 0, 8192),), b"\2" * 16, self.random, prompts),
            Engine("gamma", 2, (GroupShape(0, 64, 0, 4096),), b"\1" * 16, self.random, prompts),
            Engine(
                "delta",
                1,
                (GroupShape(0, 64, 0, 4096), GroupShape(1, 128, 2, 12288)),
                b"\3" * 16,
                self.random,
                Prompts(self.random),
            ),
        ][: self.random.choice((1, 2, 3, 3, 4))]
        self._moves: list[tuple[int, Callable[[Engine], None]]] = [
            (10, self.ask),
            (10, self.poll),
            (16, self.begin_restore),
            (16, self.sync),
            (2, self.cancel),
            (2, self.revise),
            (2, self.release),
            (1, self.sync_again),
            (16, self.begin_save),
            (24, self.commit_save),
            (2, self.abort_save),
            (1, self.connect_scheduler),
            (1, self.die),
            (2, self.bury),
            (1, self.operate),
            (2, self.nonsense),
        ]
        self._weights = [weight for weight, _ in self._moves]

    def one(self) -> None:
        engine = self.random.choice(self.engines)
        if not engine.connected:
            self.connect(engine)
            return
        _, move = self.random.choices(self._moves, self._weights)[0]
        move(engine)
        engine.tidy()

    # --- sessions -------------------------------------------------------------------------------------

    def connect(self, engine: Engine) -> None:
        """One missing rank opens a session and registers; it may be told to wait for the old one's end."""
        missing = [rank for rank in range(engine.world_size) if rank not in engine.sessions]
        rank = self.random.choice(missing)
        process = engine.processes.get(rank)
        if process is None or process in self.dead:
            process, self.next_process = self.next_process, self.next_process + 1
        session = self._open(process, engine)
        if session is None:
            return
        if isinstance(self.host.send(engine.registration(session, rank)), Refused):
            self.host.send(commands.CloseSession(session, SessionEnd.CLOSED))
            self.bury(engine)
            return
        engine.sessions[rank] = session
        engine.processes[rank] = process

    def _open(self, process: int, engine: Engine) -> int | None:
        session, self.next_session = self.next_session, self.next_session + 1
        opened = self.host.send(
            commands.OpenSession(session, process, 4000 + process, 1000, engine.observable)
        )
        return session if isinstance(opened, Record) else None

    def connect_scheduler(self, engine: Engine) -> None:
        """A session that only asks and cancels; sometimes it goes again."""
        session = self.schedulers.pop(engine.name, None)
        if session is not None:
            self.host.send(commands.CloseSession(session, SessionEnd.CLOSED))
            engine.forget_session(session)
            return
        process, self.next_process = self.next_process, self.next_process + 1
        session = self._open(process, engine)
        if session is None:
            return
        if isinstance(self.host.send(engine.registration(session, SCHEDULER_RANK)), Record):
            self.schedulers[engine.name] = session

    def die(self, engine: Engine) -> None:
        """A connection breaks: the process has ended, or it lives on and will connect again."""
        if self.random.random() < 0.5:
            return
        rank = self.random.choice(list(engine.sessions))
        session = engine.sessions[rank]
        self.host.send(commands.CloseSession(session, self.random.choice(list(SessionEnd)[:3])))
        engine.forget_rank(rank)
        if self.random.random() < 0.7:
            self.dead.append(engine.processes.pop(rank))

    def bury(self, engine: Engine) -> None:
        """The manager learns that a process has ended."""
        if self.dead:
            process = self.dead.pop(self.random.randrange(len(self.dead)))
            self.host.send(commands.ReleaseProcess(process, by_operator=self.random.random() < 0.2))

    # --- queries --------------------------------------------------------------------------------------

    def _asker(self, engine: Engine) -> int:
        """Any rank may ask, and a scheduler where there is one."""
        scheduler = self.schedulers.get(engine.name)
        if scheduler is not None and self.random.random() < 0.5:
            return scheduler
        return self.random.choice(list(engine.sessions.values()))

    def _pick(self, engine: Engine, *stages: str) -> Request | None:
        found = [request for request in engine.requests if request.stage in stages]
        return self.random.choice(found) if found else None

    def ask(self, engine: Engine) -> None:
        if len(engine.requests) < REQUESTS_AT_ONCE:
            self._submit(engine, engine.new_request(), self._asker(engine))

    def _submit(self, engine: Engine, request: Request, session: int) -> None:
        parts = []
        for shape in engine.groups:
            layout = group_layout(self.host.state, session, shape.group)
            if layout is None:
                request.stage = "over"
                return
            count = len(request.keys) * engine.groups[0].page_tokens // shape.page_tokens
            if count:
                pages, unknown = resolve_keys(self.host.state, layout.space, request.keys[:count])
                parts.append(
                    commands.QueryPart(shape.group, shape.page_tokens, shape.trailing, pages, unknown)
                )
        body = sum(int(key[-6:]) * (index + 1) for index, key in enumerate(request.keys))
        command = commands.SubmitQuery(
            session=session,
            request=request.name,
            attempt=request.attempt,
            ticket=engine.next_ticket(session),
            revision=request.revision,
            parts=tuple(parts),
            body=body,
        )
        if isinstance(self.host.send(command), Refused):
            request.stage = "over"
            return
        operation = find_operation(self.host.state, session, request.name, request.attempt)
        if operation is None:
            raise AssertionError(f"query {request.name} was accepted and left no decision")
        request.operation, request.stage, request.lease = operation, "loading", -1
        self._look(engine, request)

    def _look(self, engine: Engine, request: Request) -> None:
        view = query_view(self.host.state, request.operation)
        if view.status == QueryStatus.READY:
            if request.lease not in (-1, view.lease):
                raise AssertionError(f"operation {request.operation} changed its lease")
            if request.lease == -1:
                assert view.buffers is not None
                engine.leased(request, view.lease, len(view.buffers))
        elif view.status != QueryStatus.LOADING:
            engine.computed(request)

    def poll(self, engine: Engine) -> None:
        request = self._pick(engine, "loading", "leased")
        if request is not None:
            self.host.send(commands.PollQuery(self._asker(engine), request.operation))
            if request.stage == "loading":
                self._look(engine, request)

    def cancel(self, engine: Engine) -> None:
        """An abort; half of the time it is sent twice."""
        request = self._pick(engine, "loading", "leased")
        if request is not None:
            for _ in range(self.random.randint(1, 2)):
                self.host.send(commands.CancelQuery(self._asker(engine), request.operation))
            if all(copy.stage != "copying" for copy in request.ranks.values()):
                request.stage = "over"

    def revise(self, engine: Engine) -> None:
        """The same request asks for other pages; or the same again; or an older revision by mistake."""
        request = self._pick(engine, "loading")
        if request is None:
            return
        roll = self.random.random()
        if roll < 0.7:
            engine.revise(request)
            self._submit(engine, request, self._asker(engine))
        elif roll < 0.85:
            self._submit(engine, request, self._asker(engine))
        elif request.revision:
            request.revision -= 1
            self._submit(engine, request, self._asker(engine))

    # --- leases ---------------------------------------------------------------------------------------

    def begin_restore(self, engine: Engine) -> None:
        request = self._pick(engine, "leased")
        if request is None:
            return
        waiting = [rank for rank, copy in request.ranks.items() if copy.stage == "waiting"]
        if not waiting:
            return
        rank = self.random.choice(waiting)
        session = engine.sessions[rank]
        if isinstance(self.host.send(commands.BeginRestore(session, request.lease)), Refused):
            request.ranks[rank].stage = "done"
            self._finish(engine, request)
            return
        request.ranks[rank].stage = "copying"
        self._check_content(request)

    def _check_content(self, request: Request) -> None:
        """What the engine would copy is what it asked for."""
        lease = self.host.state.leases[request.lease]
        offsets = pool_offsets(self.host.state, lease.buffers)
        pages = self.host.state.buffers.page[lease.buffers].tolist()
        names = [page_name(self.host.state, page).key for page in pages]
        if not set(names) <= set(request.keys):
            raise AssertionError(f"lease {request.lease} holds pages that {request.name} did not ask for")
        self.host.world.check_pages(names, offsets)

    def sync(self, engine: Engine) -> None:
        request = self._pick(engine, "leased")
        if request is None:
            return
        copying = [rank for rank, copy in request.ranks.items() if copy.stage == "copying"]
        if not copying or self.random.random() < 0.1:
            return
        rank = self.random.choice(copying)
        self._check_content(request)
        self.host.send(engine.sync_report(request, engine.sessions[rank]))
        request.ranks[rank].stage = "done"
        self._finish(engine, request)

    def sync_again(self, engine: Engine) -> None:
        """A report that was lost on the way back is sent again."""
        request = self._pick(engine, "leased")
        if request is not None:
            done = [rank for rank, copy in request.ranks.items() if copy.stage == "done"]
            if done and done[0] in engine.sessions:
                self.host.send(engine.sync_report(request, engine.sessions[done[0]]))

    def _finish(self, engine: Engine, request: Request) -> None:
        if all(copy.stage == "done" for copy in request.ranks.values()):
            engine.computed(request)

    def release(self, engine: Engine) -> None:
        request = self._pick(engine, "leased")
        if request is None:
            return
        session = self._asker(engine)
        self.host.send(commands.ReleaseLease(session, request.lease))
        scheduler = session == self.schedulers.get(engine.name)
        for rank, copy in request.ranks.items():
            if copy.stage == "waiting" and (scheduler or engine.sessions.get(rank) == session):
                copy.stage = "done"
        self._finish(engine, request)

    # --- saves ----------------------------------------------------------------------------------------

    def begin_save(self, engine: Engine) -> None:
        if not engine.to_save:
            return
        rank, group, keys = engine.to_save.pop(0)
        session = engine.sessions[rank]
        shape = next(shape for shape in engine.groups if shape.group == group)
        count = len(keys) * engine.groups[0].page_tokens // shape.page_tokens
        layout = group_layout(self.host.state, session, group)
        if layout is None or not count:
            return
        pages, unknown = resolve_keys(self.host.state, layout.space, keys[:count])
        command = commands.BeginSave(
            session, group, pages, unknown, uncredited_pages=int(self.random.random() < 0.1)
        )
        if isinstance(self.host.send(command), Record):
            given = [buffer for buffer in save_plan(self.host.state, command) if buffer != NONE_U32]
            buffers = [(buffer, int(self.host.state.buffers.generation[buffer])) for buffer in given]
            if buffers:
                engine.plans.append(SavePlan(rank, group, session, buffers))

    def commit_save(self, engine: Engine) -> None:
        """All of it, or a part; now and then a plan is forgotten and left to its deadline."""
        if not engine.plans:
            return
        plan = engine.plans.pop(self.random.randrange(len(engine.plans)))
        if self.random.random() < 0.05:
            return
        count = len(plan.buffers) if self.random.random() < 0.8 else self.random.randint(1, len(plan.buffers))
        shape = next(shape for shape in engine.groups if shape.group == plan.group)
        offsets = staging_offsets(count, shape.payload_bytes)
        buffers, generations = zip(*plan.buffers[:count], strict=True)
        self.host.send(commands.CommitSave(plan.session, u32(buffers), u64(offsets), u64(generations)))
        if count < len(plan.buffers):
            engine.plans.append(SavePlan(plan.rank, plan.group, plan.session, plan.buffers[count:]))

    def abort_save(self, engine: Engine) -> None:
        if engine.plans:
            plan = engine.plans.pop(self.random.randrange(len(engine.plans)))
            buffers, generations = zip(*plan.buffers, strict=True)
            self.host.send(commands.AbortSave(plan.session, u32(buffers), u64(generations)))

    # --- the operator, and trouble --------------------------------------------------------------------

    def operate(self, engine: Engine) -> None:
        roll = self.random.random()
        if roll < 0.4:
            self.host.send(commands.DropDram())
        elif roll < 0.7:
            writable = self.random.random() < 0.8
            self.host.send(commands.SetStore(writable, "" if writable else "no space left"))
        else:
            self.host.send(commands.Tick())

    def nonsense(self, engine: Engine) -> None:
        """Commands that fit nothing, or that come too late: refused, or recorded as stale."""
        some = self.random.randint(0, 40)
        session = self.random.choice([*engine.sessions.values(), some])
        operation = (some << 32) | self.random.randint(0, 5)
        page = commands.QueryPart(0, 64, 0, u32([NONE_U32, NONE_U32]), (b"twice", b"twice"))
        late: list[Command] = [
            commands.PollQuery(session, operation),
            commands.CancelQuery(session, operation),
            commands.BeginRestore(session, some),
            commands.ReleaseLease(session, some),
            commands.CloseSession(1_000_000 + some, SessionEnd.CLOSED),
            commands.SubmitQuery(session, "nonsense", 0, engine.next_ticket(session), 0, (page,)),
            commands.SubmitQuery(session, "nonsense", 0, 1, 0, ()),
            commands.BeginSave(session, 7, u32([NONE_U32]), (b"other group",)),
            commands.CompleteReads(u32([900_000 + some]), bytes([0]), u32([1]), u32([1])),
            commands.CompleteWrites(u32([700_000 + some]), bytes([0]), u32([1])),
            commands.CompleteSeals(u32([600_000 + some])),
            commands.ReportStage(session, "r", 0, "queued", 1, 1),
            commands.Start(9, 1, self.host.config),
        ]
        self.host.send(self.random.choice(late))

    def manager_died(self) -> None:
        """Every session is gone; engines will connect again as if for the first time."""
        for engine in self.engines:
            engine.forget_all()
        self.schedulers.clear()
        self.dead.clear()
        self.next_session = self.next_process = 1

    def engines_end(self) -> None:
        """All sessions close and all processes are known to have ended."""
        open_sessions = sorted(self.host.state.sessions)
        self.random.shuffle(open_sessions)
        for session in open_sessions:
            self.host.send(commands.CloseSession(session, SessionEnd.SHUTDOWN))
        for process in sorted(self.host.state.processes):
            self.host.send(commands.ReleaseProcess(process))
        for engine in self.engines:
            engine.forget_all()
