"""Closed sets of words that appear in commands and facts. Values are frozen: logs hold the numbers."""

from enum import IntEnum


class Origin(IntEnum):
    """Who started a read. Fixed when the read is submitted."""

    DEMAND = 0
    WARM = 1


class PageClass(IntEnum):
    """What reclaim thinks of a resident page; lower goes first."""

    RECLAIMABLE = 0
    PROBATIONARY = 1
    RETAINED = 2


class ReadOutcome(IntEnum):
    """How one page read ended, as the store reports it."""

    WHOLE = 0
    SHORT = 1
    """Fewer bytes than the image. A miss; the slot stays, quarantined after three."""
    FAILED = 2
    """The device said no (EIO and kin). A miss; the slot stays, quarantined after three."""
    CORRUPT = 3
    """Trailer unreadable or checksum wrong. A miss; the slot is quarantined at once."""
    OTHER_PAGE = 4
    """A valid trailer of another key or generation: the slot was reused. A miss; the slot is freed."""


class WriteOutcome(IntEnum):
    WRITTEN = 0
    SHORT = 1
    FAILED = 2
    NO_SPACE = 3


class CopyOutcome(IntEnum):
    """How the manager's copy out of an engine's staging window ended."""

    COPIED = 0
    SOURCE_GONE = 1
    """The staging window was closed or too short; nothing of the page is kept."""


class SyncOutcome(IntEnum):
    """What an engine rank says of its copies for one lease."""

    SUCCEEDED = 0
    STOPPED = 1
    """Failed, and the copies have provably stopped: the hold drops, no credit."""
    UNKNOWN = 2
    """Failed, and nobody knows whether a copy still runs: held until the process is gone."""


class Phase(IntEnum):
    """What the reserved bytes of an operation are doing."""

    WARMING = 0
    PREPARING = 1
    READY = 2
    RESTORING = 3


class QueryEnd(IntEnum):
    """Why an operation left the table."""

    CONSUMED = 0
    """Every rank restored, released or lost its share of the lease."""
    CANCELLED = 1
    REVISED = 2
    EXPIRED = 3
    """Its demand lifetime ran out before an answer."""
    LEASE_EXPIRED = 4
    DISCONNECTED = 5
    BYPASSED = 6
    """Larger than its budget: answered with 0 hits."""
    MISSED = 7
    """Answered with 0 hits: there is nothing to lease."""
    SHUTDOWN = 8


class LeaseEnd(IntEnum):
    CONSUMED = 0
    CANCELLED = 1
    REVISED = 2
    EXPIRED = 3
    DISCONNECTED = 4
    SHUTDOWN = 5


class Share(IntEnum):
    """One rank's part of a lease."""

    OPEN = 0
    RESTORING = 1
    SYNCED = 2
    RELEASED = 3
    LOST = 4
    """Its session ended before it began."""
    STRANDED = 5
    """Its session ended, or the outcome is unknown, while it copied: held until the process is gone."""


class SessionEnd(IntEnum):
    CLOSED = 0
    """The client said so."""
    BROKEN = 1
    """The connection ended without a word."""
    POISONED = 2
    """Framing, ordering or authentication trouble; the manager closed it."""
    SUPERSEDED = 3
    """The same process registered the same rank again."""
    PROCESS_GONE = 4
    SHUTDOWN = 5


class EvictionReason(IntEnum):
    CAPACITY = 0
    CLEANUP = 1
    """An operator asked for it."""
    SUPERBLOCK = 2
    """Its superblock was emptied for another page size."""


class SaveDrop(IntEnum):
    """Why a page offered for saving was not taken, or not kept."""

    RESIDENT = 0
    IN_PROGRESS = 1
    """This rank's slice of the page is already being saved."""
    NO_ROOM = 2
    NO_CREDIT = 3
    """The engine had no free staging space; it never waits for it."""
    EXPIRED = 4
    ABORTED = 5
    DISCONNECTED = 6
    SOURCE_GONE = 7
    SHUTDOWN = 8
    DEGRADED = 9
    """The log's disk takes no more; only the answer on the wire says so, there is no record."""


class WriteDrop(IntEnum):
    """Why a sealed page was not written to the SSD."""

    QUEUE_FULL = 0
    NO_SLOT = 1
    EVICTED = 2
    """The page left DRAM before its write was submitted."""
    FAILED = 3
    DEGRADED = 5
    """The store is read-only or full."""


class SlotEnd(IntEnum):
    """Why an SSD slot stopped holding its page."""

    RECLAIMED = 0
    OTHER_PAGE = 1
    WRITE_FAILED = 2


class HintSkip(IntEnum):
    """Why a hint was not admitted. Order is precedence: the first that applies is recorded."""

    OVERSIZED = 1
    """Larger than the speculative share; skipped whole, never cut."""
    OPERATIONS = 2
    FOREGROUND = 3
    """Demand holds or waits for reserved bytes."""
    BYTES = 4
    """Other hints hold the speculative share."""


class HintEnd(IntEnum):
    PREPARED = 0
    """Its own reads have all ended."""
    CANCELLED = 1
    REVISED = 2
    EXPIRED = 3
    DISCONNECTED = 4
    ADMITTED = 5
    """A demand for the same request arrived."""
    SHUTDOWN = 6


class Unused(IntEnum):
    """Why a prepared page can no longer be restored."""

    EVICTED = 0
    CLEANUP = 1
    REPLACED = 2
    """Its key was sealed while it was read, so it was never found by a lookup."""
    RESTART = 3


class Refusal(IntEnum):
    """Why a command was refused. Order is precedence: the first that applies is the answer."""

    MALFORMED = 1
    UNKNOWN_SESSION = 2
    NOT_REGISTERED = 3
    """The session has not registered, or its instance is not sealed yet."""
    SEALED = 4
    """The instance already has all its ranks."""
    MISMATCH = 5
    """The ranks of one instance do not describe the same engine."""
    SLICE_CLAIMED = 6
    FOREIGN_HOST = 7
    PROCESS_DEPENDENT_HASH = 8
    PAGE_TOO_LARGE = 9
    """One page does not fit the pool."""
    RANK_OCCUPIED = 10
    """Another living process holds this rank of this instance."""
    FOREIGN = 11
    """The operation, lease or save belongs to another instance."""
    STALE = 12
    """A lower revision, or a ticket at or below the opener's high-water mark."""
    RETIRED = 13
    """The operation or lease has ended."""
    REVISION_CONFLICT = 14
    """The same revision with another body."""
    BUSY = 15
    """As many sessions, or operations of the session or in all, as the configuration allows."""
    SHUTTING_DOWN = 16
    DEGRADED = 17

    @property
    def retry_helps(self) -> bool:
        """Whether the same command can succeed later without a change by the caller."""
        return self in (Refusal.NOT_REGISTERED, Refusal.RANK_OCCUPIED, Refusal.BUSY, Refusal.DEGRADED)
