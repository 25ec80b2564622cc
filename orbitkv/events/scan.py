"""Reads the bytes of one log segment and says exactly where and why it stopped.

Must not open files: it is given the whole segment as bytes. A segment that is still being written is
read the same way; its last frame may then be half there (`Stop.TORN`).
Sizes are checked against the bounds in `orbitkv.events.frame` before memory is taken.
"""

from collections.abc import Iterator
from enum import Enum

import attrs
import zstandard

from orbitkv.events.frame import (
    FRAME_HEAD_BYTES,
    FRAME_MARKER,
    HEADER_BYTES,
    SEGMENT_BYTES_MAX,
    Chain,
    Frame,
    FrameKind,
    decode_frame,
    decode_header,
)

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_PIECE_BYTES = 4096
"""Compressed bytes expanded at a time. zstd gives at most 128 KiB for 4 bytes, so 128 MiB for a piece."""
_FALSE_FRAMES_MAX = 4096
"""Seeming frames looked at behind a bad one; then it counts as damage. 64 MiB of noise has about four."""


class Stop(Enum):
    """How the bytes of a segment end."""

    OPEN = "open"
    """With a whole frame. More may follow: it is being written, or its writer was killed."""
    SEALED = "sealed"
    """With the closing frame."""
    TORN = "torn"
    """In the middle of a frame, and no whole frame follows: the last write was cut."""
    HOLE = "hole"
    """In bytes that are no frame; whole frames follow, but none says that the missing ones were ever
    durable. A power loss leaves this."""
    DAMAGED = "damaged"
    """In bytes that were durable, or that no crash can leave."""


@attrs.frozen(slots=True)
class Ending:
    """Where a segment's good part ends."""

    stop: Stop
    offset: int
    """Of the first byte behind the good frames (in the expanded bytes of a compressed segment)."""
    next_seq: int
    """Seq of the first record that is not in the good part."""
    checksum: int
    """Of the last good frame."""
    synced_seq: int
    """Highest record that any frame, also one behind the end, says was durable."""
    lost_bytes: int = 0
    """Bytes from `offset` to the end."""
    reason: str = ""
    """In words; empty for OPEN and SEALED."""


@attrs.frozen(slots=True)
class Expanded:
    data: bytes
    trouble: str = ""
    """Why the data ends before the segment does; empty when all is there."""


def expand(data: bytes) -> Expanded:
    """The segment in `data`, which may be compressed. What can be saved of a damaged one is returned."""
    if data[:4] != _ZSTD_MAGIC:
        return Expanded(data)
    try:
        declared = zstandard.frame_content_size(data)
    except zstandard.ZstdError:
        return Expanded(b"", "the compressed data is cut in its first bytes")
    if not 0 <= declared <= SEGMENT_BYTES_MAX:
        return Expanded(b"", f"the compressed data claims {declared} bytes, no segment has that many")
    pieces: list[bytes] = []
    have = 0
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    for start in range(0, len(data), _PIECE_BYTES):
        try:
            piece = decompressor.decompress(data[start : start + _PIECE_BYTES])
        except zstandard.ZstdError as error:
            return Expanded(b"".join(pieces), f"the compressed data breaks near byte {start}: {error}")
        pieces.append(piece)
        have += len(piece)
        if have > declared:
            return Expanded(b"".join(pieces), "the compressed data holds more than it declares")
        if decompressor.eof:
            rest = len(decompressor.unused_data) + max(0, len(data) - start - _PIECE_BYTES)
            trouble = f"{rest} bytes follow the end of the compressed data" if rest else ""
            return Expanded(b"".join(pieces), trouble)
    return Expanded(b"".join(pieces), f"the compressed data is cut: {have} of {declared} bytes are there")


