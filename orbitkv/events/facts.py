"""Facts: what happened, in the order it happened. Never refused; `apply` is their only reader in the kernel.

Packed u32 columns name pages, buffers, slots and reads (see `ids`). Columns of one fact that run in
parallel have equal length. New fields go last and have defaults.
"""

from typing import TypeAlias

import msgspec

from orbitkv.events.config import KernelConfig
from orbitkv.events.geometry import GroupGeometry
from orbitkv.events.ids import Column, WideColumn
from orbitkv.events.outcomes import (
    EvictionReason,
    HintEnd,
    HintSkip,
    LeaseEnd,
    Origin,
    PageClass,
    QueryEnd,
    SaveDrop,
    SessionEnd,
    Share,
    SlotEnd,
    Unused,
    WriteDrop,
)


class _Event(msgspec.Struct, array_like=True, frozen=True, gc=False):
    pass


# --- sessions, processes, instances ---------------------------------------------------------------


class IncarnationStarted(_Event, tag=1, frozen=True):
    """A manager has begun, with this configuration. First fact of every chain."""

    incarnation: int
    kernel_revision: int
    config: KernelConfig
    host: str


class SessionOpened(_Event, tag=2, frozen=True):
    """A process has connected."""

    session: int
    process: int
    end_observable: bool
    pid: int = 0


class RankRegistered(_Event, tag=3, frozen=True):
    """A session speaks for this rank of an engine from now on."""

    session: int
    instance: int
    rank: int
    name: str
    """The engine's own name for the instance."""
    world_size: int
    namespace_digest: bytes
    groups: tuple[GroupGeometry, ...]
    staging_bytes: int


class InstanceSealed(_Event, tag=4, frozen=True):
    """All ranks are there: from now on the instance is served."""

    instance: int
    namespace_digest: bytes
    groups: tuple[tuple[int, int, int, int], ...]
    """(group, space, page tokens, footprint bytes)"""


class SessionClosed(_Event, tag=5, frozen=True):
    """The connection is over. What its process has begun to copy is still held."""

    session: int
    cause: SessionEnd


class InstanceClosed(_Event, tag=6, frozen=True):
    """Its last session is gone and nothing of it is held."""

    instance: int


class ProcessReleased(_Event, tag=7, frozen=True):
    """The process is gone: its copies hold nothing any more."""

    process: int
    by_operator: bool


class StageReported(_Event, tag=8, frozen=True):
    """What an engine says of a request. No decision depends on it."""

    session: int
    request: str
    attempt: int
    stage: str


# --- pages and buffers -----------------------------------------------------------------------------


class SpaceOpened(_Event, tag=10, frozen=True):
    """A scope for page keys. Its digest covers the namespace and the exact layout of the group's pages."""

    space: int
    namespace_digest: bytes
    group: int


class PagesBound(_Event, tag=11, frozen=True):
    """Page numbers now stand for these keys."""

    space: int
    pages: Column
    keys: tuple[bytes, ...]


class PagesUnbound(_Event, tag=12, frozen=True):
    """These page numbers are free: the pages are in no tier and nothing refers to them."""

    pages: Column


class SuperblockCarved(_Event, tag=13, frozen=True):
    """A piece of the pool holds pages of this size from now on."""

    superblock: int
    slot_bytes: int


class SuperblockReturned(_Event, tag=14, frozen=True):
    """Its last page is gone: the piece of the pool may take any size."""

    superblock: int


class BuffersAllocated(_Event, tag=15, frozen=True):
    """DRAM was taken for these pages; generation numbers run on from `generation`."""

    buffers: Column
    pages: Column
    offsets: WideColumn
    """Byte offsets in the pool."""
    slot_bytes: int
    footprint_bytes: int
    generation: int


class BuffersFreed(_Event, tag=16, frozen=True):
    """Nothing holds or indexes these buffers any more; their memory may be reused."""

    buffers: Column


class PagesInserted(_Event, tag=17, frozen=True):
    """These buffers are now what lookups of their pages find."""

    buffers: Column
    page_class: PageClass
    origin: Origin


class PagesPromoted(_Event, tag=18, frozen=True):
    """Reclaimable pages became retained because a demand owns them or a save found them."""

    buffers: Column


class PagesTouched(_Event, tag=19, frozen=True):
    """Recency moved to this record; the last of the column is the oldest."""

    buffers: Column


class PagesEvicted(_Event, tag=20, frozen=True):
    """These buffers left the index."""

    buffers: Column
    page_class: PageClass
    reason: EvictionReason


