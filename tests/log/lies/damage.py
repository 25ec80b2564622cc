"""Damage to a log's bytes and to their order, made without knowing what they mean.

Each damage is done to a copy of a whole log and says which record a reader must put in doubt: that of an
incarnation and seq. Seq 0 means a segment whose header cannot be believed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import attrs
import zstandard

from orbitkv.events.frame import FRAME_HEAD_BYTES, HEADER_BYTES, Frame, FrameKind, parse_segment_name
from orbitkv.events.scan import Scan, expand

MIDDLE = 1
"""The segment that most damage is done to: others stand before and behind it."""


@attrs.define
class Copy:
    """A log's files, oldest first. Damage is done to `data`; `write` puts them into a directory."""

    names: list[str]
    data: list[bytearray]

    @classmethod
    def of(cls, log: Path) -> "Copy":
        files = sorted(file for file in log.iterdir() if parse_segment_name(file.name))
        return cls([file.name for file in files], [bytearray(file.read_bytes()) for file in files])

    def write(self, directory: Path) -> Path:
        directory.mkdir()
        for name, data in zip(self.names, self.data, strict=True):
            (directory / name).write_bytes(data)
        return directory

    def remove(self, number: int) -> None:
        del self.names[number], self.data[number]

    def incarnation(self, number: int) -> int:
        named = parse_segment_name(self.names[number])
        assert named is not None
        return named.incarnation

    def whole(self, number: int) -> bytes:
        """Expanded where it is compressed."""
        return expand(bytes(self.data[number])).data

    def frames(self, number: int) -> list[Frame]:
        return list(Scan(self.whole(number)))

    def first_seq(self, number: int) -> int:
        return Scan(self.whole(number)).header.first_seq

    def records_frame(self, number: int, nth: int = 1) -> Frame:
        frames = [frame for frame in self.frames(number) if frame.kind is FrameKind.RECORDS]
        return frames[nth % len(frames)]

    def bytes_of(self, number: int, frame: Frame) -> bytes:
        return bytes(self.data[number][frame.offset : frame.end_offset])


Damage: TypeAlias = Callable[[Copy], tuple[int, int]]
"""Gives the incarnation and the seq that must be named."""


def flipped(data: bytearray, offset: int, bit: int = 3) -> None:
    data[offset] ^= 1 << bit


def in_header(name: str, offset: int) -> Damage:
    def damage(copy: Copy) -> tuple[int, int]:
        flipped(copy.data[MIDDLE], offset)
        return copy.incarnation(MIDDLE), 0

    damage.__name__ = f"header_{name}"
    return damage


def in_frame(name: str, kind: FrameKind, offset: int) -> Damage:
    """A bit of a frame flips. A negative offset counts from its end."""

    def damage(copy: Copy) -> tuple[int, int]:
        frame = next(frame for frame in copy.frames(MIDDLE) if frame.kind is kind)
        place = frame.offset + offset if offset >= 0 else frame.end_offset + offset
        flipped(copy.data[MIDDLE], place)
        return copy.incarnation(MIDDLE), frame.first_seq

    damage.__name__ = f"{kind.name.lower()}_{name}"
    return damage


# --- bytes ------------------------------------------------------------------------------------------


def a_range_is_zero(copy: Copy) -> tuple[int, int]:
    frame = copy.records_frame(MIDDLE)
    copy.data[MIDDLE][frame.offset + 60 : frame.offset + 90] = bytes(30)
    return copy.incarnation(MIDDLE), frame.first_seq


def the_rest_is_zero(copy: Copy) -> tuple[int, int]:
    frame = copy.records_frame(MIDDLE)
    rest_bytes = len(copy.data[MIDDLE]) - frame.offset
    copy.data[MIDDLE][frame.offset :] = bytes(rest_bytes)
    return copy.incarnation(MIDDLE), frame.first_seq


def all_is_zero(copy: Copy) -> tuple[int, int]:
    copy.data[MIDDLE] = bytearray(len(copy.data[MIDDLE]))
    return copy.incarnation(MIDDLE), 0


def cut_in_a_frame(copy: Copy) -> tuple[int, int]:
    frame = copy.records_frame(MIDDLE)
    del copy.data[MIDDLE][frame.end_offset - 5 :]
    return copy.incarnation(MIDDLE), frame.first_seq


def cut_in_the_header(copy: Copy) -> tuple[int, int]:
    del copy.data[MIDDLE][HEADER_BYTES - 5 :]
    return copy.incarnation(MIDDLE), 0


def cut_behind_the_header(copy: Copy) -> tuple[int, int]:
    incarnation, seq = copy.incarnation(MIDDLE), copy.first_seq(MIDDLE)
    del copy.data[MIDDLE][HEADER_BYTES:]
    return incarnation, seq


