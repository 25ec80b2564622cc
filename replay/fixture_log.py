"""A piece of a log as a log of its own: the state before the piece as its snapshot, then its records.

Such a piece folds, verifies and audits as any log that begins in the middle. The records are the same bytes;
frames, segment numbers and checksums are new, because the chain begins anew.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from orbitkv.events.codec import encode_records
from orbitkv.events.frame import Chain, LogError, SegmentHeader, SegmentName, encode_header
from orbitkv.events.record import Record
from orbitkv.manager.kernel import State, fold, new_state, restore, snapshot
from replay.log import Log

FRAME_RECORDS = 16


@attrs.define
class Piece:
    """Records of one incarnation without a gap, and the state before the first of them."""

    header: SegmentHeader
    """Of the segment that the first record stands in."""
    opening: bytes
    records: list[Record] = attrs.Factory(list)


def chains(path: Path) -> Iterator[tuple[SegmentHeader, list[Record], State]]:
    """Every stretch of a log without a gap: its first header, its records, the state before them.

    Raises LogError.
    """
    header: SegmentHeader | None = None
    records: list[Record] = []
    state = new_state()
    for segment in Log.open(path).segments():
        follows = (
            header is not None
            and header.incarnation == segment.header.incarnation
            and segment.header.first_seq == (records[-1].seq + 1 if records else header.first_seq)
        )
        if not follows:
            if header is not None:
                yield header, records, state
            if segment.snapshot is None:
                header = None
                continue
            header, records, state = segment.header, [], restore(segment.snapshot)
        for frame in segment.frames():
            records += frame.records
    if header is not None:
        yield header, records, state


def pieces(path: Path, wanted: Iterable[tuple[int, int, int]]) -> list[Piece]:
    """Of every (incarnation, first seq, last seq). Raises LogError."""
    found = []
    ranges = {incarnation: (first, last) for incarnation, first, last in wanted}
    for header, records, state in chains(path):
        first, last = ranges.get(header.incarnation, (0, -1))
        held = [record for record in records if first <= record.seq <= last]
        if not held:
            continue
        for record in records:
            if record.seq == held[0].seq:
                break
            fold(state, record)
        found.append(Piece(header, snapshot(state), held))
    if not found:
        raise LogError(
            f"{path} holds no record of the piece that was asked for; see `replay timeline {path}`"
        )
    return found


def write_pieces(directory: Path, found: Iterable[Piece]) -> list[Path]:
    """One segment each, sealed. Raises LogError when the directory holds anything."""
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise LogError(f"no log is written to {directory}: it is not empty; name a new directory")
    files: list[Path] = []
    checksum = 0
    for piece in found:
        number = piece.header.number if not files else 1
        header = encode_header(
            attrs.evolve(
                piece.header, number=number, first_seq=piece.records[0].seq, previous_checksum=checksum
            )
        )
        chain = Chain.after_header(header, piece.records[0].seq)
        data = bytearray(header)
        data += chain.snapshot_head(piece.opening, synced_seq=piece.records[0].seq - 1) + piece.opening
        for start in range(0, len(piece.records), FRAME_RECORDS):
            frame = piece.records[start : start + FRAME_RECORDS]
            payload = encode_records(frame)
            data += chain.records_head(frame[-1].seq, payload, synced_seq=frame[0].seq - 1) + payload
        data += chain.closing_head(synced_seq=piece.records[-1].seq)
        checksum = chain.checksum
        files.append(directory / str(SegmentName(piece.header.incarnation, number)))
        files[-1].write_bytes(data)
    return files
