"""The words that a client and the manager say to each other, and how long each may be.

Shapes only: no bytes are read here, no rule is decided. They mirror the commands that the log records
(`orbitkv.events.commands`) but are their own module, because the two change for different reasons:
here keys are raw and handles are sealed, there both are resolved to the kernel's small numbers.

Every request carries `call`: 1 for the first one of a connection, then without gaps. Its reply carries
the same number. One-way requests (`ReportStage`, `WarmPrefix`, `CancelHint`) are counted too, and are
never answered: also not when they are refused. Notices have no number; they may come before any reply.

Limits are part of a shape: a decoder refuses a longer list or string before it takes memory for it.
Shapes only grow within one ABI: new fields go last and have defaults.
"""

from enum import IntEnum
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from orbitkv.events.geometry import GroupGeometry
from orbitkv.events.ids import KEY_BYTES_MAX, NAMESPACE_DIGEST_BYTES
from orbitkv.events.outcomes import SyncOutcome

CHANNEL_ABI: Final = 5
"""Version of this module. Another one is refused, with both numbers."""
MAGIC: Final = b"OrbitKV\x00"
"""First bytes of the first message in each direction, before the ABI: readable by every version."""

MESSAGE_BYTES_MAX: Final = 192 * 1024
"""Longest message. Below the smallest socket buffer in use (208 KiB), which bounds a packet."""
KEYS_PER_MESSAGE_MAX: Final = 4096
QUERY_PIECES_MAX: Final = 4
"""Most `ExtendQuery` messages before one `SubmitQuery`: 20,480 keys in all, whose offsets fit one reply."""
PARTS_MAX: Final = 64
"""Most groups that one query names, and one rank registers."""
SLICES_MAX: Final = 256
"""Most slices that one rank holds of one page."""
NAME_CHARS_MAX: Final = 512
"""Longest request id, instance name or stage."""
SLICE_CHARS_MAX: Final = 256
DOCUMENT_CHARS_MAX: Final = 32 * 1024
"""Longest namespace document and sentence."""
RANGES_MAX: Final = KEYS_PER_MESSAGE_MAX
RANKS_MAX: Final = 4096
HANDLE_BYTES: Final = 24
"""Sealed operation or lease: kind, incarnation, number, MAC. Opaque to clients."""

NO_CELL: Final = 0xFFFF_FFFF
"""In place of a board cell: poll by asking."""