def cut_between_frames(copy: Copy) -> tuple[int, int]:
    """Only the next segment can tell."""
    frame = copy.records_frame(MIDDLE)
    del copy.data[MIDDLE][frame.end_offset :]
    return copy.incarnation(MIDDLE + 1), copy.first_seq(MIDDLE + 1)


def cut_before_the_closing_frame(copy: Copy) -> tuple[int, int]:
    frame = copy.frames(MIDDLE)[-1]
    del copy.data[MIDDLE][frame.offset :]
    return copy.incarnation(MIDDLE + 1), copy.first_seq(MIDDLE + 1)


def emptied(copy: Copy) -> tuple[int, int]:
    copy.data[MIDDLE] = bytearray()
    return copy.incarnation(MIDDLE), 0


def bytes_behind_the_end(copy: Copy) -> tuple[int, int]:
    copy.data[MIDDLE] += b"more"
    frame = copy.frames(MIDDLE)[-1]
    return copy.incarnation(MIDDLE), frame.last_seq + 1


def a_byte_too_many(copy: Copy) -> tuple[int, int]:
    frame = copy.records_frame(MIDDLE)
    copy.data[MIDDLE].insert(frame.offset + FRAME_HEAD_BYTES + 3, 7)
    return copy.incarnation(MIDDLE), frame.first_seq


def a_byte_too_few(copy: Copy) -> tuple[int, int]:
    frame = copy.records_frame(MIDDLE)
    del copy.data[MIDDLE][frame.offset + FRAME_HEAD_BYTES + 3]
    return copy.incarnation(MIDDLE), frame.first_seq


# --- compressed segments ----------------------------------------------------------------------------


def _compressed(copy: Copy) -> int:
    number = MIDDLE
    copy.data[number] = bytearray(zstandard.compress(bytes(copy.data[number])))
    copy.names[number] += ".zst"
    return number


def compressed_and_another_magic(copy: Copy) -> tuple[int, int]:
    number = _compressed(copy)
    flipped(copy.data[number], 0)
    return copy.incarnation(number), 0


def compressed_and_cut(copy: Copy) -> tuple[int, int]:
    """Nothing of a single zstd block is there before all of it is."""
    number = _compressed(copy)
    del copy.data[number][len(copy.data[number]) // 2 :]
    return copy.incarnation(number), 0


def compressed_and_more(copy: Copy) -> tuple[int, int]:
    last_seq = copy.frames(MIDDLE)[-1].last_seq
    copy.data[_compressed(copy)] += b"more"
    return copy.incarnation(MIDDLE), last_seq + 1


def compressed_twice(copy: Copy) -> tuple[int, int]:
    number = _compressed(copy)
    copy.data[number] = bytearray(zstandard.compress(bytes(copy.data[number])))
    return copy.incarnation(number), 0


HEADER_FIELDS = {
    "magic": 0,
    "format": 8,
    "size": 12,
    "log_id": 16,
    "incarnation": 32,
    "number": 40,
    "first_seq": 48,
    "wall_offset": 56,
    "kernel_revision": 64,
    "previous_checksum": 68,
    "checksum": 72,
}
FRAME_FIELDS = {
    "marker": 0,
    "kind": 3,
    "size": 4,
    "first_seq": 8,
    "last_seq": 16,
    "synced_seq": 24,
    "previous_checksum": 32,
    "checksum": 36,
}

BYTES: tuple[Damage, ...] = (
    *(in_header(name, offset) for name, offset in HEADER_FIELDS.items()),
    *(in_frame(name, FrameKind.RECORDS, offset) for name, offset in FRAME_FIELDS.items()),
    in_frame("first_byte", FrameKind.RECORDS, FRAME_HEAD_BYTES),
    in_frame("last_byte", FrameKind.RECORDS, -1),
    in_frame("first_byte", FrameKind.SNAPSHOT, FRAME_HEAD_BYTES),
    in_frame("last_byte", FrameKind.SNAPSHOT, -1),
    in_frame("kind", FrameKind.SNAPSHOT, 3),
    in_frame("checksum", FrameKind.CLOSING, 36),
    in_frame("kind", FrameKind.CLOSING, 3),
    a_range_is_zero,
    the_rest_is_zero,
    all_is_zero,
    cut_in_a_frame,
    cut_in_the_header,
    cut_behind_the_header,
    cut_between_frames,
    cut_before_the_closing_frame,
    emptied,
    bytes_behind_the_end,
    a_byte_too_many,
    a_byte_too_few,
    compressed_and_another_magic,
    compressed_and_cut,
    compressed_and_more,
    compressed_twice,
)
