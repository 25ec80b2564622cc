"""Effects: chores for the world, derived from a record alone.

They name things by the kernel's numbers; the shell turns those into offsets, keys and file
positions when it carries the chore out. Replay never asks for them.
"""

from typing import TypeAlias

import attrs

from orbitkv.events.ids import Column, WideColumn


@attrs.frozen(slots=True)
class ReadPages:
    """Read SSD slots into buffers, verify them, and report each with CompleteReads."""

    reads: Column
    buffers: Column
    slots: Column
    foreground: bool
    """A demand waits for them."""


@attrs.frozen(slots=True)
class WritePages:
    """Write sealed buffers to SSD slots and report each with CompleteWrites."""

    slots: Column
    buffers: Column


@attrs.frozen(slots=True)
class CopySlices:
    """Copy a rank's slices from its staging window into the pool and report with CompleteCopies."""

    session: int
    rank: int
    buffers: Column
    staging_offsets: WideColumn


@attrs.frozen(slots=True)
class SealPages:
    """Checksum pages in the pool, write their trailers, report with CompleteSeals."""

    buffers: Column


@attrs.frozen(slots=True)
class PrepareSuperblock:
    """Give a superblock its memory (2 MiB pages where the host allows) before its first use."""

    superblock: int


@attrs.frozen(slots=True)
class FormatSegment:
    """Write the header of a segment that is about to take its first slots."""

    segment: int
    slot_bytes: int


@attrs.frozen(slots=True)
class ClearSlots:
    """Take slots out of the directory, or mark them as not to be used."""

    slots: Column
    quarantine: bool


@attrs.frozen(slots=True)
class CloseConnection:
    session: int


Effect: TypeAlias = (
    ReadPages
    | WritePages
    | CopySlices
    | SealPages
    | PrepareSuperblock
    | FormatSegment
    | ClearSlots
    | CloseConnection
)
