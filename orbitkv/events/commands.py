"""Commands: wishes and reports from outside, as the log records them.

A command may be refused; a refused one leaves no record. Everything that came from outside the
kernel (elapsed times, byte counts, verdicts, pids) is a field here, so that a record can be decided
again from the log alone. Page keys are *resolved*: known pages are page numbers in a packed u32
column, unknown ones stand there as NONE_U32 and their raw keys follow once, in order.
Nothing secret is ever a field. New fields go last and have defaults.
"""

from typing import TypeAlias

import msgspec

from orbitkv.events.config import KernelConfig
from orbitkv.events.geometry import GroupGeometry
from orbitkv.events.ids import NONE_U32, Column, WideColumn
from orbitkv.events.outcomes import SessionEnd, SyncOutcome


class _Command(msgspec.Struct, array_like=True, frozen=True, gc=False):
    pass


class Start(_Command, tag=1, frozen=True):
    """First command of every incarnation."""

    incarnation: int
    kernel_revision: int
    config: KernelConfig
    io_engine: str = "none"
    io_direct: bool = False
    io_reason: str = ""
    """Why this engine and mode are in force, in words."""
    host: str = ""
    """Names this machine and boot; a rank that names another one is refused."""


class OpenSession(_Command, tag=2, frozen=True):
    session: int
    process: int
    """The manager's number for the peer process; the same for every session of one process."""
    pid: int
    uid: int
    end_observable: bool
    """False: the host cannot tell when this process ends, so its copies are held until an operator says."""


class RegisterRank(_Command, tag=3, frozen=True):
    session: int
    instance: str
    rank: int
    """0 .. world_size-1, or SCHEDULER_RANK for a session that only asks."""
    world_size: int
    host: str
    namespace_digest: bytes
    namespace_document: str
    """Canonical JSON of everything that changes the bytes of a page."""
    hash_process_dependent: bool
    groups: tuple[GroupGeometry, ...]
    staging_bytes: int = 0


class CloseSession(_Command, tag=4, frozen=True):
    session: int
    cause: SessionEnd


class ReleaseProcess(_Command, tag=5, frozen=True):
    """The process is known to be gone: its copies can no longer read a page."""

    process: int
    by_operator: bool = False


