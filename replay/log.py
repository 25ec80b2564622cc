"""Opens a log for reading: a directory or one segment file, growing, sealed, compressed or cut.

Reading never changes a log: nothing is created, locked, truncated or repaired here. Files are read,
not mapped, because a manager may cut a partial frame off the file that is being read.
What is wrong with the log is collected as troubles (damage: named by file, offset, seq); what one
should merely know (from which seq it speaks, a torn last frame) as notes.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import attrs
import msgspec

from orbitkv.events.codec import decode_records
from orbitkv.events.frame import (
    DamagedHeader,
    Frame,
    FrameKind,
    LogError,
    NewerFormat,
    NotALog,
    SegmentHeader,
    SegmentName,
    decode_header,
    parse_segment_name,
)
from orbitkv.events.record import Record
from orbitkv.events.scan import Ending, Scan, Stop, expand
from replay.log_files import segment_bytes, segment_files, unreadable

Progress: TypeAlias = Callable[[int], None]
"""Is told how many of the log's bytes on disk have been dealt with."""

_HEAD_BYTES = 16 << 10
"""Enough for a header, also of a compressed segment."""


@attrs.frozen(slots=True)
class Trouble:
    """Something in the log that no healthy log has."""

    path: Path
    offset: int
    """In the segment's bytes; of a compressed one, in its expanded bytes."""
    incarnation: int
    seq: int
    """The first record that is in doubt."""
    what: str

    def __str__(self) -> str:
        return f"{self.path} byte {self.offset}, incarnation {self.incarnation} seq {self.seq}: {self.what}"


@attrs.frozen(slots=True)
class LogFrame:
    """The records of one frame, decoded."""

    offset: int
    records: list[Record]
    payload: memoryview


class LogSegment:
    """One segment of a log. Read `frames` to the end before going to the next segment."""

    def __init__(self, path: Path, scan: Scan, data: bytes, size_bytes: int) -> None:
        self.path = path
        self.header: SegmentHeader = scan.header
        self.size_bytes = size_bytes
        """On disk."""
        self.data = data
        """All of its bytes, expanded."""
        self.last_at_ns = 0
        """Of the newest record that was read."""
        self._scan = scan
        self._frames = iter(scan)
        self._told: Ending | None = None
        """Where `frames` ends, said by whoever reads it."""
        first = next(self._frames, None)
        self.snapshot: bytes | None = bytes(first.payload) if first else None
        """The kernel's state before `header.first_seq`; None if it cannot be read."""

    @property
    def ending(self) -> Ending:
        """Where and why `frames` ended."""
        return self._told or self._scan.ending

    @property
    def expanded_bytes(self) -> int:
        return len(self.data)

    @property
    def whole(self) -> bool:
        """Nothing is missing between its snapshot and its ending."""
        return self.ending.stop in (Stop.OPEN, Stop.SEALED)

    def frames(self) -> Iterator[LogFrame]:
        """The segment's records, frame by frame, up to where they can be trusted."""
        for frame in self.record_frames():
            records = _decode(frame)
            trouble = records if isinstance(records, str) else _inconsistent(frame, records, self.last_at_ns)
            if isinstance(records, str) or trouble:
                self.refuse(frame, trouble)
                return
            self.last_at_ns = records[-1].at_ns
            yield LogFrame(frame.offset, records, frame.payload)

    def record_frames(self) -> Iterator[Frame]:
        """The frames that hold records, undecoded. Who finds that one cannot be trusted, refuses it."""
        return (frame for frame in self._frames if frame.kind is FrameKind.RECORDS)

    def trust(self, ending: Ending, last_at_ns: int) -> None:
        """Its bytes are known to be the ones that ended so: no frame need be looked at."""
        self._told, self.last_at_ns = ending, last_at_ns

    def refuse(self, frame: Frame, trouble: str) -> None:
        """The segment can be believed up to here. For whoever reads it, who then stops."""
        self._told = Ending(
            Stop.DAMAGED, frame.offset, frame.first_seq, frame.previous_checksum, 0, 0, trouble
        )


@attrs.frozen(slots=True)
class KnownSegment:
    """A segment that was read before, to its closing frame: of its file only the header is read."""

    path: Path
    header: SegmentHeader
    ending: Ending
    last_at_ns: int
    size_bytes: int

    @property
    def whole(self) -> bool:
        return True


Known: TypeAlias = Callable[[SegmentHeader], tuple[Ending, int] | None]
"""Of a segment that was read before to its closing frame: that ending, and its last record's time."""


