"""What the simulated engines and the operator do next: one command at a time.

Here are sessions and the choice of the next move; `asking`, `restoring` and `saving` hold what engines do in
the course of their work, `troubles` what goes wrong in it. How often each move comes is drawn anew
for every run: some runs see no hints at all, some little else. Hints are admitted only while nothing else is
going on, so there are lulls, in which nobody asks and what is open is brought to its end.
"""

from bisect import bisect
from collections.abc import Callable
from itertools import accumulate

from orbitkv.events import commands
from orbitkv.events.ids import SCHEDULER_RANK
from orbitkv.events.outcomes import SessionEnd
from orbitkv.events.record import Record
from orbitkv.manager.kernel import Refused
from replay.simulate.asking import Asking
from replay.simulate.host import Host
from replay.simulate.restoring import Restoring
from replay.simulate.saving import Saving
from replay.simulate.workload import Engine, GroupShape, Prompts

Move = Callable[[Engine], object]


class Moves:
    """Moves to draw from, each with its weight."""

    def __init__(self, *weighed: tuple[int, Move]) -> None:
        self._moves = [move for weight, move in weighed if weight]
        self._weights = list(accumulate(weight for weight, _ in weighed if weight))

    def at(self, place: float) -> Move:
        """The move at a place between 0 and 1."""
        return self._moves[bisect(self._weights, place * self._weights[-1])]


class Actions:
    """Engines with their ranks, and an operator. Each call of `one` makes one small move, or none."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.random = host.random
        self.asking, self.restoring, self.saving = Asking(host), Restoring(host), Saving(host)
        self.next_session = 1
        self.next_process = 1
        self.dead: list[int] = []
        """Processes that have ended and whose end the manager does not know yet."""
        self.engines = self._engines()
        self._hinting = self.random.choice((0, 1, 1, 3))
        self._lull = 0
        self._usual, self._quiet = self._drawn()

    def _engines(self) -> list[Engine]:
        """Tenants of one manager: some share a namespace, some a model with other ranks, some nothing."""
        random = self.random
        prompts = Prompts(random)
        small, large = GroupShape(0, 64, 0, 4096), GroupShape(0, 64, 0, 8192)
        window = (GroupShape(0, 64, 0, 4096), GroupShape(1, 128, 2, 12288))
        latent = GroupShape(0, 64, 0, 4096, replicated=True)
        all_engines = [
            Engine("alpha", 2, (small,), b"\1" * 16, random, prompts),
            Engine("beta", 1, (large,), b"\2" * 16, random, prompts),
            Engine("gamma", 2, (small,), b"\1" * 16, random, prompts),
            Engine("delta", 1, window, b"\3" * 16, random, Prompts(random)),
            Engine("epsilon", 3, (latent,), b"\4" * 16, random, prompts, observable=random.random() < 0.8),
        ]
        return random.sample(all_engines, random.choice((1, 2, 3, 3, 4, 5)))

    def _drawn(self) -> tuple[Moves, Moves]:
        """As long as the run goes, and in its lulls."""
        asking, restoring, saving = self.asking, self.restoring, self.saving
        often = self._hinting
        usual = Moves(
            (10, asking.ask),
            (10, asking.poll),
            (16, restoring.begin_restore),
            (16, restoring.sync),
            (2, restoring.release),
            (16, saving.begin_save),
            (24, saving.commit_save),
            (2, saving.abort_save),
            (1, self.connect_scheduler),
            (2, self.bury),
            (1, self.report_stage),
            (6 * often, asking.hint),
            (often, asking.hint_again),
            (often, asking.hint_late),
            (5 * often, asking.follow),
            (often, self.begin_lull),
        )
        quiet = Moves(
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
        )
        return usual, quiet

    def one(self) -> None:
        engine = self.engines[int(self.random.random() * len(self.engines))]
        if engine.stopped_until > self.host.world.step:
            return
        if not engine.connected:
            self.connect(engine)
            return
        self._lull -= self._lull > 0
        move = (self._quiet if self._lull else self._usual).at(self.random.random())
        move(engine)
        engine.tidy()

    def begin_lull(self, engine: Engine) -> None:
        """For a while nobody asks anything; more often than not what DRAM holds is given up before."""
        self._lull = self.random.randint(20, 120)
        if self.random.random() < 0.7:
            self.empty_dram(engine)

    def empty_dram(self, engine: Engine) -> None:
        self.host.send(commands.DropDram())

    def report_stage(self, engine: Engine) -> None:
        request = engine.pick("loading", "leased")
        if request is not None:
            stage = self.random.choice(("queued", "first_use"))
            self.host.send(
                commands.ReportStage(
                    engine.asker(), request.name, request.attempt, stage, self.host.world.step, 0
                )
            )

    # --- sessions -------------------------------------------------------------------------------------

    def connect(self, engine: Engine) -> None:
        """One missing rank opens a session and registers; it may be told to wait for the old one's end."""
        missing = [rank for rank in range(engine.world_size) if rank not in engine.sessions]
        rank = self.random.choice(missing)
        process = engine.processes.get(rank)
        if process is None or process in self.dead:
            process, self.next_process = self.next_process, self.next_process + 1
        session = self.open_session(process, engine)
        if session is None:
            return
        if isinstance(self.host.send(engine.registration(session, rank)), Refused):
            self.host.send(commands.CloseSession(session, SessionEnd.CLOSED))
            self.bury(engine)
            return
        engine.sessions[rank] = session
        engine.processes[rank] = process

    def open_session(self, process: int, engine: Engine) -> int | None:
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
        session = self.open_session(process, engine)
        if session is None:
            return
        if isinstance(self.host.send(engine.registration(session, SCHEDULER_RANK)), Record):
            engine.scheduler = session

    def bury(self, engine: Engine) -> None:
        """The manager learns that a process has ended."""
        if self.dead:
            process = self.dead.pop(self.random.randrange(len(self.dead)))
            self.release(process, by_operator=self.random.random() < 0.2)

    def release(self, process: int, *, by_operator: bool = False) -> None:
        """Where the host cannot tell that a process ended, only an operator says so."""
        known = self.host.state.processes.get(process)
        unseen = known is not None and not known.end_observable
        self.host.send(commands.ReleaseProcess(process, by_operator or unseen))

    # --- ends ----------------------------------------------------------------------------------------

    def manager_died(self) -> None:
        """Every session is gone; engines will connect again as if for the first time."""
        for engine in self.engines:
            engine.forget_all()
            engine.stopped_until = 0
        self.dead.clear()
        self.next_session = self.next_process = 1

    def engines_end(self) -> None:
        """All sessions close and all processes are known to have ended."""
        open_sessions = sorted(self.host.state.sessions)
        self.random.shuffle(open_sessions)
        for session in open_sessions:
            self.host.send(commands.CloseSession(session, SessionEnd.SHUTDOWN))
        for process in sorted(self.host.state.processes):
            self.release(process)
        for engine in self.engines:
            engine.forget_all()
