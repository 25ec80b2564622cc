"""Facts: what happened, in the order it happened. Never refused; `apply` is their only reader in the kernel.

Packed u32 columns name pages, buffers, slots and reads (see `ids`). Columns of one fact that run in
parallel have equal length. New fields go last and have defaults.
"""

from typing import TypeAlias

import msgspec

from orbitkv.events.ids import Column, WideColumn
from orbitkv.events.outcomes import (
    EvictionReason,
    LeaseEnd,
    Origin,
    PageClass,
    QueryEnd,
    SaveDrop,
    SessionEnd,
    Share,
    SlotEnd,
    WriteDrop,
)


class _Event(msgspec.Struct, array_like=True, frozen=True, gc=False):
    pass


# --- sessions, processes, instances ---------------------------------------------------------------


class IncarnationStarted(_Event, tag=1):
    incarnation: int


class SessionOpened(_Event, tag=2):
    session: int
    process: int
    end_observable: bool
    pid: int = 0


class RankRegistered(_Event, tag=3):
    session: int
    instance: int
    rank: int
    name: str
    """The engine's own name for the instance."""
    world_size: int


class InstanceSealed(_Event, tag=4):
    """All ranks are there: from now on the instance is served."""

    instance: int
    namespace: int
    namespace_digest: bytes
    groups: tuple[tuple[int, int, int, int], ...]
    """(group, space, page tokens, footprint bytes)"""


class SessionClosed(_Event, tag=5):
    session: int
    cause: SessionEnd


class InstanceClosed(_Event, tag=6):
    """Its last session is gone and nothing of it is held."""

    instance: int


class ProcessReleased(_Event, tag=7):
    process: int
    by_operator: bool


class StageReported(_Event, tag=8):
    session: int
    request: str
    attempt: int
    stage: str


# --- pages and buffers -----------------------------------------------------------------------------


class SpaceOpened(_Event, tag=10):
    space: int
    namespace_digest: bytes
    group: int


class PagesBound(_Event, tag=11):
    """Page numbers now stand for these keys."""

    space: int
    pages: Column
    keys: tuple[bytes, ...]


class PagesUnbound(_Event, tag=12):
    """These page numbers are free: the pages are in no tier and nothing refers to them."""

    pages: Column


class SuperblockCarved(_Event, tag=13):
    superblock: int
    slot_bytes: int


class SuperblockReturned(_Event, tag=14):
    superblock: int


class BuffersAllocated(_Event, tag=15):
    """DRAM was taken for these pages; generation numbers run on from `generation`."""

    buffers: Column
    pages: Column
    offsets: WideColumn
    """Byte offsets in the pool."""
    slot_bytes: int
    footprint_bytes: int
    generation: int


class BuffersFreed(_Event, tag=16):
    """Nothing holds or indexes these buffers any more; their memory may be reused."""

    buffers: Column


class PagesInserted(_Event, tag=17):
    """These buffers are now what lookups of their pages find."""

    buffers: Column
    page_class: PageClass
    origin: Origin


class PagesPromoted(_Event, tag=18):
    """Reclaimable pages became retained because a demand owns them or a save found them."""

    buffers: Column


class PagesTouched(_Event, tag=19):
    """Recency moved to this record; the last of the column is the oldest."""

    buffers: Column


class PagesEvicted(_Event, tag=20):
    """These buffers left the index."""

    buffers: Column
    page_class: PageClass
    reason: EvictionReason


class AllocationFailed(_Event, tag=21):
    """After reclaim there was still no room."""

    operation: int
    """0: a save."""
    requested_bytes: int
    largest_free_bytes: int


# --- queries and leases ------------------------------------------------------------------------------


class QueryOpened(_Event, tag=30):
    operation: int
    instance: int
    session: int
    request: str
    attempt: int
    revision: int
    asked_pages: int
    charge_bytes: int
    deadline_ns: int


