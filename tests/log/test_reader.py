"""Reading logs as `replay` does: whole, growing, compressed, cut, damaged, mixed up. It never changes one."""

from pathlib import Path

import attrs
import pytest
import trio
import zstandard

from orbitkv.events.codec import encode_records
from orbitkv.events.frame import DamagedHeader, LogError, NotALog, SegmentName
from orbitkv.events.record import Record
from orbitkv.events.scan import Stop
from orbitkv.io.clock import SystemClock
from orbitkv.io.journal import FileJournal
from orbitkv.io.journal_thread import JournalSettings
from orbitkv.io.log_housekeeping import compress_finished
from orbitkv.io.segment_writer import FileCalls
from orbitkv.io.segments import LogDirectory
from replay.log import Log, LogSegment
from tests.log import samples


def read(path: Path) -> tuple[list[list[int]], Log]:
    """Seqs per segment, and the log after it was read."""
    log = Log.open(path)
    seqs = [[r.seq for frame in segment.frames() for r in frame.records] for segment in log.segments()]
    return seqs, log


def troubles(path: Path) -> list[str]:
    return [str(trouble) for trouble in read(path)[1].troubles]


def write_log(path: Path) -> list[Path]:
    """Two incarnations: the first of three segments with seqs 1-4, 5-8, 9-12; the second with 1-4."""
    files: list[Path] = []
    previous = 0
    for incarnation, number, first_seq in ((1, 1, 1), (1, 2, 5), (1, 3, 9), (2, 1, 1)):
        at = samples.header(incarnation, number, first_seq, previous)
        records = samples.records(first_seq, first_seq + 3)
        data, _ = samples.segment([records[:1], records[1:3], records[3:]], at=at, closed=True, synced=True)
        previous = samples.last_checksum(data)
        files.append(samples.write_segment(path, data, incarnation, number))
    return files


def test_incarnations_and_segments_come_in_order(tmp_path: Path) -> None:
    write_log(tmp_path)
    seqs, log = read(tmp_path)
    assert seqs == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [1, 2, 3, 4]]
    assert log.troubles == []
    assert log.notes == ["speaks from incarnation 1 seq 1"]


def test_one_segment_file_is_a_log_too(tmp_path: Path) -> None:
    files = write_log(tmp_path)
    seqs, log = read(files[1])
    assert seqs == [[5, 6, 7, 8]]
    assert log.troubles == []
    assert log.notes == ["speaks from incarnation 1 seq 5"]
    renamed = files[2].rename(tmp_path / "evidence")
    assert read(renamed)[0] == [[9, 10, 11, 12]]


def test_compressed_segments_read_alike(tmp_path: Path) -> None:
    write_log(tmp_path)
    plain = read(tmp_path)
    compress_finished(tmp_path, SegmentName(2, 1), FileCalls(), lambda: False)
    assert sum(entry.suffix == ".zst" for entry in tmp_path.iterdir()) == 3
    packed = read(tmp_path)
    assert packed[0] == plain[0]
    assert packed[1].troubles == []


def test_a_torn_end_is_a_note_and_a_torn_middle_is_damage(tmp_path: Path) -> None:
    files = write_log(tmp_path)
    files[3].write_bytes(files[3].read_bytes()[:-70])
    seqs, log = read(tmp_path)
    assert seqs[3] == [1, 2, 3]
    assert log.troubles == []
    assert "the last frame is not whole" in log.notes[-1]
    files[1].write_bytes(files[1].read_bytes()[:-70])
    seqs, log = read(tmp_path)
    assert seqs[:3] == [[1, 2, 3, 4], [5, 6, 7], [9, 10, 11, 12]]
    [trouble] = log.troubles
    assert (trouble.path, trouble.incarnation, trouble.seq) == (files[1], 1, 8)
    assert "bytes stand where a frame" in trouble.what


def test_a_segment_cut_between_two_frames_shows(tmp_path: Path) -> None:
    files = write_log(tmp_path)
    files[1].write_bytes(files[1].read_bytes()[:-40])
    assert "does not continue 00000001-00000002.orbitlog" in troubles(tmp_path)[0]


@pytest.mark.parametrize("compressed", [False, True])
def test_damage_is_named_by_file_offset_and_seq(tmp_path: Path, compressed: bool) -> None:
    files = write_log(tmp_path)
    data = bytearray(files[1].read_bytes())
    _, offsets = samples.segment([samples.records(5, 5), samples.records(6, 7)])
    data[offsets[2] + 60] ^= 4
    files[1].write_bytes(zstandard.compress(bytes(data)) if compressed else bytes(data))
    seqs, log = read(tmp_path)
    assert seqs == [[1, 2, 3, 4], [5], [9, 10, 11, 12], [1, 2, 3, 4]]
    [trouble] = log.troubles
    assert str(trouble).startswith(f"{files[1]} byte {offsets[2]}, incarnation 1 seq 6: ")
    assert "fails its checksum; 2 whole frames follow, and seq" in trouble.what


def test_a_cut_compressed_segment_is_named(tmp_path: Path) -> None:
    write_log(tmp_path)
    compress_finished(tmp_path, SegmentName(2, 1), FileCalls(), lambda: False)
    packed = tmp_path / "00000001-00000002.orbitlog.zst"
    packed.write_bytes(packed.read_bytes()[:-20])
    assert any("compressed data is cut" in trouble for trouble in troubles(tmp_path))
    packed.write_bytes(packed.read_bytes()[:3])
    assert "does not begin with ORBITLOG" in troubles(tmp_path)[0]