Key = Annotated[bytes, Meta(min_length=1, max_length=KEY_BYTES_MAX)]
Keys = Annotated[list[Key], Meta(max_length=KEYS_PER_MESSAGE_MAX)]
Handle = Annotated[bytes, Meta(min_length=HANDLE_BYTES, max_length=HANDLE_BYTES)]
Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Document = Annotated[str, Meta(max_length=DOCUMENT_CHARS_MAX)]
PageColumn = Annotated[bytes, Meta(max_length=4 * KEYS_PER_MESSAGE_MAX)]
"""Little-endian u32 values, 4 bytes each."""
PageWideColumn = Annotated[bytes, Meta(max_length=8 * KEYS_PER_MESSAGE_MAX)]
"""Little-endian u64 values, 8 bytes each."""
Number = Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
Ticket = Annotated[int, Meta(ge=1, le=0xFFFF_FFFF)]
Quantity = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""Bytes, times: anything that the log keeps in a signed 64-bit column."""
CopiedBytes = Annotated[int, Meta(ge=0, le=1 << 44)]
ElapsedMicroseconds = Annotated[int, Meta(ge=0, le=1 << 40)]
"""Of one report. Totals sum them up over an incarnation and must stay within 64 bits: 16 TiB and twelve
days leave room for a million reports that are off the mark, and for any number of honest ones."""


class QueryStatus(IntEnum):
    """Where a query stands, as its asker sees it."""

    LOADING = 0
    """Waiting for budget or for reads: poll again."""
    READY = 1
    """There is a lease."""
    MISSED = 2
    """No page of it is there: compute. The operation has ended."""
    BYPASSED = 3
    """Larger than its budget: compute. The operation has ended."""
    BUSY = 4
    """Too many operations are open: nothing was opened; compute, or ask again later."""
    RETIRED = 5
    """The operation or its lease has ended."""


class ChannelRefusal(IntEnum):
    """Why the channel itself refused. Numbers above those of `orbitkv.events.outcomes.Refusal`."""

    OTHER_ABI = 101
    FOREIGN_USER = 102
    TOO_MANY_CONNECTIONS = 103
    POISONED = 104
    """Framing or ordering trouble: the connection is closed, reconnect required."""
    OTHER_INCARNATION = 105
    """The handle is of an earlier run of the manager."""
    INVALID_HANDLE = 106
    """No manager ever made this handle, or it is of another kind."""

    @property
    def retry_helps(self) -> bool:
        """Whether the same message can succeed later without a change by the caller."""
        return self in (ChannelRefusal.TOO_MANY_CONNECTIONS, ChannelRefusal.POISONED)


# --- handshake ------------------------------------------------------------------------------------


class _Greeting(msgspec.Struct, array_like=True, frozen=True, gc=False):
    pass


class Hello(_Greeting, tag=1, frozen=True):
    """First message of a connection, after magic and ABI."""

    pid: Quantity
    """As the client sees itself; another namespace may number it otherwise."""
    host: Name
    started_ticks: Quantity = 0
    """Field 22 of its /proc/self/stat: with it a manager without SO_PEERPIDFD knows the process again."""


class Welcome(_Greeting, tag=2, frozen=True):
    """The answer, with two descriptors: the pool, and the board when `board_cells` is not 0."""

    version: str
    incarnation: int
    session: int
    pool_bytes: int
    board_cells: int = 0


class NotWelcome(_Greeting, tag=3, frozen=True):
    refusal: int
    name: str
    sentence: Document
    """What happened, why, and what mends it."""
    retry_helps: bool = False


# --- requests -------------------------------------------------------------------------------------


class _Request(msgspec.Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    call: Quantity


class RegisterRank(_Request, tag=1, frozen=True):
    """May come with one descriptor: the staging window, when `staging_bytes` is not 0."""

    instance: Name
    rank: Annotated[int, Meta(ge=-1, lt=RANKS_MAX)]
    world_size: Annotated[int, Meta(ge=1, le=RANKS_MAX)]
    host: Name
    namespace_digest: Annotated[
        bytes, Meta(min_length=NAMESPACE_DIGEST_BYTES, max_length=NAMESPACE_DIGEST_BYTES)
    ]
    namespace_document: Document
    hash_process_dependent: bool
    groups: Annotated[tuple[GroupGeometry, ...], Meta(max_length=PARTS_MAX)]
    staging_bytes: Quantity = 0


class ReadRegistration(_Request, tag=2, frozen=True):
    """Is the instance of this session sealed by now? Answered like `RegisterRank`."""


class QueryPart(msgspec.Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    """The pages of one group that a query asks for, in prefix order."""

    group: Number
    page_tokens: Annotated[int, Meta(ge=1, le=1 << 30)]
    trailing: Number
    """0: all pages up to the boundary are needed. n > 0: only the last n before it."""
    keys: Keys


Parts = Annotated[list[QueryPart], Meta(min_length=1, max_length=PARTS_MAX)]


class SubmitQuery(_Request, tag=3, frozen=True):
    request: Name
    attempt: Number
    ticket: Ticket
    """Chosen by the opener, strictly increasing within its session; hints draw from the same numbers."""
    revision: Number
    parts: Parts
    pieces: Annotated[int, Meta(ge=0, le=QUERY_PIECES_MAX)] = 0
    """How many `ExtendQuery` messages came right before; their keys precede these."""


class ExtendQuery(_Request, tag=4, frozen=True):
    """Leading keys of one part of the `SubmitQuery` that follows. Answered by the channel itself."""

    part: Annotated[int, Meta(ge=0, lt=PARTS_MAX)]
    keys: Keys


class PollQuery(_Request, tag=5, frozen=True):
    operation: Handle


class CancelQuery(_Request, tag=6, frozen=True):
    operation: Handle


class BeginRestore(_Request, tag=7, frozen=True):
    lease: Handle


class ReportSync(_Request, tag=8, frozen=True):
    lease: Handle
    outcome: SyncOutcome
    ranges: Annotated[tuple[tuple[Number, Number], ...], Meta(max_length=RANGES_MAX)]
    """Half-open ranges of positions in the lease's page list that were copied and synced."""
    layers: Number
    copied_bytes: CopiedBytes
    elapsed_us: ElapsedMicroseconds


class ReleaseLease(_Request, tag=9, frozen=True):
    lease: Handle


class BeginSave(_Request, tag=10, frozen=True):
    group: Number
    keys: Keys
    credit_pages: Number
    """The rank has staging space for so many: more wanted pages would only be given back."""
    uncredited_pages: Number = 0
    """Pages dropped by the engine since its last BeginSave because no staging space was free."""


class CommitSave(_Request, tag=11, frozen=True):
    """The slices of these pages stand at these offsets of the staging window.

    One offset a page: the rank's slices of it follow each other in registered order, each padded to 4 KiB.
    """

    buffers: PageColumn
    staging_offsets: PageWideColumn
    generations: PageWideColumn
    """As SaveBegun named them: a buffer that is another page's by now is not taken for the one meant."""


class AbortSave(_Request, tag=12, frozen=True):
    buffers: PageColumn
    generations: PageWideColumn


class ReportStage(_Request, tag=13, frozen=True):
    """One-way: an engine's own fact about a request. Never answered."""

    request: Name
    attempt: Number
    stage: Annotated[str, Meta(min_length=1, max_length=64)]
    at_unix_ns: Quantity
    monotonic_ns: Quantity


class CloseSession(_Request, tag=14, frozen=True):
    pass


class DropDram(_Request, tag=15, frozen=True):
    """An operator wants every unheld page out of DRAM."""


