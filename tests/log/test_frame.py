"""A segment's bytes: what goes in comes out, and nothing that was changed is taken for good."""

from itertools import pairwise

import attrs
import pytest
import zstandard
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orbitkv.events import codec, frame, scan
from orbitkv.events.frame import FrameKind
from orbitkv.events.scan import Ending, Stop
from tests.log import samples

PAYLOADS = st.lists(st.binary(max_size=200) | st.just(frame.FRAME_MARKER * 20), max_size=6)


def read(data: bytes, trouble: str = "") -> tuple[list[bytes], Ending]:
    """The payloads of the good record frames, and the ending."""
    found = scan.Scan(data, trouble)
    payloads = [bytes(f.payload) for f in found if f.kind is FrameKind.RECORDS]
    return payloads, found.ending


@given(PAYLOADS, st.binary(max_size=50), st.booleans(), st.booleans())
def test_what_goes_in_comes_out(payloads: list[bytes], snapshot: bytes, closed: bool, synced: bool) -> None:
    data, offsets = samples.segment(payloads, snapshot=snapshot, closed=closed, synced=synced)
    found = scan.Scan(data)
    frames = list(found)
    assert found.header == samples.header()
    assert bytes(frames[0].payload) == snapshot
    assert [f.offset for f in frames] == offsets
    assert [bytes(f.payload) for f in frames if f.kind is FrameKind.RECORDS] == payloads
    assert found.ending.stop is (Stop.SEALED if closed else Stop.OPEN)
    assert found.ending.next_seq == len(payloads) + 1
    assert found.ending.offset == len(data)
    assert found.ending.lost_bytes == 0


def test_a_cut_at_every_byte_leaves_the_whole_frames_before_it() -> None:
    payloads = [b"first", b"", frame.FRAME_MARKER * 3, b"x" * 90]
    data, offsets = samples.segment(payloads, closed=True, synced=True)
    starts = {*offsets[1:], len(data)}
    for length in range(frame.HEADER_BYTES, len(data)):
        good, ending = read(data[:length])
        whole = max([0, *[n for n, start in enumerate(offsets) if start <= length]])
        assert good == payloads[: max(0, whole - 1)]
        if length in starts:
            assert ending.stop is Stop.OPEN
        elif length < offsets[1]:
            assert ending.stop is Stop.DAMAGED
        else:
            assert ending.stop is Stop.TORN, length
            assert ending.lost_bytes == length - offsets[whole]
            assert ending.reason


def test_a_cut_in_the_header_is_named() -> None:
    data, _ = samples.segment([])
    for length in range(1, frame.HEADER_BYTES):
        with pytest.raises(frame.DamagedHeader, match="cut"):
            scan.Scan(data[:length])
    with pytest.raises(frame.NotALog):
        scan.Scan(b"")


