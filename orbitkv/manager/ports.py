"""What the shell needs of the world. Implementations live in `orbitkv.io`; faulty ones in the tests.

Every port that does work in the background has the same shape: `submit_*` never blocks and never
raises for what the device thinks of it; the result arrives through `completions()`, which returns
at least one result, as many as are there. Nothing submitted is ever taken back: whoever submits owns
the memory until the completion has come.
"""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import attrs

from orbitkv.events.ids import Column, WideColumn
from orbitkv.events.outcomes import CopyOutcome, ReadOutcome, SessionEnd, WriteOutcome


@attrs.frozen(slots=True)
class PageIdentity:
    """Who a page image is. Written to its trailer and checked against it."""

    namespace_digest: bytes
    group: int
    key: bytes
    incarnation: int
    generation: int


@attrs.frozen(slots=True)
class PageRead:
    token: int
    slot: int
    file_offset: int
    pool_offset: int
    image_bytes: int
    identity: PageIdentity
    foreground: bool


@attrs.frozen(slots=True)
class PageWrite:
    token: int
    slot: int
    file_offset: int
    pool_offset: int
    image_bytes: int
    identity: PageIdentity
    segment: int
    slot_index: int


@attrs.frozen(slots=True)
class ReadDone:
    token: int
    outcome: ReadOutcome
    read_bytes: int
    elapsed_us: int
    detail: str = ""


@attrs.frozen(slots=True)
class WriteDone:
    token: int
    outcome: WriteOutcome
    elapsed_us: int
    detail: str = ""


@attrs.frozen(slots=True)
class StoreInfo:
    """What is in force, for the first line of output, the log and `ssd_engine_info`."""

    engine: str
    """`io_uring`, `threads` or `none`."""
    direct: bool
    reason: str
    """Why, in words; names the setting that forced it or the host's refusal."""
    path: str
    capacity_bytes: int
    segment_bytes: int


@attrs.frozen(slots=True)
class RecoveredSegment:
    """One segment of the directory, in the columns that `RecoverSegment` takes; they run in parallel.

    Columns and not an object per slot: 10^5 slots are handed over in a fraction of a second.
    """

    segment: int
    slot_bytes: int
    slots: Column
    """Slot numbers (segment * slots_per_segment_max + index), ascending."""
    spaces: Column
    """Per slot: index into `scopes`."""
    scopes: tuple[tuple[bytes, int], ...]
    """(namespace digest, group) pairs."""
    keys: tuple[bytes, ...]
    generations: WideColumn
    incarnations: Column
    footprints: Column
    """Per slot, in units of ALIGNMENT_BYTES."""
    quarantined: Column
    """Slot numbers that an earlier incarnation found rotten."""


class PageStore(Protocol):
    """Pages on an SSD: one page file of fixed segments, and a dense directory of what stands in its slots."""

    @property
    def info(self) -> StoreInfo: ...

    def recovered(self) -> Sequence[RecoveredSegment]:
        """What the directory held when the store was opened; to be asked once, at start."""

    def submit_reads(self, reads: Sequence[PageRead]) -> None: ...

    def submit_writes(self, writes: Sequence[PageWrite]) -> None:
        """Clears each slot's directory entry first, sets it after the data has been written."""

    async def completions(self) -> Sequence[ReadDone | WriteDone]: ...

    def format_segment(self, segment: int, slot_bytes: int) -> None:
        """Makes every earlier directory entry of the segment void. Raises OSError."""

    def clear_slots(self, segment: int, slot_indices: Sequence[int], *, quarantine: bool) -> None:
        """Raises OSError."""

    @property
    def in_flight(self) -> int:
        """Submitted and not yet returned by `completions()`."""

    async def sync(self) -> None:
        """Flush data, then directory. Raises OSError."""

    async def aclose(self) -> None:
        """Drain what is in flight, flush, close. Shielded from cancellation."""


@attrs.frozen(slots=True)
class SliceCopy:
    """One rank's slice of one page, from its staging window into the pool."""

    token: int
    session: int
    staging_offset: int
    pool_offset: int
    payload_bytes: int
    padded_bytes: int


@attrs.frozen(slots=True)
class PageSeal:
    token: int
    pool_offset: int
    footprint_bytes: int
    identity: PageIdentity


