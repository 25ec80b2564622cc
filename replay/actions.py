"""What the simulated engines and the operator do next: one command at a time, right and wrong ones mixed.

Here are sessions, the operator and trouble; `asking`, `restoring` and `saving` hold what engines do in the
course of their work. How often each move comes is drawn anew for every run: some runs see no hints at all,
some little else. Hints are admitted only while nothing else is going on, so there are lulls, in which nobody
asks and what is open is brought to its end.
"""

from collections.abc import Callable

from orbitkv.events import commands
from orbitkv.events.commands import Command
from orbitkv.events.ids import NONE_U32, SCHEDULER_RANK
from orbitkv.events.outcomes import SessionEnd
from orbitkv.events.record import Record
from orbitkv.manager.kernel import Refused
from replay.asking import Asking
from replay.host import Host
from replay.restoring import Restoring
from replay.saving import Saving
from replay.workload import Engine, GroupShape, Prompts
from replay.world import u32

Moves = list[tuple[int, Callable[[Engine], None]]]


class Actions:
    """Engines with their ranks, and an operator. Each call of `one` makes one small move, or none."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.random = host.random
        self.next_session = 1
        self.next_process = 1
        self.dead: list[int] = []
        """Processes that have ended and whose end the manager does not know yet."""
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
        self._hinting = self.random.choice((0, 1, 1, 3))
        self._lull = 0
        self._moves, self._quiet_moves = self._drawn()

    def _drawn(self) -> tuple[Moves, Moves]:
        """(weight, move), as long as the run goes, and in its lulls."""
        asking, restoring, saving = Asking(self.host), Restoring(self.host), Saving(self.host)
        often = self._hinting
        usual: Moves = [
            (10, asking.ask),
            (10, asking.poll),
            (16, restoring.begin_restore),
            (16, restoring.sync),
            (2, asking.cancel),
            (2, asking.revise),
            (2, restoring.release),
            (1, restoring.sync_again),
            (16, saving.begin_save),
            (24, saving.commit_save),
            (2, saving.abort_save),
            (1, self.connect_scheduler),
            (1, self.die),
            (2, self.bury),
            (1, self.operate),
            (2, self.nonsense),
            (6 * often, asking.hint),
            (often, asking.hint_again),
            (often, asking.hint_late),
            (often, asking.cancel_hint),
            (5 * often, asking.follow),
            (often, self.begin_lull),
        ]
        quiet: Moves = [
            (16, restoring.begin_restore),
            (24, restoring.sync),
            (8, restoring.release),
            (8, asking.cancel),
            (8, asking.poll),
            (8, saving.begin_save),
            (12, saving.commit_save),
            (3, self.empty_dram),
            (20, asking.hint),
            (6, asking.hint_again),
            (2, asking.cancel_hint),
            (1, self.die),
        ]
        return usual, quiet

    def one(self) -> None:
        engine = self.random.choice(self.engines)
        if not engine.connected:
            self.connect(engine)
            return
        self._lull -= self._lull > 0
        moves = self._quiet_moves if self._lull else self._moves
        _, move = self.random.choices(moves, [weight for weight, _ in moves])[0]
        move(engine)
        engine.tidy()

    def begin_lull(self, engine: Engine) -> None:
        """For a while nobody asks anything; more often than not what DRAM holds is given up before."""
        self._lull = self.random.randint(20, 120)
        if self.random.random() < 0.7:
            self.empty_dram(engine)

    def empty_dram(self, engine: Engine) -> None:
        self.host.send(commands.DropDram())

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
        session, engine.scheduler = engine.scheduler, None
        if session is not None:
            self.host.send(commands.CloseSession(session, SessionEnd.CLOSED))
            engine.forget_session(session)
            return
        process, self.next_process = self.next_process, self.next_process + 1
        session = self._open(process, engine)
        if session is None:
            return
        if isinstance(self.host.send(engine.registration(session, SCHEDULER_RANK)), Record):
            engine.scheduler = session

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

    # --- the operator, and trouble --------------------------------------------------------------------

    def operate(self, engine: Engine) -> None:
        roll = self.random.random()
        if roll < 0.4:
            self.empty_dram(engine)
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
            commands.WarmPrefix(session, "nonsense", 0, engine.next_ticket(session), 0, (page,)),
            commands.WarmPrefix(session, "nonsense", 0, 1, 0, ()),
            commands.CancelHint(session, some),
            commands.ReportStage(session, "r", 0, "queued", 1, 1),
            commands.Start(9, 1, self.host.config),
        ]
        self.host.send(self.random.choice(late))

    def manager_died(self) -> None:
        """Every session is gone; engines will connect again as if for the first time."""
        for engine in self.engines:
            engine.forget_all()
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
