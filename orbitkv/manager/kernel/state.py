"""State: the fold of the events. Tables of what exists, and totals that only `apply` changes.

Nothing here decides. Sets of ids are dicts without values, because a set's order is not the order of
the log. Tables that have a deadline are OrderedDicts in deadline order: lifetimes are
constants and time never falls, so the first entry is always the next to expire.
"""

from collections import OrderedDict
from typing import Any

import attrs
import msgspec

from orbitkv.events.config import KernelConfig
from orbitkv.events.geometry import GroupGeometry
from orbitkv.events.outcomes import Origin, Phase, QueryEnd, Share
from orbitkv.manager.kernel.buffers import BufferTable
from orbitkv.manager.kernel.columns import EMPTY, Ints
from orbitkv.manager.kernel.pages import PageTable
from orbitkv.manager.kernel.slots import SlotTable
from orbitkv.manager.kernel.superblocks import Superblocks


@attrs.define(slots=True)
class Process:
    pid: int
    end_observable: bool
    sessions: dict[int, None] = attrs.field(factory=dict)
    copies: int = 0
    """Copies that it has begun and not ended: they hold their pages until it is gone."""


@attrs.define(slots=True)
class Session:
    process: int
    instance: int = -1
    rank: int = 0
    ticket_high: int = 0
    """Tickets at or below it never open an operation again."""
    operations: dict[int, None] = attrs.field(factory=dict)
    staging_bytes: int = 0


@attrs.define(slots=True)
class Rank:
    session: int
    """-1 while nobody has this rank."""
    process: int
    groups: tuple[GroupGeometry, ...]


@attrs.frozen(slots=True)
class Piece:
    """A run of bytes that a rank's staging window and a page image have in common."""

    staging_offset: int
    """From the start of the page's place in the window."""
    image_offset: int
    payload_bytes: int
    padded_bytes: int


@attrs.define(slots=True)
class GroupLayout:
    """How the slices of one group lie in a page image."""

    space: int
    page_tokens: int
    footprint_bytes: int
    fills: dict[int, tuple["Piece", ...]]
    """rank -> what it writes when it saves. A rank whose slices others store is not in it."""
    reads: dict[int, tuple[tuple[int, int], ...]]
    """rank -> (offset in the image, payload bytes) of each of its slices, for restores."""
    staging: dict[int, int]
    """rank -> bytes that a page takes in its staging window: all its slices in registered order, padded."""


@attrs.define(slots=True)
class Instance:
    name: str
    world_size: int
    namespace_digest: bytes
    ranks: dict[int, Rank] = attrs.field(factory=dict)
    groups: dict[int, GroupLayout] = attrs.field(factory=dict)
    """Empty until the instance is sealed."""
    reserved_bytes: int = 0
    warming_bytes: int = 0
    """The part of `reserved_bytes` that hints hold."""
    leases: int = 0
    """Leases not yet released."""
    saves: int = 0

    @property
    def sealed(self) -> bool:
        return bool(self.groups)

    def open_sessions(self) -> list[int]:
        return [rank.session for rank in self.ranks.values() if rank.session >= 0]


@attrs.define(slots=True)
class Part:
    """One part of a query. Until it is granted, `pages` may hold NONE for keys not known."""

    group: int
    page_tokens: int
    trailing: int
    pages: Ints
    unknown: tuple[bytes, ...]
    asked: int
    reach: int = 0
    """Pages from the start up to the boundary, once granted."""

    @property
    def first(self) -> int:
        """Position of the first page that is needed at the boundary."""
        return max(0, self.reach - self.trailing) if self.trailing else 0

    @property
    def needed(self) -> int:
        return self.reach - self.first


@attrs.define(slots=True)
class Operation:
    instance: int
    session: int
    request: str
    attempt: int
    revision: int
    body: int
    parts: tuple[Part, ...]
    asked: int
    charge_bytes: int
    deadline_ns: int
    opened_seq: int
    granted: bool = False
    hint: bool = False
    """A hint is never answered, holds no buffer and gets no lease."""
    lease: int = -1
    buffers: Ints = EMPTY
    """By position over the needed pages of all parts: the held buffer, or -1 while it is read."""
    from_ssd: Ints = EMPTY
    """By position: 1 where the page comes from a read."""
    awaited: dict[int, int] = attrs.field(factory=dict)
    """Read -> position."""


_HOLDING = (Share.RESTORING, Share.STRANDED)


@attrs.define(slots=True)
class Consumer:
    share: Share
    session: int = -1
    process: int = -1

    @property
    def holds(self) -> bool:
        return self.share in _HOLDING


@attrs.define(slots=True)
class Lease:
    operation: int
    instance: int
    session: int
    buffers: Ints
    boundary_tokens: int
    parts: tuple[tuple[int, int, int], ...]
    """(group, first page position, pages) per part."""
    deadline_ns: int
    shares: dict[int, Consumer]
    ended: bool = False