class AllocationFailed(_Event, tag=21, frozen=True):
    """After reclaim there was still no room."""

    operation: int
    """0: a save."""
    requested_bytes: int
    largest_free_bytes: int


# --- queries and leases ------------------------------------------------------------------------------


class QueryOpened(_Event, tag=30, frozen=True):
    """A demand: the first rank asked for a request's pages, or asks for others than before."""

    operation: int
    instance: int
    session: int
    request: str
    attempt: int
    revision: int
    asked_pages: int
    charge_bytes: int
    deadline_ns: int
    parts: tuple[tuple[int, int, int, int], ...]
    """(group, page tokens, trailing, pages asked) per part."""
    body: int = 0


class QueryWaiting(_Event, tag=31, frozen=True):
    """Its budget is full; it is granted in order when bytes come free."""

    operation: int
    pages: tuple[Column, ...]
    """Per part; NONE_U32 where the page is not known yet."""
    unknown: tuple[tuple[bytes, ...], ...]
    """Per part: the raw keys of those, looked up again when it is granted."""
    reserved_bytes: int
    """What was reserved then: globally, or by the instance if that limit was met."""
    limit_bytes: int
    by_instance: bool


class QueryGranted(_Event, tag=32, frozen=True):
    """Its budget is reserved. It goes on with the pages up to its boundary, in part order: position 0, 1, ...

    `buffers` are the DRAM hits among them: it holds them from now on, and they become recent.
    """

    operation: int
    charge_bytes: int
    reach: tuple[int, ...]
    """Per part: pages from its start to the boundary. Beyond it nothing is read, leased or promoted."""
    positions: Column
    """Where `buffers` stand; empty if they are all of its pages."""
    buffers: Column


class ReadsQueued(_Event, tag=33, frozen=True):
    """Pages to be read from SSD for this operation; read ids run on from `read`."""

    operation: int
    read: int
    pages: Column
    positions: Column
    origin: Origin


class ReadsJoined(_Event, tag=34, frozen=True):
    """This operation shares reads that others started."""

    operation: int
    reads: Column
    positions: Column


class ReadsSubmitted(_Event, tag=35, frozen=True):
    """Handed to the device: from now on they end by completion only."""

    reads: Column
    buffers: Column
    slots: Column
    origin: Origin
    """Of the earliest owner that was still interested."""
    foreground: bool = True
    """Whether a demand waited for them: they may use the reserved part of the bytes in flight."""


class ReadsDropped(_Event, tag=36, frozen=True):
    """Left the queue before submission: nobody wants them, or there is no room."""

    reads: Column
    no_room: bool


class ReadsLanded(_Event, tag=37, frozen=True):
    """Verified pages stand in their buffers. Every owner still interested now holds the buffer."""

    reads: Column
    read_bytes: Column
    elapsed_us: Column


class ReadsFailed(_Event, tag=38, frozen=True):
    """These reads ended without a page: a miss for all who waited."""

    reads: Column
    outcomes: bytes


class StaleCompletion(_Event, tag=39, frozen=True):
    """A completion that nothing waited for: late, doubled, or of another incarnation. It changed nothing."""

    kind: str
    count: int


class QueryCut(_Event, tag=40, frozen=True):
    """A page of its prefix failed or found no room; it goes on with what lies before.

    Buffers that it held beyond the new boundary are let go, reads there are no longer waited for.
    """

    operation: int
    reach: tuple[int, ...]


class DecisionSettled(_Event, tag=41, frozen=True):
    """dram + peer + ssd + miss = asked, in pages, once for every demand that is answered."""

    operation: int
    asked: int
    dram: int
    peer: int
    ssd: int
    miss: int


class LeaseGranted(_Event, tag=42, frozen=True):
    """The operation is answered with hits. The lease takes over its buffers and its charge."""

    lease: int
    operation: int
    boundary_tokens: int
    charge_bytes: int
    deadline_ns: int


class QueryEnded(_Event, tag=43, frozen=True):
    """The operation left the table, answered or not. A lease lives on without it."""

    operation: int
    end: QueryEnd


class LeaseEnded(_Event, tag=44, frozen=True):
    """The promise is over. Copies that ranks have begun still hold their buffers."""

    lease: int
    end: LeaseEnd


class RestoreBegun(_Event, tag=45, frozen=True):
    """A rank is copying the pages of the lease: they are held until its outcome is known."""

    lease: int
    session: int
    rank: int


