"""Damage to a log's order: every frame and every segment is whole, and one is gone, doubled, or elsewhere."""

import struct

from crc32c import crc32c

from orbitkv.events.frame import FRAME_HEAD_BYTES, HEADER_BYTES, Frame, FrameKind, SegmentName
from tests.log.lies.damage import MIDDLE, Copy, Damage

_CHECKSUM_BYTES = 4


def _frames(copy: Copy, number: int = MIDDLE) -> list[Frame]:
    return [frame for frame in copy.frames(number) if frame.kind is FrameKind.RECORDS]


def _resealed(frame: bytes) -> bytes:
    """The frame with the checksum that its bytes have now."""
    head, payload = frame[: FRAME_HEAD_BYTES - _CHECKSUM_BYTES], frame[FRAME_HEAD_BYTES:]
    return head + struct.pack("<I", crc32c(payload, crc32c(head))) + payload


# --- frames -----------------------------------------------------------------------------------------


def frame_dropped(copy: Copy) -> tuple[int, int]:
    frame = _frames(copy)[1]
    del copy.data[MIDDLE][frame.offset : frame.end_offset]
    return copy.incarnation(MIDDLE), frame.first_seq


def first_frame_dropped(copy: Copy) -> tuple[int, int]:
    frame = _frames(copy)[0]
    del copy.data[MIDDLE][frame.offset : frame.end_offset]
    return copy.incarnation(MIDDLE), frame.first_seq


def last_frame_dropped(copy: Copy) -> tuple[int, int]:
    frame = _frames(copy)[-1]
    del copy.data[MIDDLE][frame.offset : frame.end_offset]
    return copy.incarnation(MIDDLE), frame.first_seq


def frame_doubled(copy: Copy) -> tuple[int, int]:
    frame = _frames(copy)[1]
    copy.data[MIDDLE][frame.end_offset : frame.end_offset] = copy.bytes_of(MIDDLE, frame)
    return copy.incarnation(MIDDLE), frame.last_seq + 1


def frames_swapped(copy: Copy) -> tuple[int, int]:
    one, two = _frames(copy)[1:3]
    both = copy.bytes_of(MIDDLE, two) + copy.bytes_of(MIDDLE, one)
    copy.data[MIDDLE][one.offset : two.end_offset] = both
    return copy.incarnation(MIDDLE), one.first_seq


def frame_of_another_segment(copy: Copy) -> tuple[int, int]:
    frame, other = _frames(copy)[1], _frames(copy, 0)[1]
    copy.data[MIDDLE][frame.offset : frame.end_offset] = copy.bytes_of(0, other)
    return copy.incarnation(MIDDLE), frame.first_seq


def frame_of_another_chain(copy: Copy) -> tuple[int, int]:
    """The right records under the right checksum, and not what stood there before it."""
    frame = _frames(copy)[1]
    told = bytearray(copy.bytes_of(MIDDLE, frame))
    told[FRAME_HEAD_BYTES - 2 * _CHECKSUM_BYTES] ^= 1
    copy.data[MIDDLE][frame.offset : frame.end_offset] = _resealed(bytes(told))
    return copy.incarnation(MIDDLE), frame.first_seq


def frame_resealed(copy: Copy) -> tuple[int, int]:
    """Its payload is altered and its checksum with it: the frame behind does not continue it."""
    frame, behind = _frames(copy)[1:3]
    told = bytearray(copy.bytes_of(MIDDLE, frame))
    told[24] ^= 1
    copy.data[MIDDLE][frame.offset : frame.end_offset] = _resealed(bytes(told))
    return copy.incarnation(MIDDLE), behind.first_seq


def frame_of_other_seqs(copy: Copy) -> tuple[int, int]:
    """It claims one record more than it holds, under a checksum that fits."""
    frame = _frames(copy)[-1]
    told = bytearray(copy.bytes_of(MIDDLE, frame))
    struct.pack_into("<Q", told, 16, frame.last_seq + 1)
    copy.data[MIDDLE][frame.offset : frame.end_offset] = _resealed(bytes(told))
    return copy.incarnation(MIDDLE), frame.first_seq


def frame_of_no_records(copy: Copy) -> tuple[int, int]:
    """Whole, and what it holds is no record."""
    frame = _frames(copy)[-1]
    told = bytearray(copy.bytes_of(MIDDLE, frame))
    told[FRAME_HEAD_BYTES] = 0xC1
    copy.data[MIDDLE][frame.offset : frame.end_offset] = _resealed(bytes(told))
    return copy.incarnation(MIDDLE), frame.first_seq