class QueryWaiting(_Event, tag=31):
    """Its budget is full; it is granted in order when bytes come free."""

    operation: int
    reserved_bytes: int
    """What was reserved then: globally, or by the instance if that limit was met."""
    limit_bytes: int
    by_instance: bool


class QueryGranted(_Event, tag=32):
    """Its budget is reserved. `buffers` are the DRAM hits it now owns, at `positions` of its page list."""

    operation: int
    charge_bytes: int
    reach: tuple[int, ...]
    """Per part: how many leading pages it goes on with (the rest is a miss)."""
    positions: Column
    buffers: Column


class ReadsQueued(_Event, tag=33):
    """Pages to be read from SSD for this operation; read ids run on from `read`."""

    operation: int
    read: int
    pages: Column
    positions: Column
    origin: Origin


class ReadsJoined(_Event, tag=34):
    """This operation shares reads that others started."""

    operation: int
    reads: Column
    positions: Column


class ReadsSubmitted(_Event, tag=35):
    """Handed to the device: from now on they end by completion only."""

    reads: Column
    buffers: Column
    slots: Column
    origin: Origin


class ReadsDropped(_Event, tag=36):
    """Left the queue before submission: nobody wants them, or there is no room."""

    reads: Column
    no_room: bool


class ReadsLanded(_Event, tag=37):
    """Verified pages stand in their buffers. Every owner still interested now holds the buffer."""

    reads: Column


class ReadsFailed(_Event, tag=38):
    reads: Column
    outcomes: bytes


class StaleCompletion(_Event, tag=39):
    """A completion that nothing waited for: late, doubled, or of another incarnation. It changed nothing."""

    kind: str
    count: int


class QueryCut(_Event, tag=40):
    """A page of its prefix failed or found no room; it goes on with what lies before."""

    operation: int
    reach: tuple[int, ...]
    dropped: Column
    """Buffers it owned beyond the cut."""


class DecisionSettled(_Event, tag=41):
    """dram + peer + ssd + miss = asked, in pages, once for every demand that is answered."""

    operation: int
    asked: int
    dram: int
    peer: int
    ssd: int
    miss: int


class LeaseGranted(_Event, tag=42):
    """The operation is answered with hits. The lease takes over its buffers and its charge."""

    lease: int
    operation: int
    boundary_tokens: int
    charge_bytes: int
    deadline_ns: int


class QueryEnded(_Event, tag=43):
    operation: int
    end: QueryEnd


class LeaseEnded(_Event, tag=44):
    """The promise is over. Copies that ranks have begun still hold their buffers."""

    lease: int
    end: LeaseEnd


class RestoreBegun(_Event, tag=45):
    lease: int
    session: int
    rank: int


class ShareEnded(_Event, tag=46):
    """One rank's copies no longer hold the lease's buffers (not so for Share.STRANDED)."""

    lease: int
    rank: int
    share: Share


class GpuSynced(_Event, tag=47):
    """A rank's device finished copying; the pages at `ranges` of the lease were restored."""

    lease: int
    rank: int
    ranges: tuple[tuple[int, int], ...]
    layers: int
    copied_bytes: int
    elapsed_us: int
    late: bool
    """The lease had expired; the pages were still held for this copy."""


class SyncFailed(_Event, tag=48):
    lease: int
    rank: int
    stopped: bool


class LeaseReleased(_Event, tag=49):
    """Nothing of it is held any more; its charge is over."""

    lease: int


class ReservationShrunk(_Event, tag=50):
    """An operation that ended, or was cut, keeps only what its own submitted reads still need."""

    operation: int
    charge_bytes: int


class ReservationEnded(_Event, tag=51):
    """The operation's charge is over, without a lease to carry it on."""

    operation: int


# --- saves and the SSD -------------------------------------------------------------------------------


class SaveBegun(_Event, tag=60):
    """These new buffers wait for the slices of the instance's ranks."""

    instance: int
    buffers: Column
    deadline_ns: int