class ShareEnded(_Event, tag=46, frozen=True):
    """One rank's copies no longer hold the lease's buffers (not so for Share.STRANDED)."""

    lease: int
    rank: int
    share: Share


class GpuSynced(_Event, tag=47, frozen=True):
    """A rank's device finished copying; the pages at `ranges` of the lease were restored."""

    lease: int
    rank: int
    ranges: tuple[tuple[int, int], ...]
    layers: int
    copied_bytes: int
    elapsed_us: int
    late: bool
    """The lease had ended (expired, cancelled ...); the pages were still held for this copy."""


class SyncFailed(_Event, tag=48, frozen=True):
    """A rank's copies failed. Not `stopped`: they may still run, so the pages are held."""

    lease: int
    rank: int
    stopped: bool


class LeaseReleased(_Event, tag=49, frozen=True):
    """Nothing of it is held any more."""

    lease: int


class ReservationShrunk(_Event, tag=50, frozen=True):
    """The operation keeps only what its lease and its own submitted reads still need."""

    operation: int
    charge_bytes: int


class ReservationEnded(_Event, tag=51, frozen=True):
    """The last holder of the operation's bytes (operation, lease, copy, own read in flight) let go."""

    operation: int


class PagesClaimed(_Event, tag=52, frozen=True):
    """With charge = shared: the operation stands in line for these pages; the first in line pays."""

    operation: int
    pages: Column
    footprint_bytes: int
    """Of each."""


class PagesUnclaimed(_Event, tag=53, frozen=True):
    """With charge = shared: the operation left the line, and who stood behind it may have to pay."""

    operation: int
    pages: Column


class ReservationGrown(_Event, tag=54, frozen=True):
    """With charge = shared: an earlier payer let go, so this operation pays for pages they shared."""

    operation: int
    charge_bytes: int


# --- saves and the SSD -------------------------------------------------------------------------------


class SaveBegun(_Event, tag=60, frozen=True):
    """These new buffers wait for the slices of the instance's ranks."""

    instance: int
    group: int
    buffers: Column
    deadline_ns: int


class SaveJoined(_Event, tag=61, frozen=True):
    """Another rank will fill its slice of pages that are being saved."""

    session: int
    buffers: Column


class SavesDropped(_Event, tag=62, frozen=True):
    """Pages that were offered and are not saved."""

    reason: SaveDrop
    count: int
    """Pages."""
    buffers: Column = b""
    """Half-filled buffers that are given up; empty where none was taken."""


class CopiesStarted(_Event, tag=63, frozen=True):
    """The manager reads the rank's slices out of its staging window."""

    session: int
    rank: int
    buffers: Column
    staging_offsets: WideColumn


class SlicesFilled(_Event, tag=64, frozen=True):
    """A rank's slices of these pages stand in the pool."""

    session: int
    rank: int
    buffers: Column
    elapsed_us: int = 0


class CopiesLost(_Event, tag=80, frozen=True):
    """The staging window was gone, or the save had been dropped: the copies ended without a use."""

    session: int
    rank: int
    buffers: Column


class SealsEnded(_Event, tag=81, frozen=True):
    """The seals of dropped saves ended."""

    buffers: Column


class WritesFailed(_Event, tag=82, frozen=True):
    """The device did not take these writes: the slots hold no page."""

    slots: Column
    outcomes: bytes
    """One WriteOutcome a byte."""


class SlotsCondemned(_Event, tag=83, frozen=True):
    """Slots that an earlier incarnation quarantined."""

    segment: int
    slots: Column


class SavesEnded(_Event, tag=79, frozen=True):
    """Dropped saves whose last copy or seal has ended; their memory is nobody's."""

    buffers: Column


class SealsStarted(_Event, tag=65, frozen=True):
    """All slices are there; the trailer is being computed."""

    buffers: Column


class PagesSealed(_Event, tag=66, frozen=True):
    """Saved: verified content with a trailer, acknowledged."""

    buffers: Column


class WritesQueued(_Event, tag=67, frozen=True):
    """Sealed pages wait for an SSD slot."""

    buffers: Column


class WritesDropped(_Event, tag=68, frozen=True):
    """Sealed pages that will not be written to the SSD."""

    reason: WriteDrop
    buffers: Column


class SegmentOpened(_Event, tag=69, frozen=True):
    """A part of the page file takes slots of this size from now on."""

    segment: int
    slot_bytes: int


class SegmentDraining(_Event, tag=70, frozen=True):
    """No page is looked up in it any more; it is reused when its last reads have ended."""

    segment: int


