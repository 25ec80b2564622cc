"""Sessions and processes: who may speak, and what their end sets free.

    process --opens--> session --registers (`registration`)--> rank of an instance
    session ends:  its operations and unbegun shares end; copies that its process began stay held
    process ends:  those copies end too, whoever they belonged to

A timeout never ends a copy; only the process's own report, or its confirmed end, does.
"""

from orbitkv.events.commands import CloseSession, OpenSession, ReleaseProcess, ReportStage
from orbitkv.events.facts import (
    InstanceClosed,
    ProcessReleased,
    QueryEnded,
    SessionClosed,
    SessionOpened,
    ShareEnded,
    StageReported,
)
from orbitkv.events.outcomes import HintEnd, QueryEnd, Refusal, SaveDrop, SessionEnd, Share
from orbitkv.manager.kernel.answering import end_lease_if_consumed, end_operation
from orbitkv.manager.kernel.hints import end_hint
from orbitkv.manager.kernel.lookups import known
from orbitkv.manager.kernel.saves import drop_saves_of_rank
from orbitkv.manager.kernel.turn import Refuse, Turn


def open_session(turn: Turn, command: OpenSession) -> None:
    state = turn.state
    if command.session <= state.session_high:
        raise Refuse(Refusal.MALFORMED, f"session {command.session} is not above {state.session_high}")
    if len(state.sessions) >= state.config.sessions_max:
        raise Refuse(Refusal.BUSY, f"there are {len(state.sessions)} sessions; sessions_max allows no more")
    if state.shutting_down:
        raise Refuse(Refusal.SHUTTING_DOWN, "the manager is shutting down and admits nothing more")
    turn.emit(SessionOpened(command.session, command.process, command.end_observable, command.pid))


def close_session(turn: Turn, command: CloseSession) -> None:
    state = turn.state
    session = state.sessions.get(command.session)
    if session is None:
        return
    if session.instance >= 0:
        _leave_instance(turn, command.session)
    for operation in list(session.operations):
        _leave_operation(turn, operation)
    turn.emit(SessionClosed(command.session, command.cause))
    if session.instance >= 0:
        close_instance_if_empty(turn, session.instance)
    process = state.processes[session.process]
    if not process.sessions and not process.copies and not process.end_observable:
        turn.emit(ProcessReleased(session.process, False))


def _leave_operation(turn: Turn, number: int) -> None:
    """Operations end with their opener. A lease is the instance's: other ranks may still take their share."""
    state = turn.state
    if number in state.hints:
        end_hint(turn, number, HintEnd.DISCONNECTED)
        return
    lease = state.leases.get(state.operations[number].lease)
    if lease is not None and any(c.share in (Share.OPEN, Share.RESTORING) for c in lease.shares.values()):
        turn.emit(QueryEnded(number, QueryEnd.DISCONNECTED))
    else:
        end_operation(turn, number, QueryEnd.DISCONNECTED)


def _leave_instance(turn: Turn, number: int) -> None:
    state = turn.state
    session = state.sessions[number]
    for lease_number in list(state.leases):
        lease = state.leases[lease_number]
        if lease.instance != session.instance:
            continue
        consumer = lease.shares.get(session.rank)
        if consumer is None:
            continue
        if consumer.share == Share.RESTORING and consumer.session == number:
            turn.emit(ShareEnded(lease_number, session.rank, Share.STRANDED))
        elif consumer.share == Share.OPEN:
            turn.emit(ShareEnded(lease_number, session.rank, Share.LOST))
            end_lease_if_consumed(turn, lease_number, QueryEnd.DISCONNECTED)
    drop_saves_of_rank(turn, session.instance, session.rank, SaveDrop.DISCONNECTED)


def close_instance_if_empty(turn: Turn, number: int) -> None:
    """An instance is over when nobody is connected and nothing of it is reserved, leased or half-saved."""
    state = turn.state
    instance = state.instances.get(number)
    if instance is None or instance.open_sessions():
        return
    if instance.leases or instance.saves or instance.reserved_bytes:
        return
    turn.emit(InstanceClosed(number))


def release_process(turn: Turn, command: ReleaseProcess) -> None:
    """The process is gone: nothing that it copied can be read by it any more."""
    state = turn.state
    process = state.processes.get(command.process)
    if process is None:
        return
    for session in list(process.sessions):
        close_session(turn, CloseSession(session, SessionEnd.PROCESS_GONE))
    if command.process not in state.processes:
        return
    for number in list(state.leases):
        lease = state.leases[number]
        for rank, consumer in lease.shares.items():
            if consumer.holds and consumer.process == command.process:
                turn.emit(ShareEnded(number, rank, Share.LOST))
                turn.released.append(lease.buffers)
        end_lease_if_consumed(turn, number, QueryEnd.DISCONNECTED)
    turn.emit(ProcessReleased(command.process, command.by_operator))


def report_stage(turn: Turn, command: ReportStage) -> None:
    known(turn.state, command.session)
    turn.emit(StageReported(command.session, command.request, command.attempt, command.stage))