def snapshot_dropped(copy: Copy) -> tuple[int, int]:
    frame = copy.frames(MIDDLE)[0]
    seq = copy.first_seq(MIDDLE)
    del copy.data[MIDDLE][frame.offset : frame.end_offset]
    return copy.incarnation(MIDDLE), seq


def snapshot_doubled(copy: Copy) -> tuple[int, int]:
    frame = copy.frames(MIDDLE)[0]
    copy.data[MIDDLE][frame.end_offset : frame.end_offset] = copy.bytes_of(MIDDLE, frame)
    return copy.incarnation(MIDDLE), frame.last_seq + 1


def snapshot_of_another_segment(copy: Copy) -> tuple[int, int]:
    frame, other = copy.frames(MIDDLE)[0], copy.frames(0)[0]
    copy.data[MIDDLE][frame.offset : frame.end_offset] = copy.bytes_of(0, other)
    return copy.incarnation(MIDDLE), frame.first_seq


def closed_in_the_middle(copy: Copy) -> tuple[int, int]:
    closing, frame = copy.frames(MIDDLE)[-1], _frames(copy)[1]
    copy.data[MIDDLE][frame.offset : frame.offset] = copy.bytes_of(MIDDLE, closing)
    return copy.incarnation(MIDDLE), frame.first_seq


def records_behind_the_end(copy: Copy) -> tuple[int, int]:
    frame, closing = _frames(copy)[-1], copy.frames(MIDDLE)[-1]
    copy.data[MIDDLE] += copy.bytes_of(MIDDLE, frame)
    return copy.incarnation(MIDDLE), closing.last_seq + 1


# --- segments ---------------------------------------------------------------------------------------


def segment_dropped(copy: Copy) -> tuple[int, int]:
    copy.remove(MIDDLE)
    return copy.incarnation(MIDDLE), copy.first_seq(MIDDLE)


def segments_swapped(copy: Copy) -> tuple[int, int]:
    copy.data[MIDDLE], copy.data[MIDDLE + 1] = copy.data[MIDDLE + 1], copy.data[MIDDLE]
    return copy.incarnation(MIDDLE), copy.first_seq(MIDDLE)


def segment_doubled(copy: Copy) -> tuple[int, int]:
    """The same bytes once more, under a later name."""
    last = len(copy.names) - 1
    name = SegmentName(copy.incarnation(last), 9_000)
    copy.names.append(str(name))
    copy.data.append(bytearray(copy.data[MIDDLE]))
    return _stated_incarnation(copy, last + 1), copy.first_seq(MIDDLE)


def segment_renamed(copy: Copy) -> tuple[int, int]:
    last = len(copy.names) - 1
    copy.names[last] = str(SegmentName(copy.incarnation(last), 9_000))
    return copy.incarnation(last), copy.first_seq(last)


def segment_of_another_incarnation(copy: Copy) -> tuple[int, int]:
    """The last one takes the place of the middle one."""
    copy.data[MIDDLE] = bytearray(copy.data[-1])
    return _stated_incarnation(copy, MIDDLE), copy.first_seq(MIDDLE)


def segment_of_another_log(copy: Copy) -> tuple[int, int]:
    """Every byte of it is right, but for the id of the log that it is of."""
    data = copy.data[MIDDLE]
    data[16] ^= 1
    head = bytes(data[: HEADER_BYTES - _CHECKSUM_BYTES])
    data[HEADER_BYTES - _CHECKSUM_BYTES : HEADER_BYTES] = struct.pack("<I", crc32c(head))
    return copy.incarnation(MIDDLE), copy.first_seq(MIDDLE)


def end_of_an_incarnation_dropped(copy: Copy) -> tuple[int, int]:
    number = _last_of_the_first(copy)
    copy.remove(number)
    return copy.incarnation(number), copy.first_seq(number)


def _last_of_the_first(copy: Copy) -> int:
    first = copy.incarnation(0)
    return max(number for number in range(len(copy.names)) if copy.incarnation(number) == first)


def _stated_incarnation(copy: Copy, number: int) -> int:
    """What the header says, whatever the name does."""
    (incarnation,) = struct.unpack_from("<Q", copy.data[number], 32)
    return int(incarnation)


ORDER: tuple[Damage, ...] = (
    frame_dropped,
    first_frame_dropped,
    last_frame_dropped,
    frame_doubled,
    frames_swapped,
    frame_of_another_segment,
    frame_of_another_chain,
    frame_resealed,
    frame_of_other_seqs,
    frame_of_no_records,
    snapshot_dropped,
    snapshot_doubled,
    snapshot_of_another_segment,
    closed_in_the_middle,
    records_behind_the_end,
    segment_dropped,
    segments_swapped,
    segment_doubled,
    segment_renamed,
    segment_of_another_incarnation,
    segment_of_another_log,
    end_of_an_incarnation_dropped,
)
