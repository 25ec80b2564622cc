"""apply: the only writer of the state. One function per fact, found by the fact's type.

It asserts and never refuses: a fact that does not fit the state is a broken invariant, and the
process stops with the log kept as evidence.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from orbitkv.events import facts
from orbitkv.events.facts import Event
from orbitkv.events.record import Record
from orbitkv.manager.kernel import (
    apply_hints,
    apply_memory,
    apply_queries,
    apply_reads,
    apply_saves,
    apply_sessions,
    apply_sharing,
)
from orbitkv.manager.kernel.state import State

Applier: TypeAlias = Callable[[State, Any], None]

APPLIERS: dict[type, Applier] = {
    facts.IncarnationStarted: apply_sessions.incarnation_started,
    facts.SessionOpened: apply_sessions.session_opened,
    facts.RankRegistered: apply_sessions.rank_registered,
    facts.InstanceSealed: apply_sessions.instance_sealed,
    facts.SessionClosed: apply_sessions.session_closed,
    facts.InstanceClosed: apply_sessions.instance_closed,
    facts.ProcessReleased: apply_sessions.process_released,
    facts.StageReported: apply_sessions.stage_reported,
    facts.SpaceOpened: apply_sessions.space_opened,
    facts.StoreChanged: apply_sessions.store_changed,
    facts.ShutdownBegun: apply_sessions.shutdown_begun,
    facts.IncarnationClosed: apply_sessions.incarnation_closed,
    facts.PagesBound: apply_memory.pages_bound,
    facts.PagesUnbound: apply_memory.pages_unbound,
    facts.SuperblockCarved: apply_memory.superblock_carved,
    facts.SuperblockReturned: apply_memory.superblock_returned,
    facts.BuffersAllocated: apply_memory.buffers_allocated,
    facts.BuffersFreed: apply_memory.buffers_freed,
    facts.PagesInserted: apply_memory.pages_inserted,
    facts.PagesPromoted: apply_memory.pages_promoted,
    facts.PagesTouched: apply_memory.pages_touched,
    facts.PagesEvicted: apply_memory.pages_evicted,
    facts.AllocationFailed: apply_memory.allocation_failed,
    facts.QueryOpened: apply_queries.query_opened,
    facts.QueryWaiting: apply_queries.query_waiting,
    facts.QueryGranted: apply_queries.query_granted,
    facts.ReadsQueued: apply_reads.reads_queued,
    facts.ReadsJoined: apply_reads.reads_joined,
    facts.ReadsSubmitted: apply_reads.reads_submitted,
    facts.ReadsDropped: apply_reads.reads_dropped,
    facts.ReadsLanded: apply_reads.reads_landed,
    facts.ReadsFailed: apply_reads.reads_failed,
    facts.StaleCompletion: apply_reads.stale_completion,
    facts.QueryCut: apply_queries.query_cut,
    facts.DecisionSettled: apply_queries.decision_settled,
    facts.LeaseGranted: apply_queries.lease_granted,
    facts.QueryEnded: apply_queries.query_ended,
    facts.LeaseEnded: apply_queries.lease_ended,
    facts.RestoreBegun: apply_queries.restore_begun,
    facts.ShareEnded: apply_queries.share_ended,
    facts.GpuSynced: apply_queries.gpu_synced,
    facts.SyncFailed: apply_queries.sync_failed,
    facts.LeaseReleased: apply_queries.lease_released,
    facts.ReservationShrunk: apply_queries.reservation_shrunk,
    facts.ReservationEnded: apply_queries.reservation_ended,
    facts.PagesClaimed: apply_sharing.pages_claimed,
    facts.PagesUnclaimed: apply_sharing.pages_unclaimed,
    facts.ReservationGrown: apply_sharing.reservation_grown,
    facts.SaveBegun: apply_saves.save_begun,
    facts.SaveJoined: apply_saves.save_joined,
    facts.SavesDropped: apply_saves.saves_dropped,
    facts.SavesEnded: apply_saves.saves_ended,
    facts.CopiesStarted: apply_saves.copies_started,
    facts.SlicesFilled: apply_saves.slices_filled,
    facts.CopiesLost: apply_saves.copies_lost,
    facts.SealsStarted: apply_saves.seals_started,
    facts.SealsEnded: apply_saves.seals_ended,
    facts.PagesSealed: apply_saves.pages_sealed,
    facts.WritesQueued: apply_saves.writes_queued,
    facts.WritesDropped: apply_saves.writes_dropped,
    facts.SegmentOpened: apply_saves.segment_opened,
    facts.SegmentDraining: apply_saves.segment_draining,
    facts.SegmentReturned: apply_saves.segment_returned,
    facts.WritesSubmitted: apply_saves.writes_submitted,
    facts.SlotsWritten: apply_saves.slots_written,
    facts.WritesFailed: apply_saves.writes_failed,
    facts.SlotsFreed: apply_saves.slots_freed,
    facts.SlotsQuarantined: apply_saves.slots_quarantined,
    facts.SlotFailureCounted: apply_saves.slot_failure_counted,
    facts.SlotsRecovered: apply_saves.slots_recovered,
    facts.SlotsCondemned: apply_saves.slots_condemned,
    facts.HintAdmitted: apply_hints.hint_admitted,
    facts.HintSkipped: apply_hints.hint_skipped,
    facts.HintNotNeeded: apply_hints.hint_not_needed,
    facts.HintEnded: apply_hints.hint_ended,
    facts.WarmProbed: apply_hints.warm_probed,
    facts.PagesPrepared: apply_hints.pages_prepared,
    facts.PagesRestored: apply_hints.pages_restored,
    facts.PagesUnused: apply_hints.pages_unused,
}


def apply(state: State, event: Event) -> None:
    APPLIERS[type(event)](state, event)


def enter(state: State, seq: int, at_ns: int) -> None:
    """Begin a record: from here on recency and times are those of record `seq`."""
    assert seq == state.seq + 1, f"record {seq} follows {state.seq}"
    assert at_ns >= state.at_ns, "time never falls within an incarnation"
    state.seq = seq
    state.at_ns = at_ns


def fold(state: State, record: Record) -> None:
    """Apply one record of the log. Raises AssertionError where it does not fit the state."""
    enter(state, record.seq, record.at_ns)
    for event in record.events:
        APPLIERS[type(event)](state, event)
