"""Copies the readable part of a log into a new one, with pseudonyms for keys and names if wished.

The copy is a log like any other: it folds, verifies and audits as the original does, record by record.
Times, sizes, numbers of pages, sessions and operations stay as they are; frames are chained anew.
A copy goes up to the first damage. Reading never changes the original.
"""

from pathlib import Path

import attrs

from orbitkv.events.codec import encode_records
from orbitkv.events.frame import RECORDS_BYTES_MAX, LogError, SegmentHeader, SegmentName
from orbitkv.events.record import Record
from orbitkv.events.scan import Stop
from replay.export.content import Pseudonymised, Unchanged
from replay.export.files import ExportedFiles, ExportedSegment
from replay.export.names import Pseudonyms
from replay.log import Log, Progress, Trouble


@attrs.define(slots=True)
class Export:
    """What was exported."""

    log: Log
    """The original; troubles and notes are complete."""
    target: Path
    pseudonymised: bool
    records: int = 0
    segments: int = 0
    size_bytes: int = 0
    incarnations: dict[int, tuple[int, int]] = attrs.field(factory=dict)
    """Number -> first seq, and the seq behind the last."""

    @property
    def ok(self) -> bool:
        return not self.log.troubles

    def saw(self, header: SegmentHeader, written: ExportedSegment) -> None:
        first_seq, _ = self.incarnations.get(header.incarnation, (header.first_seq, 0))
        self.incarnations[header.incarnation] = first_seq, written.next_seq
        self.records += written.next_seq - header.first_seq
        self.segments += 1


def passes(secret: bytes | None) -> int:
    """How often the log is gone through."""
    return 1 if secret is None else 2


def export_log(
    path: Path, target: Path, secret: bytes | None = None, progress: Progress | None = None
) -> Export:
    """With a secret, keys and names become pseudonyms under it; without one they stay as they are.

    Raises LogError: it is no log, nothing of it can be read, `target` exists or cannot be written.
    """
    log = Log.open(path)
    if path.is_dir() and target.resolve().is_relative_to(path.resolve()):
        raise LogError(f"{target} lies in the log {path}, which is never changed; name another directory")
    content = Unchanged() if secret is None else Pseudonymised(Pseudonyms(secret))
    with ExportedFiles(target) as files:
        done_bytes = content.prepare(Log.open(path), progress)
        export = Export(log, target, pseudonymised=secret is not None)
        _copy(export, content, files, done_bytes, progress)
        if not export.segments:
            why = log.troubles[0] if log.troubles else "no segment has a snapshot that can be read"
            raise LogError(f"nothing of {path} can be exported: {why}")
        files.finish()
        return export


def _copy(
    export: Export, content: Unchanged, files: ExportedFiles, done_bytes: int, progress: Progress | None
) -> None:
    before: SegmentHeader | None = None
    checksum = 0
    for segment in export.log.segments():
        header = segment.header
        if export.log.troubles or content.is_behind(header):
            break
        if segment.snapshot is None:
            continue  # What is wrong with it is told when the next one is asked for.
        if before is not None and not _follows(before, header):
            raise LogError(
                f"{export.log.path}: segments before {segment.path.name} were dropped while the log was"
                " exported; its manager keeps it within log_bytes_max: run the export again"
            )
        try:
            snapshot = content.snapshot(segment.snapshot)
        except Exception as error:
            what = f"its snapshot cannot be restored: {type(error).__name__}: {error}"
            at = Trouble(segment.path, 0, header.incarnation, header.first_seq, what)
            export.log.troubles.append(at)
            break
        written = ExportedSegment(
            attrs.evolve(header, log_id=content.log_id(header.log_id), previous_checksum=checksum), snapshot
        )
        for frame in segment.frames():
            if content.is_behind(header, frame.records[0].seq):
                continue  # The segment is read to its end, else it seems to be cut there.
            _add(written, content.records(frame.records), frame.records[-1].seq, frame.payload)
            if progress is not None:
                progress(done_bytes + segment.size_bytes * frame.offset // segment.expanded_bytes)
        if segment.ending.stop is Stop.SEALED and written.next_seq == segment.ending.next_seq:
            written.close()
        compressed = segment.size_bytes < segment.expanded_bytes
        files.add(SegmentName(header.incarnation, header.number, compressed), written.data)
        export.saw(header, written)
        done_bytes += segment.size_bytes
        before, checksum = header, written.checksum
    export.size_bytes = files.size_bytes


def _follows(before: SegmentHeader, header: SegmentHeader) -> bool:
    if header.incarnation == before.incarnation:
        return header.number == before.number + 1
    return header.number == 1


def _add(
    written: ExportedSegment, records: list[Record] | None, last_seq: int, payload: bytes | memoryview
) -> None:
    """One frame; several, where pseudonyms have made it too long."""
    if records is not None:
        payload = encode_records(records)
        if len(payload) > RECORDS_BYTES_MAX and len(records) > 1:
            half = len(records) // 2
            for part in (records[:half], records[half:]):
                _add(written, part, part[-1].seq, b"")
            return
    written.add(last_seq, payload)