class ReleaseProcess(_Request, tag=16, frozen=True):
    """An operator says that this process can no longer read a page."""

    process: Quantity


class ReadStatus(_Request, tag=17, frozen=True):
    """An operator asks how the manager is."""


class WarmPrefix(_Request, tag=18, frozen=True):
    """One-way: a queued request will miss these pages in GPU memory. Never in pieces, never answered."""

    request: Name
    attempt: Number
    ticket: Ticket
    """From the same numbers as the tickets of queries."""
    revision: Number
    parts: Parts


class CancelHint(_Request, tag=19, frozen=True):
    """One-way: the request left the queue. A hint that has ended, or never was, is no mistake."""

    ticket: Ticket


Request: TypeAlias = (
    RegisterRank
    | ReadRegistration
    | SubmitQuery
    | ExtendQuery
    | PollQuery
    | CancelQuery
    | BeginRestore
    | ReportSync
    | ReleaseLease
    | BeginSave
    | CommitSave
    | AbortSave
    | ReportStage
    | CloseSession
    | DropDram
    | ReleaseProcess
    | ReadStatus
    | WarmPrefix
    | CancelHint
)


# --- replies --------------------------------------------------------------------------------------


class _Reply(msgspec.Struct, array_like=True, frozen=True, gc=False):
    call: int


class ErrorReply(_Reply, tag=1, frozen=True):
    """The request changed nothing. `call` 0: the connection itself is at fault and is being closed."""

    refusal: int
    """A `Refusal` or a `ChannelRefusal`."""
    name: str
    sentence: Document
    """What happened, why, and what mends it."""
    retry_helps: bool


class Done(_Reply, tag=2, frozen=True):
    count: int = 0
    """Pages dropped; or 1 where something was ended, and 0 where it had ended before."""


class SlicePlace(msgspec.Struct, array_like=True, frozen=True):
    """Where one of the rank's slices stands in a page image."""

    slice: str
    offset_bytes: int
    payload_bytes: int


class GroupLayout(msgspec.Struct, array_like=True, frozen=True):
    group: int
    footprint_bytes: int
    """Padded bytes of one page over all ranks, without the trailer."""
    slices: tuple[SlicePlace, ...]
    """Those of the asking rank, in registered order."""


class Registered(_Reply, tag=3, frozen=True):
    instance: int
    sealed: bool
    """False: ranks are missing. The layouts are known, and queries served, once it is sealed."""
    groups: tuple[GroupLayout, ...] = ()


class QueryAnswered(_Reply, tag=4, frozen=True):
    status: int
    """A `QueryStatus`."""
    operation: bytes = b""
    """Sealed handle; empty when nothing was opened."""
    cell: int = NO_CELL
    word: int = 0
    """While loading: the board cell of the operation and what stands there now. Ask again when it differs."""
    boundary_tokens: int = 0
    hits: tuple[int, ...] = ()
    """Pages per part."""
    lease: bytes = b""
    """Sealed handle; empty unless ready."""
    offsets: bytes = b""
    """u64 column: pool offsets of the leased page images, part after part, in prefix order."""


class RestoreBegun(_Reply, tag=5, frozen=True):
    parts: tuple[tuple[int, int], ...]
    """(group, pages) in the order of `offsets`."""
    offsets: bytes
    """u64 column: pool offsets of the page images."""
    request: str = ""
    """Whose lease it is: a rank that was only handed the lease can say so in its timeline."""
    attempt: int = 0


class SyncTaken(_Reply, tag=6, frozen=True):
    late: bool = False
    """The lease had expired; the copy's own hold was alive, and the report counts."""
    repeated: bool = False
    """It was reported before; nothing changed."""


class SaveBegun(_Reply, tag=7, frozen=True):
    positions: bytes
    """u32 column: which of the offered keys are wanted, ascending."""
    buffers: bytes
    """u32 column: the buffer of each wanted page."""
    generations: bytes
    """u64 column: which allocation of the buffer is meant."""
    dropped: tuple[tuple[int, int], ...] = ()
    """(SaveDrop, pages) of the others."""


class SaveCommitted(_Reply, tag=8, frozen=True):
    accepted: bytes
    """u32 column: buffers whose slices will be copied. The others were given up before."""


class StatusReport(_Reply, tag=9, frozen=True):
    document: str
    """JSON."""


class _Notice(msgspec.Struct, array_like=True, frozen=True, gc=False):
    pass


class SlicesCopied(_Notice, tag=20, frozen=True):
    """The manager no longer reads these buffers' staging slots: the credits are back."""

    buffers: bytes
    outcomes: bytes
    """One CopyOutcome a byte."""


class PagesSealed(_Notice, tag=21, frozen=True):
    """These pages are saved, in DRAM. Never a durability promise."""

    buffers: bytes


Reply: TypeAlias = (
    ErrorReply
    | Done
    | Registered
    | QueryAnswered
    | RestoreBegun
    | SyncTaken
    | SaveBegun
    | SaveCommitted
    | StatusReport
    | SlicesCopied
    | PagesSealed
)
"""What the manager sends after the handshake."""