class QueryPart(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The pages of one group that a query asks for, in prefix order."""

    group: int
    page_tokens: int
    trailing: int
    """0: all pages up to the boundary are needed. n > 0: only the last n before it."""
    pages: Column
    unknown: tuple[bytes, ...] = ()
    """Raw keys for the NONE_U32 entries of `pages`, in order."""


class SubmitQuery(_Command, tag=6, frozen=True):
    """Open a demand operation, attach to the one that another rank opened, or revise it."""

    session: int
    request: str
    attempt: int
    ticket: int
    """Chosen by the opener, strictly increasing; the operation is (session << 32) | ticket."""
    revision: int
    parts: tuple[QueryPart, ...]
    body: int = 0
    """64-bit hash of the parts as they came over the wire: tells the same body from another one."""


class PollQuery(_Command, tag=7, frozen=True):
    session: int
    operation: int


class CancelQuery(_Command, tag=8, frozen=True):
    session: int
    operation: int


class BeginRestore(_Command, tag=9, frozen=True):
    """A rank is about to copy the pages of a lease."""

    session: int
    lease: int


class ReportSync(_Command, tag=10, frozen=True):
    """A rank's copies for one lease have ended, as its device says."""

    session: int
    lease: int
    outcome: SyncOutcome
    ranges: tuple[tuple[int, int], ...]
    """Half-open ranges of positions in the lease's page list that were copied and synced."""
    layers: int
    copied_bytes: int
    elapsed_us: int


class ReleaseLease(_Command, tag=11, frozen=True):
    """This rank will not copy (a scheduler's session: no rank that has not begun will)."""

    session: int
    lease: int


class BeginSave(_Command, tag=12, frozen=True):
    session: int
    group: int
    pages: Column
    unknown: tuple[bytes, ...] = ()
    uncredited_pages: int = 0
    """Pages dropped by the engine since its last BeginSave because no staging space was free."""
    credit_pages: int = NONE_U32
    """The rank has staging space for so many: more wanted pages would only be given back."""


class CommitSave(_Command, tag=13, frozen=True):
    """The rank's slices of these pages stand in its staging window."""

    session: int
    buffers: Column
    staging_offsets: WideColumn
    generations: WideColumn
    """Of the buffers, as the plan named them: rows are reused, so a plan that outlived its save is told."""


class AbortSave(_Command, tag=14, frozen=True):
    session: int
    buffers: Column
    generations: WideColumn


class CompleteReads(_Command, tag=15, frozen=True):
    """Reads that ended in one wake of the ring."""

    reads: Column
    outcomes: bytes
    """One ReadOutcome a byte."""
    read_bytes: Column
    elapsed_us: Column


class CompleteWrites(_Command, tag=16, frozen=True):
    slots: Column
    outcomes: bytes
    """One WriteOutcome a byte."""
    elapsed_us: Column


class CompleteCopies(_Command, tag=17, frozen=True):
    """Copies from staging windows into the pool that ended."""

    session: int
    rank: int
    buffers: Column
    outcomes: bytes
    """One CopyOutcome a byte."""
    elapsed_us: int


class CompleteSeals(_Command, tag=18, frozen=True):
    """Pages whose trailer (identity, lengths, checksum) now stands in the pool."""

    buffers: Column


class Tick(_Command, tag=19, frozen=True):
    """Time has passed."""


class RecoverSegment(_Command, tag=20, frozen=True):
    """What the SSD directory holds for one segment (or a piece of it, for long ones)."""

    segment: int
    slot_bytes: int
    slots: Column
    spaces: Column
    """Per slot: index into `scopes`."""
    scopes: tuple[tuple[bytes, int], ...]
    """(namespace digest, group) pairs."""
    keys: tuple[bytes, ...]
    generations: WideColumn
    """Generation numbers, and in `incarnations` which incarnation made them."""
    incarnations: Column
    footprints: Column
    """Per slot, in units of ALIGNMENT_BYTES."""
    quarantined: Column = b""
    """Slots of the segment that must not be used."""


class DropDram(_Command, tag=21, frozen=True):
    """An operator wants every unheld page out of DRAM."""


class BeginShutdown(_Command, tag=22, frozen=True):
    """Admit nothing more; drain."""


class CloseIncarnation(_Command, tag=23, frozen=True):
    """Last command of a chain; written by the manager itself, or by its successor after a crash."""

    lost_tail: bool
    """True when the log's end was cut: facts may be missing."""


class ReportStage(_Command, tag=24, frozen=True):
    """An engine's own fact about a request, so that the log alone tells its life."""

    session: int
    request: str
    attempt: int
    stage: str
    at_unix_ns: int
    monotonic_ns: int


class SetStore(_Command, tag=25, frozen=True):
    """The store found out that it can, or can no longer, take writes."""

    writable: bool
    reason: str


class WarmPrefix(_Command, tag=26, frozen=True):
    """A queued request will ask for these pages: prepare them, if that can be done at no one's cost.

    One-way: nobody waits for what becomes of it.
    """

    session: int
    request: str
    attempt: int
    ticket: int
    """Chosen by the opener, strictly increasing; the operation is (session << 32) | ticket."""
    revision: int
    parts: tuple[QueryPart, ...]
    body: int = 0


class CancelHint(_Command, tag=27, frozen=True):
    """The request left the queue. One-way; a hint that has ended, or never was, is no mistake."""

    session: int
    ticket: int


Command: TypeAlias = (
    Start
    | OpenSession
    | RegisterRank
    | CloseSession
    | ReleaseProcess
    | SubmitQuery
    | PollQuery
    | CancelQuery
    | BeginRestore
    | ReportSync
    | ReleaseLease
    | BeginSave
    | CommitSave
    | AbortSave
    | CompleteReads
    | CompleteWrites
    | CompleteCopies
    | CompleteSeals
    | Tick
    | RecoverSegment
    | DropDram
    | BeginShutdown
    | CloseIncarnation
    | ReportStage
    | SetStore
    | WarmPrefix
    | CancelHint
)