@attrs.define(slots=True)
class Reservation:
    instance: int
    charge_bytes: int
    phase: Phase
    lease: int = -1
    """The lease that keeps `lease_bytes` of it, until that is released."""
    lease_bytes: int = 0
    reads: dict[int, None] = attrs.field(factory=dict)
    """Reads that its operation started and that have not ended."""
    claimed: dict[int, int] = attrs.field(factory=dict)
    """With charge = shared: page -> footprint of the pages that it stands in line for."""

    @property
    def kind(self) -> tuple[int, bool]:
        """(instance, whether a hint's): who shares a line."""
        return self.instance, self.phase == Phase.WARMING


class Read(msgspec.Struct, frozen=True, gc=False):
    """A row, replaced by another when it is submitted; only `waiters` changes in place.

    A msgspec struct although it never leaves memory: there is one for every page that is read, and an
    attrs class takes three times as long to make.
    """

    page: int
    starter: int
    """The operation that queued it; its reservation covers the read until it ends."""
    origin: Origin
    footprint_bytes: int
    slot: int = -1
    buffer: int = -1
    submitted: bool = False
    foreground: bool = True
    """Once submitted: whether its bytes in flight are a demand's."""
    waiters: dict[int, int] = msgspec.field(default_factory=dict)
    """Operation -> position, in the order of joining."""


@attrs.define(slots=True)
class Save:
    instance: int
    group: int
    page: int
    deadline_ns: int
    filled: dict[int, None] = attrs.field(factory=dict)
    copying: dict[int, None] = attrs.field(factory=dict)
    sealing: bool = False
    given_up: bool = False
    """Dropped while a copy or the seal still runs; freed when that ends."""


@attrs.define(slots=True)
class Decision:
    """An answer without a lease, kept for the instance's other ranks."""

    operation: int
    revision: int
    session: int
    end: QueryEnd


@attrs.define(slots=True)
class Totals:
    """Counters since the incarnation began; they never fall."""

    asked_pages: int = 0
    dram_pages: int = 0
    ssd_pages: int = 0
    miss_pages: int = 0
    decisions: int = 0
    budget_waits: int = 0
    budget_bypasses: int = 0
    coalesced_reads: int = 0
    alloc_failures: int = 0
    insertions: int = 0
    promotions: int = 0
    evictions: dict[tuple[int, int], int] = attrs.field(factory=dict)
    """(page class, reason) -> pages."""
    query_ends: dict[int, int] = attrs.field(factory=dict)
    lease_ends: dict[int, int] = attrs.field(factory=dict)
    reads_submitted: int = 0
    reads_ended: int = 0
    read_bytes: int = 0
    read_us: int = 0
    read_failures: dict[int, int] = attrs.field(factory=dict)
    writes_submitted: int = 0
    write_bytes: int = 0
    write_us: int = 0
    write_drops: dict[int, int] = attrs.field(factory=dict)
    saves_begun: int = 0
    pages_sealed: int = 0
    save_bytes: int = 0
    save_drops: dict[int, int] = attrs.field(factory=dict)
    load_bytes: int = 0
    load_us: int = 0
    loads: int = 0
    load_failures: int = 0
    hints_admitted: int = 0
    hints_not_needed: int = 0
    hint_skips: dict[int, int] = attrs.field(factory=dict)
    hint_ends: dict[int, int] = attrs.field(factory=dict)
    probed_pages: int = 0
    probed_dram_pages: int = 0
    probed_ssd_pages: int = 0
    probed_miss_pages: int = 0
    prepared_bytes: int = 0
    restored_bytes: int = 0
    unused_bytes: dict[int, int] = attrs.field(factory=dict)
    """Cause -> bytes."""
    restored_wait_kib_us: int = 0
    """Footprint x time from landing to the first restore."""
    unused_wait_kib_us: int = 0
    stale_completions: int = 0
    residence_us: dict[int, int] = attrs.field(factory=dict)
    """Eviction reason -> time from becoming findable in DRAM to the eviction, summed over pages."""
    copies: int = 0
    """Slices of pages copied out of staging windows, per rank."""
    copy_us: int = 0


