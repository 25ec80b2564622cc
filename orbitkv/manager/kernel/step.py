"""step: what a command does. The one `match` over commands; everything else computes.

validate: pure, may refuse;   then emit: each fact is applied at once, later rules read the new state;
then settle: answer, grant, read, write and free what the facts made possible, until nothing moves.
"""

from collections.abc import Callable
from typing import assert_never

import numpy as np

from orbitkv.events import commands
from orbitkv.events.commands import Command
from orbitkv.events.facts import BuffersFreed, PagesUnbound, PagesUnused
from orbitkv.events.outcomes import Refusal, Unused
from orbitkv.events.record import Record
from orbitkv.manager.kernel import (
    hints,
    leases,
    maintenance,
    queries,
    reads,
    registration,
    saves,
    sessions,
    writes,
)
from orbitkv.manager.kernel.answering import answer_if_complete, settle_reservation
from orbitkv.manager.kernel.apply_hints import pending_among
from orbitkv.manager.kernel.columns import distinct, lowest, pack
from orbitkv.manager.kernel.granting import grant_waiting
from orbitkv.manager.kernel.sharing import pass_on
from orbitkv.manager.kernel.state import State
from orbitkv.manager.kernel.turn import Answer, Refuse, Refused, Turn

KERNEL_REVISION = 1
"""Raised whenever the same command can lead to other facts: older logs are then folded, not verified."""


def step(state: State, at_ns: int, command: Command) -> Record | Answer | Refused:
    """Carry out one command. `at_ns`: the manager's monotonic clock; it is never taken back."""
    turn = Turn(state, max(at_ns, state.at_ns), command)
    try:
        _check_alive(state, command)
        _dispatch(turn, command)
    except Refuse as refuse:
        assert not turn.events, "a refused command leaves nothing behind"
        return refuse.refused
    if turn.events:
        _settle(turn)
    return turn.record()


def _check_alive(state: State, command: Command) -> None:
    if state.closed:
        raise Refuse(Refusal.SHUTTING_DOWN, "the incarnation is closed")
    if not state.started and not isinstance(command, commands.Start):
        raise Refuse(Refusal.MALFORMED, "the first command of an incarnation is Start")


def _dispatch(turn: Turn, command: Command) -> None:
    """The frequent commands stand first: the cases are tried in order."""
    match command:
        case commands.SubmitQuery():
            queries.submit_query(turn, command)
        case commands.CompleteReads():
            reads.complete_reads(turn, command)
        case commands.Tick():
            maintenance.tick(turn)
        case commands.CancelQuery():
            queries.cancel_query(turn, command)
        case commands.PollQuery():
            queries.poll_query(turn, command)
        case commands.BeginRestore():
            leases.begin_restore(turn, command)
        case commands.ReportSync():
            leases.report_sync(turn, command)
        case commands.ReleaseLease():
            leases.release_lease(turn, command)
        case commands.WarmPrefix():
            hints.warm_prefix(turn, command)
        case commands.CancelHint():
            hints.cancel_hint(turn, command)
        case commands.BeginSave():
            saves.begin_save(turn, command)
        case commands.CommitSave():
            saves.commit_save(turn, command)
        case commands.AbortSave():
            saves.abort_save(turn, command)
        case commands.CompleteCopies():
            saves.complete_copies(turn, command)
        case commands.CompleteSeals():
            saves.complete_seals(turn, command)
        case commands.CompleteWrites():
            writes.complete_writes(turn, command)
        case commands.SetStore():
            writes.set_store(turn, command)
        case commands.OpenSession():
            sessions.open_session(turn, command)
        case commands.RegisterRank():
            registration.register_rank(turn, command)
        case commands.CloseSession():
            sessions.close_session(turn, command)
        case commands.ReleaseProcess():
            sessions.release_process(turn, command)
        case commands.ReportStage():
            sessions.report_stage(turn, command)
        case commands.Start():
            maintenance.start(turn, command)
        case commands.RecoverSegment():
            maintenance.recover_segment(turn, command)
        case commands.DropDram():
            maintenance.drop_dram(turn)
        case commands.BeginShutdown():
            maintenance.begin_shutdown(turn)
        case commands.CloseIncarnation():
            maintenance.close_incarnation(turn, lost_tail=command.lost_tail)
        case _:
            assert_never(command)


def _settle(turn: Turn) -> None:
    """Let consequences run until nothing moves. Each round consumes what the last one left."""
    while True:
        if turn.released:
            _free_buffers(turn)
        if turn.answerable:
            _each(turn, turn.answerable, _conclude)
        elif turn.reservations:
            _each(turn, turn.reservations, settle_reservation)
        elif turn.successors:
            pass_on(turn)
        elif turn.budget_freed:
            turn.budget_freed = False
            if turn.state.waiting:
                grant_waiting(turn)
        elif turn.reads_wanted:
            turn.reads_wanted = False
            if turn.state.read_queue or turn.state.warm_queue:
                reads.pump_reads(turn)
        elif turn.writes_wanted:
            turn.writes_wanted = False
            writes.return_drained(turn)
            if turn.state.write_queue:
                writes.pump_writes(turn)
        elif not turn.released:
            break
    if turn.instances:
        _each(turn, turn.instances, sessions.close_instance_if_empty)
    if turn.loosened:
        _unbind_pages(turn)


def _each(turn: Turn, numbers: dict[int, None], rule: Callable[[Turn, int], None]) -> None:
    due = list(numbers)
    numbers.clear()
    for number in due:
        rule(turn, number)


def _conclude(turn: Turn, number: int) -> None:
    """An operation may have all it waits for."""
    if number in turn.state.hints:
        hints.end_if_prepared(turn, number)
    else:
        answer_if_complete(turn, number)


def _free_buffers(turn: Turn) -> None:
    """Free buffers that are neither indexed, held nor busy."""
    table = turn.state.buffers
    for released in turn.released:
        queues = table.queue[released]
        if lowest(queues) >= 0:  # all of them are indexed, as nearly always
            continue
        loose = distinct(released[queues < 0])
        unused = pending_among(turn.state, loose[table.holds[loose] == 0])
        if len(unused):
            turn.emit(PagesUnused(pack(unused), Unused.REPLACED))
        loose = loose[(table.page[loose] >= 0) & (table.holds[loose] == 0) & (table.busy[loose] == 0)]
        if len(loose):
            turn.loosened.append(table.page[loose])
            turn.emit(BuffersFreed(pack(loose)))
    turn.released.clear()


def _unbind_pages(turn: Turn) -> None:
    """Give back the numbers of pages that are in no tier and that nothing refers to."""
    table = turn.state.pages
    pages = distinct(np.concatenate(turn.loosened))
    turn.loosened.clear()
    gone = pages[(table.references[pages] == 0) & (table.space[pages] >= 0)]
    if len(gone):
        turn.emit(PagesUnbound(pack(gone)))