@attrs.frozen(slots=True)
class CopyDone:
    token: int
    outcome: CopyOutcome
    elapsed_us: int


@attrs.frozen(slots=True)
class SealDone:
    token: int
    elapsed_us: int


CarrierDone: TypeAlias = CopyDone | SealDone


class Carrier(Protocol):
    """Copies and checksums, off the event loop, with functions that drop the GIL."""

    def attach_staging(self, session: int, fd: int, staging_bytes: int) -> None:
        """Map a session's staging window; takes over the descriptor. Raises OSError, ValueError."""

    def detach_staging(self, session: int) -> None:
        """Copies already submitted from it still end, as SOURCE_GONE or COPIED."""

    def submit_copies(self, copies: Sequence[SliceCopy]) -> None: ...

    def submit_seals(self, seals: Sequence[PageSeal]) -> None: ...

    async def completions(self) -> Sequence[CarrierDone]: ...

    async def aclose(self) -> None: ...


class Pool(Protocol):
    """The DRAM that pages live in, shared read-only with the engines."""

    @property
    def pool_bytes(self) -> int: ...

    def reader_fd(self) -> int:
        """A descriptor that an engine can map for reading and nothing else. The caller closes it."""

    async def prepare_superblock(self, superblock: int) -> None:
        """Populate and collapse, in a thread. Idempotent."""

    def close(self) -> None: ...


class JournalFull(Exception):
    """The log's disk takes no more; what was appended is kept in memory up to the journal's bound."""


class Journal(Protocol):
    """The append-only log. One thread writes and syncs; the loop only hands over bytes."""

    def append(self, first_seq: int, last_seq: int, payload: bytes) -> None:
        """Queue one log frame. Never blocks. Raises JournalFull when its bound in memory is met."""

    @property
    def segment_full(self) -> bool:
        """True when the next frame should start a new segment, for which the caller brings a snapshot."""

    def roll(self, snapshot: bytes, next_seq: int) -> None:
        """Seal the current segment and begin the next one with this snapshot of the state."""

    async def written(self, seq: int) -> None:
        """Wait until the frame with this seq has been written to the file (not necessarily synced)."""

    @property
    def lag_bytes(self) -> int: ...

    @property
    def log_bytes(self) -> int: ...

    @property
    def trouble(self) -> str:
        """Why the log cannot be written at present, in words; empty when it can."""

    @property
    def housekeeping_trouble(self) -> str:
        """Why old segments are neither compressed nor dropped, in words; writing goes on meanwhile."""

    async def aclose(self) -> None:
        """Write and sync everything, then close. Shielded from cancellation."""


class Clock(Protocol):
    def monotonic_ns(self) -> int: ...

    def unix_ns(self) -> int: ...


@attrs.frozen(slots=True)
class Connected:
    """A client has said hello and been let in. Comes before anything else of its session."""

    session: int
    """Strictly increasing within an incarnation."""
    process: int
    """The same number for every connection of one process; never reused."""
    pid: int
    uid: int
    host: str
    end_observable: bool
    """False: `ProcessEnded` will never come for this process."""


@attrs.frozen(slots=True)
class Request:
    session: int
    message: object
    """One of `orbitkv.io.wire.Request`, decoded and within its limits."""
    descriptor: int = -1
    """Came with a registration: the staging window. Whoever takes the request closes it."""


@attrs.frozen(slots=True)
class Disconnected:
    """The session is over. Comes once, after its last request; not after `close_session`."""

    session: int
    cause: SessionEnd
    detail: str = ""


@attrs.frozen(slots=True)
class ProcessEnded:
    """The operating system says that the process is gone, and its memory with it."""

    process: int


Inbound: TypeAlias = Connected | Request | Disconnected | ProcessEnded


class Channel(Protocol):
    """The clients. Many sockets, one waiter: fairness and bounds are the channel's, decisions are not."""

    async def receive(self) -> list[Inbound]:
        """Everything that one round over the ready sockets gave: at least one item, a bounded number."""

    def send(self, session: int, reply: object) -> None:
        """One of `orbitkv.io.wire.Reply`. Never blocks; to a session that is gone it does nothing."""

    def close_session(self, session: int) -> None:
        """After what was sent has been handed to the system as far as that needs no waiting. Idempotent."""

    async def aclose(self) -> None: ...
