"""Writing one segment on devices that are full, fail, or lie after a failed sync."""

import errno
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitkv.events.frame import FrameKind, LogError
from orbitkv.events.scan import Ending, Scan, Stop
from orbitkv.io.segment_writer import PendingFrame, SegmentWriter, explain
from tests.log import samples
from tests.log.sick import SickCalls


@pytest.fixture
def calls() -> SickCalls:
    return SickCalls()


@pytest.fixture
def writer(tmp_path: Path, calls: SickCalls) -> Iterator[SegmentWriter]:
    made = SegmentWriter.create(tmp_path, samples.header(), samples.EMPTY_STATE, calls)
    yield made
    made.close()


def frames(first_seq: int, *payloads: bytes) -> list[PendingFrame]:
    return [PendingFrame(seq, seq, payload) for seq, payload in enumerate(payloads, first_seq)]


def read(path: Path) -> tuple[list[bytes], Ending]:
    scan = Scan(path.read_bytes())
    payloads = [bytes(frame.payload) for frame in scan if frame.kind is FrameKind.RECORDS]
    return payloads, scan.ending


def test_a_segment_is_written_synced_and_sealed(writer: SegmentWriter, tmp_path: Path) -> None:
    writer.write(frames(1, b"a", b"b"))
    assert (writer.written_seq, writer.synced_seq) == (2, 0)
    assert writer.unsynced_bytes > 0
    writer.sync()
    assert (writer.synced_seq, writer.unsynced_bytes) == (2, 0)
    writer.write(frames(3, b"c"))
    writer.seal()
    payloads, ending = read(writer.path)
    assert payloads == [b"a", b"b", b"c"]
    assert ending.stop is Stop.SEALED
    assert ending.synced_seq == 3
    assert ending.checksum == writer.checksum
    assert stat.S_IMODE(writer.path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["00000001-00000001.orbitlog"]


@pytest.mark.parametrize("bytes_per_write", [1, 7, 40, 1000])
def test_short_writes_are_continued(writer: SegmentWriter, calls: SickCalls, bytes_per_write: int) -> None:
    calls.bytes_per_write = bytes_per_write
    payloads = [b"first" * 9, b"", b"third" * 30]
    writer.write(frames(1, *payloads))
    assert read(writer.path)[0] == payloads


def test_more_buffers_than_one_call_takes(writer: SegmentWriter) -> None:
    payloads = [b"%d" % n for n in range(1500)]
    writer.write(frames(1, *payloads))
    assert read(writer.path)[0] == payloads


def test_a_full_disk_takes_all_of_a_write_or_nothing(writer: SegmentWriter, calls: SickCalls) -> None:
    writer.write(frames(1, b"before"))
    for room_bytes in range(130):
        calls.room_bytes = room_bytes
        with pytest.raises(OSError, match="No space"):
            writer.write(frames(2, b"x" * 60, b"y" * 60))
        payloads, ending = read(writer.path)
        assert (payloads, ending.stop) == ([b"before"], Stop.OPEN)
    calls.room_bytes = 1 << 20
    writer.write(frames(2, b"x" * 60, b"y" * 60))
    assert read(writer.path)[0] == [b"before", b"x" * 60, b"y" * 60]


def test_after_a_failed_sync_the_segment_is_written_anew(writer: SegmentWriter, calls: SickCalls) -> None:
    writer.write(frames(1, b"durable"))
    writer.sync()
    inode = writer.path.stat().st_ino
    writer.write(frames(2, b"not yet", b"nor this"))
    calls.sync_error = errno.EIO
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output"):
            writer.sync()
    # The device forgot what it could not write: the old file must not be trusted.
    calls.sync_error = 0
    writer.write(frames(4, b"later"))
    assert writer.synced_seq == 3
    writer.seal()
    payloads, ending = read(writer.path)
    assert payloads == [b"durable", b"not yet", b"nor this", b"later"]
    assert ending.stop is Stop.SEALED
    assert writer.path.stat().st_ino != inode


def test_a_sync_that_fails_while_sealing_keeps_the_closing_frame(
    writer: SegmentWriter, calls: SickCalls
) -> None:
    writer.write(frames(1, b"a"))
    writer.sync()
    calls.sync_error = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        writer.seal()
    calls.sync_error = 0
    writer.seal()
    writer.seal()
    assert read(writer.path)[1].stop is Stop.SEALED


def test_a_partial_frame_that_cannot_be_cut_off_makes_a_new_file(
    writer: SegmentWriter, calls: SickCalls
) -> None:
    writer.write(frames(1, b"a"))
    calls.room_bytes, calls.truncate_error = 10, errno.EIO
    with pytest.raises(OSError, match="No space"):
        writer.write(frames(2, b"b"))
    assert read(writer.path)[1].stop is Stop.TORN
    calls.room_bytes = 1 << 20
    writer.write(frames(2, b"b"))
    payloads, ending = read(writer.path)
    assert (payloads, ending.stop) == ([b"a", b"b"], Stop.OPEN)


def test_rot_found_by_a_rescue_is_named(writer: SegmentWriter, calls: SickCalls) -> None:
    writer.write(frames(1, b"durable" * 10))
    writer.sync()
    writer.write(frames(2, b"not yet"))
    calls.sync_error = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        writer.sync()
    with writer.path.open("r+b") as file:
        file.seek(200)
        file.write(b"?")
    with pytest.raises(LogError, match=r"device is failing.*log_path"):
        writer.sync()


@pytest.mark.parametrize("sick", ["room", "sync"])
def test_nothing_is_left_of_a_segment_that_could_not_be_begun(
    tmp_path: Path, calls: SickCalls, sick: str
) -> None:
    if sick == "room":
        calls.room_bytes = 100
    else:
        calls.sync_error = errno.EIO
    with pytest.raises(OSError, match=r"No space|Input/output"):
        SegmentWriter.create(tmp_path, samples.header(), bytes(1000), calls)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EROFS, "remount"),
        (errno.EACCES, "write access"),
        (errno.EIO, "dmesg"),
        (errno.ENODEV, "log_path"),
    ],
)
def test_trouble_says_what_mends_it(number: int, remedy: str) -> None:
    text = explain(OSError(number, "what happened"), Path("/var/lib/log"))
    assert text.startswith("/var/lib/log: what happened; ")
    assert remedy in text