class SegmentReturned(_Event, tag=71, frozen=True):
    """No slot of it is in use: it may take any size."""

    segment: int


class WritesSubmitted(_Event, tag=72, frozen=True):
    """These slots are assigned to these buffers' pages; findable only once written."""

    slots: Column
    buffers: Column


class SlotsWritten(_Event, tag=73, frozen=True):
    """The writes ended: these slots are findable from now on."""

    slots: Column
    elapsed_us: int = 0
    """Sum over the slots."""


class SlotsFreed(_Event, tag=74, frozen=True):
    """These slots hold no page any more."""

    slots: Column
    end: SlotEnd


class SlotsQuarantined(_Event, tag=75, frozen=True):
    """These slots must not be used again: what was read from them was wrong."""

    slots: Column


class SlotFailureCounted(_Event, tag=76, frozen=True):
    """A read of this slot was short or failed; it is quarantined after `ssd_read_failures_max`."""

    slot: int


class SlotsRecovered(_Event, tag=77, frozen=True):
    """Slots of an earlier incarnation that are served again."""

    segment: int
    slots: Column
    pages: Column
    generations: WideColumn
    incarnations: Column
    footprints: Column


class StoreChanged(_Event, tag=78, frozen=True):
    """The SSD takes writes again, or takes no more."""

    writable: bool
    reason: str


# --- the end -----------------------------------------------------------------------------------------


class ShutdownBegun(_Event, tag=90, frozen=True):
    """Nothing is admitted any more; what is under way drains."""


class IncarnationClosed(_Event, tag=91, frozen=True):
    """Last fact of a chain. `lost_tail`: the log's end was cut, facts may be missing."""

    lost_tail: bool


# --- hints and the cohort of prepared pages ----------------------------------------------------------


class HintAdmitted(_Event, tag=100, frozen=True):
    """The hint's bytes are reserved; the pages that only the SSD has are being read for it."""

    operation: int
    instance: int
    session: int
    request: str
    attempt: int
    revision: int
    asked_pages: int
    charge_bytes: int
    deadline_ns: int
    parts: tuple[tuple[int, int, int, int], ...]
    """(group, page tokens, trailing, pages asked) per part."""
    pages: tuple[Column, ...]
    """Per part, up to the boundary: what it prepares, and what it must not push out for that."""
    body: int = 0


class HintSkipped(_Event, tag=101, frozen=True):
    """The hint was not admitted. `reserved_bytes` met `limit_bytes`, or the like for operations."""

    session: int
    instance: int
    ticket: int
    request: str
    attempt: int
    reason: HintSkip
    asked_pages: int
    charge_bytes: int
    reserved: int
    """What was in the way: bytes, or operations."""
    limit: int


class HintNotNeeded(_Event, tag=102, frozen=True):
    """Nothing that the hint names must be read: up to its boundary all of it is in DRAM."""

    session: int
    instance: int
    ticket: int
    request: str
    attempt: int
    asked_pages: int


class HintEnded(_Event, tag=103, frozen=True):
    """Its interest is over. Reads of its own that were submitted keep their reservation until they end."""

    operation: int
    end: HintEnd


class WarmProbed(_Event, tag=104, frozen=True):
    """What a hint's lookup saw, in pages: dram + peer + ssd + miss = asked. A peek: nothing was touched."""

    instance: int
    request: str
    attempt: int
    asked: int
    dram: int
    peer: int
    ssd: int
    miss: int


class PagesPrepared(_Event, tag=105, frozen=True):
    """Reads that speculation started have landed, verified: these generations join the cohort."""

    buffers: Column


class PagesRestored(_Event, tag=106, frozen=True):
    """Prepared generations that a successful GPU sync named for the first time."""

    buffers: Column


class PagesUnused(_Event, tag=107, frozen=True):
    """Prepared generations whose last cache, query, lease or copy owner let go before any restore."""

    buffers: Column
    cause: Unused


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
    | PagesClaimed
    | PagesUnclaimed
    | ReservationGrown
    | SaveBegun
    | SaveJoined
    | SavesDropped
    | CopiesStarted
    | SlicesFilled
    | SavesEnded
    | CopiesLost
    | SealsEnded
    | WritesFailed
    | SlotsCondemned
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
    | HintAdmitted
    | HintSkipped
    | HintNotNeeded
    | HintEnded
    | WarmProbed
    | PagesPrepared
    | PagesRestored
    | PagesUnused
)
