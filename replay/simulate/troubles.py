"""Trouble that is somebody's move: engines that break off, die, stop or send nonsense, a full disk.

Each kind of `faults` with a chance per step has one method here or in `simulation`. What fits nothing
at the moment (a cancel with nothing to cancel) is left out and not counted.
"""

from collections.abc import Callable

import msgspec

from orbitkv.events import commands
from orbitkv.events.commands import Command
from orbitkv.events.ids import NONE_U32
from orbitkv.events.outcomes import SessionEnd
from orbitkv.events.record import Record
from orbitkv.manager.kernel import Refused
from replay.simulate.actions import Actions
from replay.simulate.host import Host
from replay.simulate.workload import Engine
from replay.simulate.world_ssd import u32, u64

_STORE_TROUBLES = ("no space left", "the file system is read-only", "input/output error")


class Troubles:
    """Every trouble befalls one engine, or the manager's host."""

    def __init__(self, host: Host, actions: Actions) -> None:
        self.host = host
        self.random = host.random
        self.actions = actions
        self._by_kind: dict[str, Callable[[Engine], object]] = {
            "stalled_ssd": self._stall_ssd,
            "store_full": self._fill_store,
            "cancelled": self._cancel,
            "revised": actions.asking.revise,
            "sync_repeated": actions.restoring.sync_again,
            "broken": self._break,
            "killed": self._kill,
            "stopped": self._stop,
            "superseded": self._supersede,
            "nonsense": self._send_nonsense,
            "dropped_dram": actions.empty_dram,
        }
        self._store_writable_at = -1

    def befall(self, kind: str) -> None:
        engine = self.random.choice(self.actions.engines)
        everywhere = kind in ("stalled_ssd", "store_full", "stopped", "dropped_dram")
        if not everywhere and (not engine.connected or engine.stopped_until > self.host.world.step):
            return
        if self._by_kind[kind](engine) is not False:
            self.host.world.faults.count(kind)
        engine.tidy()

    def mend(self) -> None:
        """What was broken for a time works again."""
        if 0 <= self._store_writable_at <= self.host.world.step:
            self._store_writable_at = -1
            self.host.send(commands.SetStore(True, ""))

    def restarted(self) -> None:
        """A new manager knows nothing of its store's trouble, and finds it again if it lasts."""
        self._store_writable_at = -1

    # --- the host --------------------------------------------------------------------------------------

    def _stall_ssd(self, engine: Engine) -> None:
        self.host.world.stall(self.random.randint(50, 500))

    def _fill_store(self, engine: Engine) -> None:
        self._store_writable_at = self.host.world.step + self.random.randint(50, 500)
        self.host.send(commands.SetStore(False, self.random.choice(_STORE_TROUBLES)))

    # --- engines ---------------------------------------------------------------------------------------

    def _cancel(self, engine: Engine) -> bool:
        if self.random.random() < 0.5 and engine.queued:
            return self.actions.asking.cancel_hint(engine)
        return self.actions.asking.cancel(engine)

    def _break(self, engine: Engine) -> None:
        """A connection ends; the process lives on and will connect again."""
        rank = self.random.choice(list(engine.sessions))
        self._close(engine, rank)

    def _close(self, engine: Engine, rank: int) -> None:
        session = engine.sessions[rank]
        self.host.send(commands.CloseSession(session, self.random.choice(list(SessionEnd)[:3])))
        engine.forget_rank(rank)

    def _kill(self, engine: Engine) -> None:
        """Its connection is seen to break first, or its end is; the other follows."""
        rank = self.random.choice(list(engine.sessions))
        process = engine.processes.pop(rank)
        if self.random.random() < 0.5:
            self.actions.release(process)
            engine.forget_rank(rank)
        else:
            self._close(engine, rank)
            self.actions.dead.append(process)

    def _stop(self, engine: Engine) -> None:
        engine.stopped_until = self.host.world.step + self.random.randint(50, 500)

    def _supersede(self, engine: Engine) -> None:
        """The same process opens another session for its rank; the manager closes the old one."""
        rank = self.random.choice(list(engine.sessions))
        session = self.actions.open_session(engine.processes[rank], engine)
        if session is None:
            return
        if isinstance(self.host.send(engine.registration(session, rank)), Refused):
            self.host.send(commands.CloseSession(session, SessionEnd.CLOSED))
            return
        engine.forget_rank(rank)
        engine.sessions[rank] = session

    def _send_nonsense(self, engine: Engine) -> None:
        """Commands that fit nothing, or that come too late: refused, or recorded as stale."""
        some = self.random.randint(0, 40)
        session = self.random.choice([*engine.sessions.values(), some])
        if self.random.random() < 0.1:
            self._register_wrongly(engine)
        else:
            late = self._late(engine, session, some)
            self.host.send(self.random.choice(late))

    def _late(self, engine: Engine, session: int, some: int) -> list[Command]:
        operation = (some << 32) | self.random.randint(0, 5)
        page = commands.QueryPart(0, 64, 0, u32([NONE_U32, NONE_U32]), (b"twice", b"twice"))
        return [
            commands.PollQuery(session, operation),
            commands.CancelQuery(session, operation),
            commands.BeginRestore(session, some),
            commands.ReleaseLease(session, some),
            commands.CloseSession(1_000_000 + some, SessionEnd.CLOSED),
            commands.SubmitQuery(session, "nonsense", 0, engine.next_ticket(session), 0, (page,)),
            commands.SubmitQuery(session, "nonsense", 0, 1, 0, ()),
            commands.BeginSave(session, 7, u32([NONE_U32]), (b"other group",)),
            commands.CommitSave(session, u32([some]), u64([0]), u64([some])),
            commands.AbortSave(session, u32([some]), u64([some])),
            commands.CompleteReads(u32([900_000 + some]), bytes([0]), u32([1]), u32([1])),
            commands.CompleteWrites(u32([700_000 + some]), bytes([0]), u32([1])),
            commands.CompleteSeals(u32([600_000 + some])),
            commands.WarmPrefix(session, "nonsense", 0, engine.next_ticket(session), 0, (page,)),
            commands.WarmPrefix(session, "nonsense", 0, 1, 0, ()),
            commands.CancelHint(session, some),
            commands.ReportStage(session, "r", 0, "queued", 1, 1),
            commands.Start(9, 1, self.host.config),
        ]

    def _register_wrongly(self, engine: Engine) -> None:
        """From another host, with hashes of one process alone, or as a rank that somebody has."""
        process, self.actions.next_process = self.actions.next_process, self.actions.next_process + 1
        session = self.actions.open_session(process, engine)
        if session is None:
            return
        wrong = engine.registration(session, 0)
        changes = self.random.choice(
            (
                {"host": "elsewhere"},
                {"hash_process_dependent": True, "instance": "other"},
                {"world_size": engine.world_size + 1},
                {},
            )
        )
        if isinstance(self.host.send(msgspec.structs.replace(wrong, **changes)), Record):
            raise AssertionError(f"a wrong registration of {engine.name} was taken: {changes}")
        self.host.send(commands.CloseSession(session, SessionEnd.CLOSED))
        self.actions.release(process)