class SaveJoined(_Event, tag=61):
    """Another rank will fill its slice of pages that are being saved."""

    session: int
    buffers: Column


class SavesDropped(_Event, tag=62):
    reason: SaveDrop
    count: int
    """Pages."""
    buffers: Column = b""
    """Half-filled buffers that are given up; empty where none was taken."""


class CopiesStarted(_Event, tag=63):
    """The manager reads the rank's slices out of its staging window."""

    session: int
    rank: int
    buffers: Column
    staging_offsets: WideColumn


class SlicesFilled(_Event, tag=64):
    session: int
    rank: int
    buffers: Column


class SealsStarted(_Event, tag=65):
    """All slices are there; the trailer is being computed."""

    buffers: Column


class PagesSealed(_Event, tag=66):
    """Saved: verified content with a trailer, acknowledged."""

    buffers: Column


class WritesQueued(_Event, tag=67):
    buffers: Column


class WritesDropped(_Event, tag=68):
    reason: WriteDrop
    buffers: Column


class SegmentOpened(_Event, tag=69):
    segment: int
    slot_bytes: int


class SegmentDraining(_Event, tag=70):
    """No page is looked up in it any more; it is reused when its last reads have ended."""

    segment: int


class SegmentReturned(_Event, tag=71):
    segment: int


class WritesSubmitted(_Event, tag=72):
    """These slots are assigned to these buffers' pages; findable only once written."""

    slots: Column
    buffers: Column


class SlotsWritten(_Event, tag=73):
    slots: Column


class SlotsFreed(_Event, tag=74):
    slots: Column
    end: SlotEnd


class SlotsQuarantined(_Event, tag=75):
    slots: Column


class SlotFailureCounted(_Event, tag=76):
    """A read of this slot was short or failed; it is quarantined after `ssd_read_failures_max`."""

    slot: int


class SlotsRecovered(_Event, tag=77):
    """Slots of an earlier incarnation that are served again."""

    segment: int
    slots: Column
    pages: Column
    generations: WideColumn
    incarnations: Column
    footprints: Column


class StoreChanged(_Event, tag=78):
    writable: bool
    reason: str


# --- the end -----------------------------------------------------------------------------------------


class ShutdownBegun(_Event, tag=90):
    pass


class IncarnationClosed(_Event, tag=91):
    lost_tail: bool


Event: TypeAlias = (
    IncarnationStarted
    | SessionOpened
    | RankRegistered
    | InstanceSealed
    | SessionClosed
    | InstanceClosed
    | ProcessReleased
    | StageReported
    | SpaceOpened
    | PagesBound
    | PagesUnbound
    | SuperblockCarved
    | SuperblockReturned
    | BuffersAllocated
    | BuffersFreed
    | PagesInserted
    | PagesPromoted
    | PagesTouched
    | PagesEvicted
    | AllocationFailed
    | QueryOpened
    | QueryWaiting
    | QueryGranted
    | ReadsQueued
    | ReadsJoined
    | ReadsSubmitted
    | ReadsDropped
    | ReadsLanded
    | ReadsFailed
    | StaleCompletion
    | QueryCut
    | DecisionSettled
    | LeaseGranted
    | QueryEnded
    | LeaseEnded
    | RestoreBegun
    | ShareEnded
    | GpuSynced
    | SyncFailed
    | LeaseReleased
    | ReservationShrunk
    | ReservationEnded
    | SaveBegun
    | SaveJoined
    | SavesDropped
    | CopiesStarted
    | SlicesFilled
    | SealsStarted
    | PagesSealed
    | WritesQueued
    | WritesDropped
    | SegmentOpened
    | SegmentDraining
    | SegmentReturned
    | WritesSubmitted
    | SlotsWritten
    | SlotsFreed
    | SlotsQuarantined
    | SlotFailureCounted
    | SlotsRecovered
    | StoreChanged
    | ShutdownBegun
    | IncarnationClosed
)