class Scan:
    """Iterates over the good frames of one segment; afterwards `ending` says how it ended.

    Raises NotALog, NewerFormat, DamagedHeader when it is made. Iterate once.
    """

    def __init__(self, data: bytes, trouble: str = "") -> None:
        """`trouble` is that of `Expanded`: the bytes are known not to be all."""
        self.header = decode_header(data)
        self._data = data
        self._view = memoryview(data)
        self._trouble = trouble
        self._offset = HEADER_BYTES
        chain = Chain.after_header(data[:HEADER_BYTES], self.header.first_seq)
        self._next_seq, self._checksum = chain.next_seq, chain.checksum
        self._synced_seq = 0
        self._last: FrameKind | None = None

    def __iter__(self) -> Iterator[Frame]:
        data_bytes = len(self._data)
        while self._offset < data_bytes:
            frame = decode_frame(self._view, self._offset)
            if isinstance(frame, str) or self._out_of_place(frame):
                return
            self._last = frame.kind
            self._offset += FRAME_HEAD_BYTES + len(frame.payload)
            self._next_seq, self._checksum = frame.last_seq + 1, frame.checksum
            self._synced_seq = max(self._synced_seq, frame.synced_seq)
            yield frame

    @property
    def ending(self) -> Ending:
        """How far iteration came, and why no further. For after it: may search the rest for more frames."""
        if self._offset < len(self._data):
            return self._broken_ending()
        if self._trouble:
            return self._ending(Stop.DAMAGED, self._trouble)
        if self._last is None:
            return self._ending(Stop.DAMAGED, "it ends before its snapshot")
        return self._ending(Stop.SEALED if self._last is FrameKind.CLOSING else Stop.OPEN)

    def _out_of_place(self, frame: Frame) -> str:
        """Why a whole frame cannot stand here; empty if it can."""
        if self._last is FrameKind.CLOSING:
            return "a frame follows the closing frame"
        if (frame.kind is FrameKind.SNAPSHOT) is not (self._last is None):
            return f"a {frame.kind.name.lower()} frame stands where it cannot"
        if frame.first_seq != self._next_seq:
            return f"the frame begins at seq {frame.first_seq}, seq {self._next_seq} is next"
        if frame.last_seq < frame.first_seq - (frame.kind is not FrameKind.RECORDS):
            return f"the frame claims the seqs {frame.first_seq} to {frame.last_seq}"
        if frame.previous_checksum != self._checksum:
            return "the frame does not continue the one before it"
        return ""

    def _broken_ending(self) -> Ending:
        frame = decode_frame(self._view, self._offset)
        trouble = frame if isinstance(frame, str) else self._out_of_place(frame)
        following, durable_seq = self._whole_frames_ahead()
        self._synced_seq = max(self._synced_seq, durable_seq)
        if self._last is FrameKind.CLOSING:
            return self._ending(Stop.DAMAGED, f"bytes follow the closing frame ({trouble})")
        if self._trouble:
            return self._ending(Stop.DAMAGED, f"{trouble}; {self._trouble}")
        if self._last is None:
            # A segment gets its name when its snapshot is durable: no crash leaves one without.
            return self._ending(Stop.DAMAGED, f"its snapshot cannot be read: {trouble}")
        if not following:
            return self._ending(Stop.TORN, trouble)
        ahead = f"{trouble}; {following} whole frames follow"
        if durable_seq >= self._next_seq:
            return self._ending(Stop.DAMAGED, f"{ahead}, and seq {durable_seq} had been durable")
        return self._ending(Stop.HOLE, f"{ahead}, none says that seq {self._next_seq} had been durable")

    def _ending(self, stop: Stop, reason: str = "") -> Ending:
        lost_bytes = len(self._data) - self._offset
        return Ending(
            stop, self._offset, self._next_seq, self._checksum, self._synced_seq, lost_bytes, reason
        )

    def _whole_frames_ahead(self) -> tuple[int, int]:
        """How many whole frames stand at or behind the end, and up to which seq they prove the log durable.

        A second frame of a seq that was read proves as much as a claim: no crash doubles or moves a frame.
        """
        found, false, durable_seq, offset = 0, 0, 0, self._offset
        while false < _FALSE_FRAMES_MAX:
            offset = self._data.find(FRAME_MARKER, offset)
            if offset < 0:
                return found, durable_seq
            frame = decode_frame(self._view, offset)
            if isinstance(frame, str):
                false += 1
                offset += 1
                continue
            found += 1
            offset = frame.end_offset
            again = frame.first_seq < self._next_seq or frame.kind is FrameKind.SNAPSHOT
            durable_seq = max(durable_seq, frame.synced_seq, self._next_seq if again else 0)
        return found, max(durable_seq, self._next_seq)