@attrs.define(slots=True, repr=False)
class State:
    config: KernelConfig
    kernel_revision: int
    incarnation: int = 0
    seq: int = 0
    at_ns: int = 0
    started: bool = False
    shutting_down: bool = False
    closed: bool = False
    host: str = ""
    store_writable: bool = True
    store_reason: str = ""
    generation_next: int = 1
    lease_next: int = 1
    read_next: int = 1
    instance_next: int = 1
    sessions: dict[int, Session] = attrs.field(factory=dict)
    session_high: int = 0
    processes: dict[int, Process] = attrs.field(factory=dict)
    instances: dict[int, Instance] = attrs.field(factory=dict)
    instance_names: dict[str, int] = attrs.field(factory=dict)
    space_numbers: dict[tuple[bytes, int], int] = attrs.field(factory=dict)
    pages: PageTable = attrs.field(factory=PageTable)
    buffers: BufferTable = attrs.field(factory=BufferTable)
    superblocks: Superblocks = attrs.field(init=False)
    slots: SlotTable = attrs.field(init=False)
    operations: dict[int, Operation] = attrs.field(factory=dict)
    unanswered: "OrderedDict[int, None]" = attrs.field(factory=OrderedDict)
    """Operations without an answer, in deadline order."""
    hints: "OrderedDict[int, None]" = attrs.field(factory=OrderedDict)
    """Hints that have not ended, in deadline order."""
    hint_requests: dict[tuple[int, str, int], int] = attrs.field(factory=dict)
    waiting: "OrderedDict[int, None]" = attrs.field(factory=OrderedDict)
    """Operations that wait for budget, in the order in which they are granted."""
    by_request: dict[tuple[int, str, int], int] = attrs.field(factory=dict)
    decisions: "OrderedDict[tuple[int, str, int], Decision]" = attrs.field(factory=OrderedDict)
    decided: dict[int, tuple[int, str, int]] = attrs.field(factory=dict)
    """Operation -> key in `decisions`."""
    leases: dict[int, Lease] = attrs.field(factory=dict)
    promised: "OrderedDict[int, None]" = attrs.field(factory=OrderedDict)
    """Leases that have not ended, in deadline order."""
    reservations: dict[int, Reservation] = attrs.field(factory=dict)
    claims: dict[tuple[int, bool], dict[int, dict[int, None]]] = attrs.field(factory=dict)
    """With charge = shared: (instance, hints) -> page -> operations in line, the first pays."""
    reserved_bytes: int = 0
    reserved_by_phase: list[int] = attrs.field(factory=lambda: [0, 0, 0, 0])
    reads: dict[int, Read] = attrs.field(factory=dict)
    read_queue: "OrderedDict[int, None]" = attrs.field(factory=OrderedDict)
    """Reads that a demand waits for, in the order in which they are submitted."""
    warm_queue: "OrderedDict[int, None]" = attrs.field(factory=OrderedDict)
    """Reads that only hints wait for; they yield to the others."""
    foreground_bytes_in_flight: int = 0
    background_bytes_in_flight: int = 0
    saves: "OrderedDict[int, Save]" = attrs.field(factory=OrderedDict)
    """Buffer -> save, in deadline order."""
    pending_bytes: int = 0
    """Footprints of prepared pages whose outcome is open."""
    write_queue: "OrderedDict[int, None]" = attrs.field(factory=OrderedDict)
    """Sealed buffers that wait for an SSD slot."""
    writing: dict[int, int] = attrs.field(factory=dict)
    """Slot -> buffer."""
    totals: Totals = attrs.field(factory=Totals)

    def __attrs_post_init__(self) -> None:
        self.size_tables()

    def size_tables(self) -> None:
        """Empty pool and SSD tables of the configuration's sizes; called again when `Start` brings those."""
        config = self.config
        self.superblocks = Superblocks(config.pool_bytes, config.superblock_bytes)
        self.slots = SlotTable(config.ssd_bytes, config.ssd_segment_bytes, config.ssd_slots_per_segment_max)

    def __repr__(self) -> str:
        queued = len(self.read_queue) + len(self.warm_queue)
        fields: dict[str, Any] = {
            "seq": self.seq,
            "sessions": len(self.sessions),
            "instances": len(self.instances),
            "pages": self.pages.bound_count(),
            "buffers": self.buffers.live_count(),
            "used": self.superblocks.used_bytes,
            "operations": len(self.operations),
            "waiting": len(self.waiting),
            "leases": len(self.leases),
            "reserved": self.reserved_bytes,
            "hints": len(self.hints),
            "pending": self.pending_bytes,
            "reads": f"{len(self.reads) - queued}+{queued}",
            "saves": len(self.saves),
            "writes": f"{len(self.writing)}+{len(self.write_queue)}",
            "in_flight": self.foreground_bytes_in_flight + self.background_bytes_in_flight,
        }
        return f"<{self.incarnation} " + " ".join(f"{name}={value}" for name, value in fields.items()) + ">"


def new_state(config: KernelConfig | None = None, kernel_revision: int = 0) -> State:
    """The state before the first record. `Start` brings the configuration."""
    if config is None:
        config = KernelConfig(
            pool_bytes=0, superblock_bytes=1, query_budget_bytes=0, instance_query_budget_bytes=0
        )
    return State(config, kernel_revision)