def test_missing_moved_and_foreign_segments_are_named(tmp_path: Path) -> None:
    files = write_log(tmp_path)
    middle = files[1].read_bytes()
    files[1].unlink()
    assert "segments are missing between this one and 00000001-00000001" in troubles(tmp_path)[0]
    files[1].write_bytes(files[2].read_bytes())
    assert "the file is named wrongly, it holds 00000001-00000003.orbitlog" in troubles(tmp_path)[0]
    foreign = attrs.evolve(
        samples.header(1, 2, 5, samples.last_checksum(files[0].read_bytes())), log_id=bytes(16)
    )
    files[1].write_bytes(samples.segment([samples.records(5, 8)], at=foreign, closed=True)[0])
    assert "belongs to another log" in troubles(tmp_path)[0]
    files[1].write_bytes(middle)
    assert troubles(tmp_path) == []


def test_records_must_be_what_their_frame_says(tmp_path: Path) -> None:
    good = samples.records(1, 4)
    early = Record(4, 0, good[3].cause, good[3].events)
    lies: dict[str, bytes | list[Record]] = {
        "claims seqs 1 to 1 and holds 2 records": encode_records(good[:2]),
        "record 3 stands where seq 1 must be": [good[2]],
        "time falls at seq 4": [*good[:3], early],
        "the frame is whole, its records are not": b"\x91\x01",
    }
    for what, frame in lies.items():
        path = samples.write_segment(tmp_path, samples.segment([frame])[0])
        seqs, log = read(path)
        assert seqs == [[]]
        assert [what in trouble.what for trouble in log.troubles] == [True]


def test_paths_that_are_no_log_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(NotALog, match="does not exist; name the log's directory"):
        Log.open(tmp_path / "nowhere")
    with pytest.raises(NotALog, match="holds no log segment"):
        Log.open(tmp_path)
    text = tmp_path / "text"
    for content in ("", "some text that is no log\n" * 10):
        text.write_text(content)
        with pytest.raises(NotALog, match=f"{text}: it does not begin with ORBITLOG"):
            read(text)
    text.write_bytes(samples.segment([])[0][:30])
    assert "header is cut" in troubles(text)[0]
    assert issubclass(DamagedHeader, LogError)


def test_reading_changes_nothing(tmp_path: Path) -> None:
    files = write_log(tmp_path)
    files[3].write_bytes(files[3].read_bytes()[:-10])
    damaged = bytearray(files[1].read_bytes())
    damaged[150] ^= 1
    files[1].write_bytes(bytes(damaged))

    def look() -> list[tuple[str, int, bytes]]:
        entries = sorted(tmp_path.iterdir())
        return [(entry.name, entry.stat().st_mtime_ns, entry.read_bytes()) for entry in entries]

    before = look()
    assert troubles(tmp_path)
    assert look() == before


def test_set_aside_files_are_mentioned(tmp_path: Path) -> None:
    files = write_log(tmp_path)
    files[3].rename(files[3].with_name(files[3].name + ".damaged"))
    assert any("was set aside" in note for note in read(tmp_path)[1].notes)


def test_a_growing_log_is_read_at_any_moment(tmp_path: Path) -> None:
    """While a journal writes, rolls, compresses and drops, each reading is a gapless stretch."""

    async def main() -> None:
        directory = LogDirectory.open(tmp_path)
        settings = JournalSettings(
            gather_s=0.0, segment_bytes=3000, log_bytes_max=12_000, sync_interval_s=0.01
        )
        journal = FileJournal.begin(
            directory,
            SystemClock(),
            incarnation=1,
            kernel_revision=7,
            snapshot=samples.EMPTY_STATE,
            settings=settings,
        )
        ended = False
        readings: list[tuple[int, int]] = []

        async def look() -> None:
            while not ended:
                written_seq = journal.written_seq
                seqs, log = await trio.to_thread.run_sync(read, tmp_path)
                assert log.troubles == []
                flat = [seq for segment in seqs for seq in segment]
                if flat and not any("was dropped" in note for note in log.notes):
                    assert flat == list(range(flat[0], flat[-1] + 1))
                    assert flat[-1] >= written_seq
                    readings.append((flat[0], flat[-1]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            for seq in range(1, 1500):
                if journal.segment_full:
                    journal.roll(b"state", seq)
                journal.append(seq, seq, encode_records([samples.record(seq, pages=30)]))
                if seq % 10 == 0:
                    await journal.written(seq)
            await journal.aclose()
            ended = True
        directory.close()
        assert len(readings) > 3
        seqs, log = read(tmp_path)
        assert seqs[-1][-1] == 1499
        assert log.troubles == []

    trio.run(main)


def test_a_segment_dropped_while_reading_is_a_note(tmp_path: Path) -> None:
    files = write_log(tmp_path)
    log = Log.open(tmp_path)
    files[0].unlink()
    segments: list[LogSegment] = []
    for segment in log.segments():
        list(segment.frames())
        segments.append(segment)
    assert [segment.ending.stop for segment in segments] == [Stop.SEALED] * 3
    assert log.troubles == []
    assert log.notes == ["00000001-00000001.orbitlog was dropped while the log was being read"]
