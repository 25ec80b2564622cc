"""The bytes of a log segment: a header, then frames, each chained to the one before by its checksum.

Exists so that the manager's journal, its recovery, the replay tools and the simulator share one
definition of what a segment is. Must not open files or read a clock: bytes in, bytes out
(`orbitkv.events.scan` reads what is written here).

    segment  = header, snapshot frame, record frame ..., closing frame (once it is sealed)
    header   = _HEADER below; its last 4 bytes are the checksum of all before them
    frame    = _HEAD below, then the payload; the checksum covers both

Every byte of a segment is under a CRC-32C, and every checksum covers the previous one, from the
header's `previous_checksum` (the last frame of the segment before) to the closing frame. So a frame
that is cut, altered, dropped, doubled or moved shows. The chain tells accidents, not forgers.

A frame also says up to which record the log was known to be on the medium when it was written
(`synced_seq`). That tells rot from power loss: a hole that a later frame claims to be durable is
damage; one that nothing claims is what a lost write leaves.
"""

import re
import struct
from enum import IntEnum

import attrs
from crc32c import crc32c

from orbitkv.events.codec import FORMAT_VERSION

SEGMENT_MAGIC = b"ORBITLOG"
FRAME_MARKER = b"\xf5OK"
"""Starts every frame, so that a reader finds the next whole one behind damage. 0xF5 is in no UTF-8 text."""

_HEADER = struct.Struct("<8sII16sQQQqIII")
HEADER_BYTES = _HEADER.size
_CHECKSUM = struct.Struct("<I")
_FRAME = struct.Struct("<3sBIQQQI")
"""Marker, kind, payload bytes, first, last and synced seq, previous checksum. The frame's own follows."""
_HEAD = struct.Struct(_FRAME.format + "I")
FRAME_HEAD_BYTES = _HEAD.size

LOG_ID_BYTES = 16
RECORDS_BYTES_MAX = 16 << 20
"""Most payload bytes of a record frame. A batch has 256 KiB; one recovered SSD segment can be larger."""
SNAPSHOT_BYTES_MAX = 1 << 30
SEGMENT_FRAMES_BYTES_MAX = 256 << 20
"""A segment is closed when its frames have so many bytes, or fewer."""
SEGMENT_BYTES_MAX = SNAPSHOT_BYTES_MAX + 2 * SEGMENT_FRAMES_BYTES_MAX
"""Most bytes that a reader takes for one segment: snapshot, frames, and what overshoots."""

_NAME = re.compile(r"(\d{8})-(\d{8})\.orbitlog(\.zst)?\Z")


class LogError(Exception):
    """A log cannot be read or written. The message says what, why, and what mends it."""


class NotALog(LogError):
    """The bytes or the path hold no OrbitKV log."""


class NewerFormat(LogError):
    """A later OrbitKV wrote this log."""


class DamagedHeader(LogError):
    """A segment's header is cut or fails its checksum."""


class FrameKind(IntEnum):
    SNAPSHOT = 1
    """The kernel's state before the segment's first record; first in every segment, and only there."""
    RECORDS = 2
    """A list of records with the seqs first_seq .. last_seq."""
    CLOSING = 3
    """Nothing follows. Empty payload."""


_PAYLOAD_BYTES_MAX = {
    FrameKind.SNAPSHOT: SNAPSHOT_BYTES_MAX,
    FrameKind.RECORDS: RECORDS_BYTES_MAX,
    FrameKind.CLOSING: 0,
}
_KINDS: dict[int, tuple[FrameKind, int]] = {
    kind.value: (kind, bytes_max) for kind, bytes_max in _PAYLOAD_BYTES_MAX.items()
}
"""By the number in the frame: the kind and the most payload bytes it may have."""


@attrs.frozen(slots=True, kw_only=True)
class SegmentHeader:
    log_id: bytes
    """16 random bytes, the same in every segment of one log: two managers' logs do not mix."""
    incarnation: int
    number: int
    """1 for the first segment of an incarnation."""
    first_seq: int
    """Seq of the first record that may follow; the snapshot holds the state before it."""
    wall_offset_ns: int
    """unix_ns - monotonic_ns when the segment was begun: at_ns + wall_offset_ns is a wall time."""
    kernel_revision: int
    previous_checksum: int
    """Checksum of the last frame of the segment before, over incarnations; 0 for a log's first."""


@attrs.define(slots=True)
class Frame:
    """One frame as it stands in a segment. `payload` is a view into the scanned bytes.

    Not frozen only because that would cost a scan a third of its time. Nobody changes one.
    """

    kind: FrameKind
    first_seq: int
    last_seq: int
    """first_seq - 1 where the frame holds no record."""
    synced_seq: int
    """Every record up to here was on the medium when the frame was written."""
    previous_checksum: int
    checksum: int
    offset: int
    payload: memoryview

    @property
    def end_offset(self) -> int:
        return self.offset + FRAME_HEAD_BYTES + len(self.payload)


@attrs.frozen(slots=True)
class SegmentName:
    incarnation: int
    number: int
    compressed: bool = False

    def __str__(self) -> str:
        return f"{self.incarnation:08d}-{self.number:08d}.orbitlog{'.zst' if self.compressed else ''}"


def parse_segment_name(name: str) -> SegmentName | None:
    """The incarnation and number that a file name states; None if it names no segment."""
    match = _NAME.match(name)
    return SegmentName(int(match[1]), int(match[2]), match[3] is not None) if match else None


