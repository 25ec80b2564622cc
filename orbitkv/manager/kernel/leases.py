"""Leases: what ranks do with what they were promised.

A rank begins its restore (acknowledged), copies, and reports its device's sync. From the beginning
to the report its copy holds the pages, whatever becomes of the lease. A report that comes after the
lease expired still counts: the hold was alive. A report sent twice takes effect once.
"""

import numpy as np

from orbitkv.events.commands import BeginRestore, ReleaseLease, ReportSync
from orbitkv.events.facts import GpuSynced, PagesRestored, RestoreBegun, ShareEnded, SyncFailed
from orbitkv.events.ids import SCHEDULER_RANK
from orbitkv.events.outcomes import Refusal, Share, SyncOutcome
from orbitkv.manager.kernel.answering import end_lease_if_consumed
from orbitkv.manager.kernel.apply_hints import pending_among
from orbitkv.manager.kernel.columns import EMPTY, pack
from orbitkv.manager.kernel.lookups import registered
from orbitkv.manager.kernel.state import Consumer, Lease, Session, State
from orbitkv.manager.kernel.turn import Refuse, Turn


def _own(state: State, session: Session, number: int) -> Lease:
    lease = state.leases.get(number)
    if lease is None:
        raise Refuse(Refusal.RETIRED, f"lease {number} has ended; query again")
    if lease.instance != session.instance:
        raise Refuse(Refusal.FOREIGN, f"lease {number} belongs to another instance")
    return lease


def _consumer(lease: Lease, session: Session) -> Consumer:
    consumer = lease.shares.get(session.rank)
    if consumer is None:
        raise Refuse(Refusal.MALFORMED, "a scheduler's session holds no slice and copies nothing")
    return consumer


def begin_restore(turn: Turn, command: BeginRestore) -> None:
    state = turn.state
    session = registered(state, command.session)
    lease = _own(state, session, command.lease)
    consumer = _consumer(lease, session)
    if consumer.share == Share.RESTORING and consumer.process == session.process:
        return
    if lease.ended or consumer.share != Share.OPEN:
        raise Refuse(
            Refusal.RETIRED,
            f"rank {session.rank} has no share of lease {command.lease} any more ({consumer.share.name})",
        )
    turn.emit(RestoreBegun(command.lease, command.session, session.rank))


def report_sync(turn: Turn, command: ReportSync) -> None:
    state = turn.state
    session = registered(state, command.session)
    lease = _own(state, session, command.lease)
    consumer = _consumer(lease, session)
    if not consumer.holds or consumer.process != session.process:
        if consumer.share in (Share.OPEN, Share.LOST):
            raise Refuse(
                Refusal.MALFORMED,
                f"rank {session.rank} reports a copy of lease {command.lease} that it has not begun",
            )
        return
    _check_ranges(command, len(lease.buffers))
    if command.outcome == SyncOutcome.UNKNOWN:
        turn.emit(SyncFailed(command.lease, session.rank, False))
        if consumer.share != Share.STRANDED:
            turn.emit(ShareEnded(command.lease, session.rank, Share.STRANDED))
        return
    if command.outcome == SyncOutcome.SUCCEEDED:
        turn.emit(
            GpuSynced(
                command.lease,
                session.rank,
                command.ranges,
                command.layers,
                command.copied_bytes,
                command.elapsed_us,
                lease.ended,
            )
        )
        _credit(turn, lease, command)
        share = Share.SYNCED
    else:
        turn.emit(SyncFailed(command.lease, session.rank, True))
        share = Share.RELEASED
    turn.emit(ShareEnded(command.lease, session.rank, share))
    turn.released.append(lease.buffers)
    end_lease_if_consumed(turn, command.lease)


def _credit(turn: Turn, lease: Lease, command: ReportSync) -> None:
    """Prepared pages that this sync names for the first time were worth it."""
    if turn.state.pending_bytes:
        named = np.concatenate([lease.buffers[low:high] for low, high in command.ranges] or [EMPTY])
        restored = pending_among(turn.state, named)
        if len(restored):
            turn.emit(PagesRestored(pack(restored)))


def _check_ranges(command: ReportSync, pages: int) -> None:
    end = 0
    for low, high in command.ranges:
        if not end <= low < high <= pages:
            raise Refuse(
                Refusal.MALFORMED,
                f"{low}..{high} is not a rising range within the {pages} pages of lease {command.lease}",
            )
        end = high
    if command.layers < 0 or command.copied_bytes < 0 or command.elapsed_us < 0:
        raise Refuse(Refusal.MALFORMED, "layers, bytes and times are not negative")


def release_lease(turn: Turn, command: ReleaseLease) -> None:
    """This rank will not copy; from a scheduler: no rank that has not begun will. Twice is harmless."""
    state = turn.state
    session = registered(state, command.session)
    lease = state.leases.get(command.lease)
    if lease is None:
        return
    _own(state, session, command.lease)
    ranks = lease.shares if session.rank == SCHEDULER_RANK else {session.rank: _consumer(lease, session)}
    if session.rank != SCHEDULER_RANK and lease.shares[session.rank].holds:
        raise Refuse(
            Refusal.MALFORMED,
            f"rank {session.rank} copies from lease {command.lease}; report its sync instead",
        )
    for rank, consumer in ranks.items():
        if consumer.share == Share.OPEN:
            turn.emit(ShareEnded(command.lease, rank, Share.RELEASED))
    end_lease_if_consumed(turn, command.lease)
