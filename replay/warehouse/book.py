"""What the warehouse knows of its logs: their segments, stretches and troubles, and how far it has read.

Exists so that loading goes on where it stopped: what it says of a segment is committed together with the
rows that were read from it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from orbitkv.events.frame import Frame, SegmentHeader
from orbitkv.events.scan import Ending, Stop
from replay.log import LogSegment, Trouble

Key: TypeAlias = tuple[bytes, int, int]
"""Of a segment: its log's id, incarnation and number."""


@attrs.define(slots=True, kw_only=True)
class SegmentRow:
    """A row of `segments`: how far a segment is loaded."""

    log: str
    log_id: bytes
    incarnation: int
    number: int
    path: str
    first_seq: int
    wall_offset_ns: int
    kernel_revision: int
    previous_checksum: int
    next_seq: int
    """Seq behind the last record that is loaded."""
    end_offset: int = 0
    """Of the first byte that is not loaded, in the expanded segment."""
    checksum: int = 0
    """Of the last frame that is loaded."""
    end_checksum: int = 0
    """Of the last frame that is there, whatever it holds; the next segment's header names it."""
    last_at_ns: int = 0
    stop: str = "open"
    """How its bytes end: open, sealed, torn, hole or damaged (`orbitkv.events.scan.Stop`); or `changed`."""
    stretch: int = 0

    @property
    def key(self) -> Key:
        return self.log_id, self.incarnation, self.number

    def is_of(self, header: SegmentHeader) -> bool:
        return (self.first_seq, self.previous_checksum) == (header.first_seq, header.previous_checksum)


@attrs.define(slots=True)
class Stretch:
    """A run of records without a gap. Nothing is concluded from one to another."""

    stretch: int
    log: str
    incarnation: int
    first_seq: int
    next_seq: int

    @property
    def whole(self) -> bool:
        """It begins with the incarnation, so nothing that it speaks of is older than it."""
        return self.first_seq == 1


def key_of(header: SegmentHeader) -> Key:
    return header.log_id, header.incarnation, header.number


STATEMENTS = (
    """
    CREATE TABLE segments (
        log VARCHAR, log_id BLOB, incarnation BIGINT, number BIGINT, path VARCHAR, first_seq BIGINT,
        wall_offset_ns BIGINT, kernel_revision BIGINT, previous_checksum BIGINT, next_seq BIGINT,
        end_offset BIGINT, checksum BIGINT, end_checksum BIGINT, last_at_ns BIGINT, stop VARCHAR,
        stretch INTEGER)
    """,
    """
    CREATE TABLE stretches (
        stretch INTEGER, log VARCHAR, incarnation BIGINT, first_seq BIGINT, next_seq BIGINT, whole BOOLEAN)
    """,
    """
    CREATE TABLE troubles (
        log VARCHAR, kind VARCHAR, segment VARCHAR, path VARCHAR, "offset" BIGINT, incarnation BIGINT,
        seq BIGINT, what VARCHAR)
    """,
)
_WHOLE = (Stop.OPEN.value, Stop.SEALED.value)
CHANGED = "changed"
"""A segment that no longer holds what was loaded from it."""
_STRETCH_FIELDS = ("stretch", "log", "incarnation", "first_seq", "next_seq", "whole")
_SEGMENT_KEY = ("log_id", "incarnation", "number")
_FIELDS = tuple(field.name for field in attrs.fields(SegmentRow))