@given(PAYLOADS, st.data(), st.booleans())
@settings(max_examples=200)
def test_a_flipped_bit_is_never_taken_for_good(
    payloads: list[bytes], draw: st.DataObject, synced: bool
) -> None:
    data, offsets = samples.segment(payloads, closed=True, synced=synced)
    position = draw.draw(st.integers(0, len(data) * 8 - 1))
    flipped = bytearray(data)
    flipped[position // 8] ^= 1 << position % 8
    try:
        good, ending = read(bytes(flipped))
    except (frame.NotALog, frame.DamagedHeader):
        assert position // 8 < frame.HEADER_BYTES
        return
    assert position // 8 >= frame.HEADER_BYTES
    hit = max(n for n, start in enumerate(offsets) if start <= position // 8)
    assert good == payloads[: max(0, hit - 1)]
    assert ending.offset == offsets[hit]
    assert ending.reason
    is_last = hit == len(offsets) - 1
    assert ending.stop is (Stop.TORN if is_last else Stop.DAMAGED if synced or hit == 0 else Stop.HOLE)


@given(st.binary(max_size=400), st.integers(0, 300))
@example(frame.FRAME_MARKER * 40, 0)
def test_noise_behind_a_cut_is_torn_not_damage(noise: bytes, keep: int) -> None:
    data, offsets = samples.segment([b"one", b"two"])
    keep_bytes = max(frame.HEADER_BYTES, min(keep, len(data)))
    good, ending = read(data[:keep_bytes] + noise)
    assert good == [b"one", b"two"][: len(good)]
    if noise:
        assert ending.stop in (Stop.TORN, Stop.DAMAGED) or keep_bytes not in [*offsets, len(data)]


def test_a_missing_doubled_or_moved_frame_shows() -> None:
    data, offsets = samples.segment([b"a", b"b", b"c"], closed=True, synced=True)
    cuts = [*offsets, len(data)]
    snapshot, a, b, c, closing = (data[start:end] for start, end in pairwise(cuts))
    head = data[: offsets[0]]
    for frames, good in (
        ([snapshot, a, c, closing], [b"a"]),
        ([snapshot, a, a, b, c, closing], [b"a"]),
        ([snapshot, b, a, c, closing], []),
        ([a, b, c, closing], []),
        ([snapshot, snapshot, a], []),
        ([snapshot, a, b, c, closing, closing], [b"a", b"b", b"c"]),
    ):
        found, ending = read(head + b"".join(frames))
        assert found == good
        assert ending.stop is Stop.DAMAGED
        assert ending.next_seq == len(good) + 1


def test_a_lost_write_in_the_unsynced_end_is_a_hole_and_rot_is_damage() -> None:
    payloads = [b"durable", b"lost", b"kept"]
    for synced, stop in ((False, Stop.HOLE), (True, Stop.DAMAGED)):
        data, offsets = samples.segment(payloads, synced=synced)
        zeroed = data[: offsets[2]] + bytes(offsets[3] - offsets[2]) + data[offsets[3] :]
        good, ending = read(zeroed)
        assert good == [b"durable"]
        assert ending.stop is stop
        assert "1 whole frames follow" in ending.reason


def test_sizes_are_bounded_before_memory_is_taken() -> None:
    chain = frame.Chain(0, 1)
    with pytest.raises(ValueError, match="at most"):
        chain.records_head(1, bytes(frame.RECORDS_BYTES_MAX + 1), synced_seq=0)
    data, offsets = samples.segment([b"a"])
    claim = bytearray(data)
    claim[offsets[1] + 4 : offsets[1] + 8] = (0xFFFFFFFF).to_bytes(4, "little")
    _, ending = read(bytes(claim))
    assert "more than its kind may have" in ending.reason
    packed = zstandard.ZstdCompressor().compress(data)
    bomb = packed[:4] + b"\xe0" + (1 << 50).to_bytes(8, "little") + packed[6:]
    assert "no segment has that many" in scan.expand(bomb).trouble


def test_a_newer_format_is_refused_by_name_and_a_flipped_version_is_damage() -> None:
    head = bytearray(frame.encode_header(samples.header()))
    head[8:12] = (codec.FORMAT_VERSION + 1).to_bytes(4, "little")
    with pytest.raises(frame.DamagedHeader):
        frame.decode_header(bytes(head))
    body = bytes(head[:-4])
    with pytest.raises(frame.NewerFormat, match=f"format {codec.FORMAT_VERSION + 1}.*up to"):
        frame.decode_header(body + crc32c(body).to_bytes(4, "little"))


def test_compressed_segments_expand_and_their_damage_is_named() -> None:
    payloads = [bytes([n]) * 3000 for n in range(40)]
    data, _ = samples.segment(payloads, closed=True)
    packed = zstandard.ZstdCompressor(write_checksum=True).compress(data)
    assert scan.expand(packed) == scan.Expanded(data)
    assert scan.expand(data) == scan.Expanded(data)
    cut = scan.expand(packed[:-40])
    assert "cut" in cut.trouble
    assert read(cut.data, cut.trouble)[1].stop is Stop.DAMAGED if cut.data else True
    assert "follow the end" in scan.expand(packed + b"more").trouble
    for position in range(len(packed)):
        flipped = bytearray(packed)
        flipped[position] ^= 0x10
        expanded = scan.expand(bytes(flipped))
        # Either zstd notices, or what comes out is what went in, or it is no longer compressed data.
        assert expanded.trouble or expanded.data == data or position < 4


def test_names_sort_by_incarnation_and_number() -> None:
    names = [frame.SegmentName(i, n) for i in (1, 2, 10) for n in (1, 9, 10, 100)]
    assert sorted(map(str, names)) == [str(name) for name in names]
    for name in names:
        packed = attrs.evolve(name, compressed=True)
        assert frame.parse_segment_name(str(name)) == name
        assert frame.parse_segment_name(str(packed)) == packed
    for other in (
        "lock",
        "00000001-00000001.orbitlog.writing",
        "1-1.orbitlog",
        "00000001-00000001.orbitlog\n",
    ):
        assert frame.parse_segment_name(other) is None