def encode_header(header: SegmentHeader) -> bytes:
    head = _HEADER.pack(
        SEGMENT_MAGIC,
        FORMAT_VERSION,
        HEADER_BYTES,
        header.log_id,
        header.incarnation,
        header.number,
        header.first_seq,
        header.wall_offset_ns,
        header.kernel_revision,
        header.previous_checksum,
        0,
    )[: -_CHECKSUM.size]
    return head + _CHECKSUM.pack(crc32c(head))


def decode_header(data: bytes) -> SegmentHeader:
    """Raises NotALog, NewerFormat, DamagedHeader; messages name no file, the caller does."""
    if data[: len(SEGMENT_MAGIC)] != SEGMENT_MAGIC[: len(data)] or not data:
        raise NotALog(
            f"it does not begin with {SEGMENT_MAGIC.decode()}: no OrbitKV log segment; "
            "name the log's directory (setting log_path) or one of its files"
        )
    if len(data) < 16:
        raise DamagedHeader(f"its header is cut: {len(data)} of {HEADER_BYTES} bytes")
    version, header_bytes = struct.unpack_from("<II", data, 8)
    if not 16 < header_bytes <= 4096 or len(data) < header_bytes:
        raise DamagedHeader(f"its header is cut or overwritten: {len(data)} of {header_bytes} bytes")
    (stored,) = _CHECKSUM.unpack_from(data, header_bytes - _CHECKSUM.size)
    if crc32c(data[: header_bytes - _CHECKSUM.size]) != stored:
        raise DamagedHeader("its header fails its checksum")
    if version > FORMAT_VERSION:
        raise NewerFormat(
            f"it has log format {version}, and this OrbitKV reads formats up to {FORMAT_VERSION};"
            " use the OrbitKV that wrote it, or a later one"
        )
    values = _HEADER.unpack_from(data)
    return SegmentHeader(
        log_id=values[3],
        incarnation=values[4],
        number=values[5],
        first_seq=values[6],
        wall_offset_ns=values[7],
        kernel_revision=values[8],
        previous_checksum=values[9],
    )


class Chain:
    """Encodes the frames of one segment, one after the other.

    A frame is its head (returned here) followed by the payload, which is not copied.
    """

    def __init__(self, checksum: int, next_seq: int) -> None:
        self.checksum = checksum
        """Of the last frame; of the header while there is none."""
        self.next_seq = next_seq

    @classmethod
    def after_header(cls, header_bytes: bytes, first_seq: int) -> "Chain":
        (checksum,) = _CHECKSUM.unpack_from(header_bytes, len(header_bytes) - _CHECKSUM.size)
        return cls(checksum, first_seq)

    def records_head(self, last_seq: int, payload: bytes, *, synced_seq: int) -> bytes:
        return self._head(FrameKind.RECORDS, last_seq, payload, synced_seq)

    def snapshot_head(self, snapshot: bytes, *, synced_seq: int) -> bytes:
        return self._head(FrameKind.SNAPSHOT, self.next_seq - 1, snapshot, synced_seq)

    def closing_head(self, *, synced_seq: int) -> bytes:
        return self._head(FrameKind.CLOSING, self.next_seq - 1, b"", synced_seq)

    def _head(self, kind: FrameKind, last_seq: int, payload: bytes, synced_seq: int) -> bytes:
        if len(payload) > _PAYLOAD_BYTES_MAX[kind]:
            raise ValueError(f"{kind.name} frame of {len(payload)} bytes: at most {_PAYLOAD_BYTES_MAX[kind]}")
        if last_seq < self.next_seq - (kind is not FrameKind.RECORDS):
            raise ValueError(f"{kind.name} frame ends at seq {last_seq}, the chain stands at {self.next_seq}")
        head = _FRAME.pack(
            FRAME_MARKER, kind, len(payload), self.next_seq, last_seq, synced_seq, self.checksum
        )
        self.checksum = crc32c(payload, crc32c(head))
        self.next_seq = last_seq + 1
        return head + _CHECKSUM.pack(self.checksum)


def decode_frame(data: memoryview, offset: int) -> Frame | str:
    """The verified frame at `offset`, or in words why there is none.

    Whether it continues the frame before is for the caller to compare.
    """
    rest_bytes = len(data) - offset
    if rest_bytes < FRAME_HEAD_BYTES:
        return f"{rest_bytes} bytes stand where a frame of at least {FRAME_HEAD_BYTES} begins"
    marker, number, payload_bytes, first_seq, last_seq, synced_seq, previous, checksum = _HEAD.unpack_from(
        data, offset
    )
    if marker != FRAME_MARKER:
        return "no frame begins here"
    if number not in _KINDS:
        return f"frame kind {number} is unknown"
    kind, bytes_max = _KINDS[number]
    if payload_bytes > bytes_max:
        return f"the frame claims {payload_bytes} bytes, more than its kind may have"
    if payload_bytes > rest_bytes - FRAME_HEAD_BYTES:
        return f"the frame needs {FRAME_HEAD_BYTES + payload_bytes} bytes, {rest_bytes} are there"
    start = offset + FRAME_HEAD_BYTES
    payload = data[start : start + payload_bytes]
    if crc32c(payload, crc32c(data[offset : start - _CHECKSUM.size])) != checksum:
        return "the frame fails its checksum"
    return Frame(kind, first_seq, last_seq, synced_seq, previous, checksum, offset, payload)