class Log:
    """A log that can be read once from its oldest segment to its newest."""

    def __init__(self, path: Path, files: list[Path], notes: list[str]) -> None:
        self.path = path
        self.troubles: list[Trouble] = []
        self.notes = notes
        self._files = files

    @classmethod
    def open(cls, path: Path) -> "Log":
        """Raises LogError (NotALog, NewerFormat when it comes to such a segment) with what mends it."""
        try:
            if path.is_dir():
                return cls(path, *segment_files(path))
            if path.is_file():
                return cls(path, [path], [])
        except OSError as error:
            raise unreadable(path, error) from error
        what = "is no file" if path.exists() else "does not exist"
        raise NotALog(f"{path} {what}; name the log's directory (setting log_path) or one segment file")

    @property
    def size_bytes(self) -> int:
        """On disk, of the segments that are still there."""
        return sum(file.stat().st_size for file in self._files if file.exists())

    def segments(self) -> Iterator[LogSegment]:
        """Every segment that can be read, oldest first. Troubles and notes are complete afterwards."""
        return (segment for segment in self.segments_but(lambda _: None) if isinstance(segment, LogSegment))

    def segments_but(self, known: Known) -> Iterator[LogSegment | KnownSegment]:
        """The same; those that are known already are passed over."""
        before: LogSegment | KnownSegment | None = None
        last_file, is_empty = self._files[-1], True
        for file in self._files:
            segment = self._known(file, known) or self._segment(file)
            if segment is None:
                before = None
                continue
            if before is not None:
                self._compare(before, segment)
                is_next = before.header.incarnation == segment.header.incarnation
                if is_next and isinstance(segment, LogSegment):
                    segment.last_at_ns = before.last_at_ns
            elif file is self._files[0]:
                self._note_beginning(segment.header)
            is_empty = False
            yield segment
            if isinstance(segment, LogSegment):
                self._judge(segment, is_last=file is last_file)
            before = segment
        if is_empty and not self.troubles:
            raise NotALog(
                f"all segments of {self.path} went away while it was being read, or are links to nothing;"
                " if a manager writes there, run this again"
            )

    def _known(self, file: Path, known: Known) -> KnownSegment | None:
        """None if it must be read, for whatever reason; reading it then tells that."""
        try:
            if not file.is_file():
                return None
            with file.open("rb") as opened:
                header = decode_header(expand(opened.read(_HEAD_BYTES)).data)
            found = known(header)
            return KnownSegment(file, header, *found, file.stat().st_size) if found else None
        except (LogError, OSError):
            return None

    def _segment(self, file: Path) -> LogSegment | None:
        found = segment_bytes(file)
        if found is None:
            self.notes.append(f"{file.name} was dropped while the log was being read")
            return None
        path, data = found
        expanded = expand(data)
        stated = parse_segment_name(path.name)
        try:
            scan = Scan(expanded.data, expanded.trouble)
        except NewerFormat as error:
            raise NewerFormat(f"{path}: {error}") from error
        except (NotALog, DamagedHeader) as error:
            if isinstance(error, NotALog) and stated is None:
                raise NotALog(f"{path}: {error}") from error
            incarnation = stated.incarnation if stated else 0
            what = f"{expanded.trouble or error}; its records cannot be read"
            self.troubles.append(Trouble(path, 0, incarnation, 0, what))
            return None
        segment = LogSegment(path, scan, expanded.data, len(data))
        header = scan.header
        if stated and (stated.incarnation, stated.number) != (header.incarnation, header.number):
            proper = SegmentName(header.incarnation, header.number, stated.compressed)
            self._add(segment, 0, header.first_seq, f"the file is named wrongly, it holds {proper}")
        return segment

    def _compare(self, before: LogSegment | KnownSegment, segment: LogSegment | KnownSegment) -> None:
        """Does this segment begin where the one before ended?"""
        old, new = before.header, segment.header
        if new.log_id != old.log_id:
            what = "the segment belongs to another log; keep the logs of two managers in two directories"
        elif new.number != (old.number + 1 if new.incarnation == old.incarnation else 1):
            what = f"segments are missing between this one and {before.path.name}"
        elif new.incarnation == old.incarnation and before.whole and new.first_seq != before.ending.next_seq:
            what = (
                f"it begins at seq {new.first_seq}, {before.path.name} ends before {before.ending.next_seq}"
            )
        elif before.whole and new.previous_checksum != before.ending.checksum:
            what = f"it does not continue {before.path.name}: the end of that one was cut or replaced"
        else:
            return
        self._add(segment, 0, new.first_seq, what)

    def _judge(self, segment: LogSegment, *, is_last: bool) -> None:
        ending = segment.ending
        if ending.stop is Stop.TORN and is_last:
            name = segment.path.name
            self.notes.append(
                f"{name}: the last frame is not whole ({ending.reason}); its writer is at it, or was killed"
            )
        elif ending.reason:
            self._add(segment, ending.offset, ending.next_seq, ending.reason)

    def _note_beginning(self, header: SegmentHeader) -> None:
        self.notes.append(f"speaks from incarnation {header.incarnation} seq {header.first_seq}")

    def _add(self, segment: LogSegment | KnownSegment, offset: int, seq: int, what: str) -> None:
        self.troubles.append(Trouble(segment.path, offset, segment.header.incarnation, seq, what))


def _decode(frame: Frame) -> list[Record] | str:
    try:
        return decode_records(frame.payload)
    except msgspec.MsgspecError as error:
        return f"the frame is whole, its records are not: {error}"


def _inconsistent(frame: Frame, records: list[Record], at_ns: int) -> str:
    """Why these records cannot be what the frame says; empty if they can."""
    if len(records) != frame.last_seq - frame.first_seq + 1:
        return f"the frame claims seqs {frame.first_seq} to {frame.last_seq} and holds {len(records)} records"
    for expected_seq, record in enumerate(records, frame.first_seq):
        if record.seq != expected_seq:
            return f"record {record.seq} stands where seq {expected_seq} must be"
        if record.at_ns < at_ns:
            return f"time falls at seq {record.seq}"
        at_ns = record.at_ns
    return ""