class Book:
    """The tables `segments`, `stretches` and `troubles`, and what of them is not committed yet."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        rows = connection.execute(f"SELECT {', '.join(_FIELDS)} FROM segments").fetchall()
        self._segments = {
            row.key: row for row in (SegmentRow(**dict(zip(_FIELDS, values, strict=True))) for values in rows)
        }
        self._stretches = {
            row[0]: Stretch(*row)
            for row in connection.execute(
                "SELECT stretch, log, incarnation, first_seq, next_seq FROM stretches"
            ).fetchall()
        }
        self._names = {row.log_id: row.log for row in self._segments.values()}
        self._changed: dict[Key, SegmentRow] = {}
        self._changed_stretches: dict[int, Stretch] = {}

    def name(self, log_id: bytes, path: str) -> str:
        """One name for each log: where it stood at first, and more where two stand in one directory."""
        if log_id not in self._names:
            taken = path in self._names.values()
            self._names[log_id] = f"{path} ({log_id.hex()[:8]})" if taken else path
        return self._names[log_id]

    def row(self, header: SegmentHeader) -> SegmentRow | None:
        return self._segments.get(key_of(header))

    def known(self, header: SegmentHeader) -> tuple[Ending, int] | None:
        """For `Log.segments_but`: of a segment that is loaded to its closing frame."""
        row = self.row(header)
        if row is None or row.stop != Stop.SEALED.value or not row.is_of(header):
            return None
        return Ending(Stop.SEALED, row.end_offset, row.next_seq, row.end_checksum, 0), row.last_at_ns

    def open(self, segment: LogSegment, path: str) -> SegmentRow:
        """A row for a segment that was not loaded before. It goes on with a stretch, or begins one."""
        header = segment.header
        row = SegmentRow(
            log=self.name(header.log_id, path),
            log_id=header.log_id,
            incarnation=header.incarnation,
            number=header.number,
            path=str(segment.path),
            first_seq=header.first_seq,
            wall_offset_ns=header.wall_offset_ns,
            kernel_revision=header.kernel_revision,
            previous_checksum=header.previous_checksum,
            next_seq=header.first_seq,
        )
        row.stretch = self._stretch_before(header) or self._new_stretch(row)
        self._segments[row.key] = row
        return row

    def read(self, row: SegmentRow, frame: Frame, last_at_ns: int) -> None:
        """Up to this frame its records are on their way into the tables."""
        row.end_offset, row.checksum, row.last_at_ns = frame.end_offset, frame.checksum, last_at_ns
        row.next_seq = self._stretches[row.stretch].next_seq = frame.last_seq + 1
        self._changed[row.key] = row
        self._changed_stretches[row.stretch] = self._stretches[row.stretch]

    def ended(self, row: SegmentRow, segment: LogSegment, *, changed: bool) -> None:
        row.stop = CHANGED if changed else segment.ending.stop.value
        row.path, row.end_checksum = str(segment.path), segment.ending.checksum
        self._stretches[row.stretch].next_seq = row.next_seq
        self._changed[row.key] = row
        self._changed_stretches[row.stretch] = self._stretches[row.stretch]

    def write(self) -> None:
        """Write what has changed; the caller commits it."""
        rows, stretches = list(self._changed.values()), list(self._changed_stretches.values())
        self._replace("segments", _SEGMENT_KEY, _FIELDS, rows)
        self._replace("stretches", ("stretch",), _STRETCH_FIELDS, stretches)
        self._changed.clear()
        self._changed_stretches.clear()

    def _replace(
        self, table: str, key: Sequence[str], fields: Sequence[str], rows: Sequence[SegmentRow | Stretch]
    ) -> None:
        """One statement for all rows: each costs as much as thousands of them."""
        if not rows:
            return
        batch = {name: _array([getattr(row, name) for row in rows]) for name in fields}
        self._connection.register("batch", batch)
        matches = " AND ".join(f"{table}.{name} = batch.{name}" for name in key)
        self._connection.execute(f"DELETE FROM {table} USING batch WHERE {matches}")
        self._connection.execute(f"INSERT INTO {table} SELECT {', '.join(fields)} FROM batch")

    # --- troubles ---------------------------------------------------------------------------------------

    def tell_facts(self, log: str, troubles: Sequence[Trouble]) -> None:
        """Facts that are left out. They are told once, together with the rows around them."""
        for each in troubles:
            self._tell(log, "fact", each)

    def tell_segments(self, log: str, seen: Sequence[str], troubles: Sequence[Trouble]) -> None:
        """What is wrong with segments. It is found anew each time, for all that are still there."""
        self._connection.execute(
            "DELETE FROM troubles WHERE kind = 'segment' AND log = ? AND list_contains(?, segment)",
            [log, [*seen, *(stem(each.path) for each in troubles)]],
        )
        for each in troubles:
            self._tell(log, "segment", each)

    def troubles(self, log: str) -> list[Trouble]:
        rows = self._connection.execute(
            'SELECT path, "offset", incarnation, seq, what FROM troubles WHERE log = ?'
            ' ORDER BY segment, "offset", seq, what',
            [log],
        ).fetchall()
        return [Trouble(Path(path), *rest) for path, *rest in rows]

    def _tell(self, log: str, kind: str, trouble: Trouble) -> None:
        path, offset, incarnation, seq, what = attrs.astuple(trouble)
        self._connection.execute(
            "INSERT INTO troubles VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [log, kind, stem(path), str(path), offset, incarnation, seq, what],
        )

    # --- names and stretches ----------------------------------------------------------------------------

    def _stretch_before(self, header: SegmentHeader) -> int | None:
        """The stretch that this segment goes on with: the one before it is loaded, up to here."""
        row = self._segments.get((header.log_id, header.incarnation, header.number - 1))
        if row is None or row.stop not in _WHOLE:
            return None
        goes_on = (row.next_seq, row.end_checksum) == (header.first_seq, header.previous_checksum)
        return row.stretch if goes_on else None

    def _new_stretch(self, row: SegmentRow) -> int:
        number = max(self._stretches, default=0) + 1
        made = Stretch(number, row.log, row.incarnation, row.first_seq, row.first_seq)
        self._stretches[number] = made
        return number


def _array(values: list[Any]) -> npt.NDArray[Any]:
    made = np.empty(len(values), np.int64 if isinstance(values[0], int) else object)
    made[:] = values
    return made


def stem(path: Path) -> str:
    """A segment's file name as it was before it was compressed."""
    name = path.name
    return name.removesuffix(".zst")
