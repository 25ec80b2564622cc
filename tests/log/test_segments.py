"""The log's directory: one writer, an old incarnation's end, and what stands in the way of using it."""

import multiprocessing
import os
import stat
from pathlib import Path

import pytest
import zstandard

from orbitkv.events import codec
from orbitkv.events.frame import LogError, NewerFormat, NotALog, SegmentName
from orbitkv.io.log_housekeeping import compress_finished, drop_oldest
from orbitkv.io.segment_writer import FileCalls
from orbitkv.io.segments import LogDirectory, Predecessor
from replay.log import Log
from tests.log import samples

RECORDS = samples.records(1, 6)
FRAMES = [RECORDS[:2], RECORDS[2:3], RECORDS[3:]]


def recovered(path: Path) -> tuple[Predecessor | None, tuple[str, ...]]:
    """What a successor finds, and what it says it cut."""
    directory = LogDirectory.open(path)
    try:
        recovery = directory.recover()
        return recovery.predecessor, tuple(map(str, recovery.cuts))
    finally:
        directory.close()


def closed_by_successor(path: Path) -> list[str]:
    """Recover, append a closing record, read it all; gives the log's troubles."""
    directory = LogDirectory.open(path)
    found = directory.recover().predecessor
    assert found is not None
    record = samples.record(found.next_seq)
    directory.close_chain(found, codec.encode_records([record]))
    directory.close()
    log = Log.open(path)
    last = [frame.records for segment in log.segments() for frame in segment.frames()][-1]
    assert last == [record]
    return [str(trouble) for trouble in log.troubles]


def seqs(predecessor: Predecessor | None) -> list[int]:
    assert predecessor is not None
    return [record.seq for payload in predecessor.payloads for record in codec.decode_records(payload)]


def test_a_new_directory_is_private_and_empty(tmp_path: Path) -> None:
    path = tmp_path / "state" / "log"
    assert recovered(path) == (None, ())
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((path / "lock").stat().st_mode) == 0o600


def test_the_end_of_an_open_log_is_handed_over_and_its_chain_closed(tmp_path: Path) -> None:
    data, _ = samples.segment(FRAMES)
    samples.write_segment(tmp_path, data)
    predecessor, cuts = recovered(tmp_path)
    assert predecessor is not None
    assert cuts == ()
    assert (predecessor.snapshot, predecessor.next_seq, predecessor.sealed) == (samples.EMPTY_STATE, 7, False)
    assert seqs(predecessor) == [1, 2, 3, 4, 5, 6]
    assert closed_by_successor(tmp_path) == []


def test_a_sealed_end_is_opened_again_for_the_closing_record(tmp_path: Path) -> None:
    data, _ = samples.segment(FRAMES, closed=True)
    path = samples.write_segment(tmp_path, data)
    assert closed_by_successor(tmp_path) == []
    before = path.read_bytes()
    directory = LogDirectory.open(tmp_path)
    found = directory.recover().predecessor
    assert found is not None
    directory.close_chain(found)
    directory.close()
    assert path.read_bytes() == before


@pytest.mark.parametrize("lost_bytes", [1, 39, 60])
def test_a_torn_tail_is_cut_and_said(tmp_path: Path, lost_bytes: int) -> None:
    data, offsets = samples.segment(FRAMES)
    path = samples.write_segment(tmp_path, data[:-lost_bytes])
    predecessor, cuts = recovered(tmp_path)
    assert seqs(predecessor) == [1, 2, 3]
    assert len(cuts) == 1
    assert f"cut at byte {offsets[3]}, {len(data) - lost_bytes - offsets[3]} bytes" in cuts[0]
    assert path.stat().st_size == offsets[3]
    assert recovered(tmp_path)[1] == ()
    assert closed_by_successor(tmp_path) == []


def test_damage_before_whole_frames_is_cut_and_kept(tmp_path: Path) -> None:
    data, offsets = samples.segment(FRAMES, synced=True)
    rotten = bytearray(data)
    rotten[offsets[2] + 50] ^= 1
    path = samples.write_segment(tmp_path, bytes(rotten))
    predecessor, cuts = recovered(tmp_path)
    assert seqs(predecessor) == [1, 2]
    assert "had been durable" in cuts[0]
    kept = path.with_name(f"{path.name}.damaged-{offsets[2]}")
    assert kept.name in cuts[0]
    assert kept.read_bytes() == bytes(rotten[offsets[2] :])
    assert closed_by_successor(tmp_path) == []


def test_a_segment_without_a_readable_snapshot_is_set_aside(tmp_path: Path) -> None:
    first, _ = samples.segment(FRAMES, closed=True)
    samples.write_segment(tmp_path, first)
    at = samples.header(number=2, first_seq=7, previous=samples.last_checksum(first))
    second, offsets = samples.segment([samples.records(7, 9)], at=at)
    for place in (20, offsets[0] + 45):
        rotten = bytearray(second)
        rotten[place] ^= 1
        path = samples.write_segment(tmp_path, bytes(rotten), number=2)
        predecessor, cuts = recovered(tmp_path)
        assert seqs(predecessor) == [1, 2, 3, 4, 5, 6]
        assert len(cuts) == 1
        assert not path.exists()
        assert path.with_name(path.name + ".damaged").read_bytes() == bytes(rotten)
    assert closed_by_successor(tmp_path) == []


def test_an_incarnation_without_a_record_is_removed_and_its_number_not_used_again(tmp_path: Path) -> None:
    first, _ = samples.segment(FRAMES, closed=True)
    samples.write_segment(tmp_path, first)
    at = samples.header(incarnation=2, previous=samples.last_checksum(first))
    empty = samples.write_segment(tmp_path, samples.segment([], at=at)[0], incarnation=2)
    directory = LogDirectory.open(tmp_path)
    assert directory.last_incarnation == 2
    assert seqs(directory.recover().predecessor) == [1, 2, 3, 4, 5, 6]
    assert directory.previous_checksum == samples.last_checksum(first)
    directory.close()
    assert not empty.exists()


def test_a_compressed_end_can_be_continued(tmp_path: Path) -> None:
    data, _ = samples.segment(FRAMES, closed=True)
    path = samples.write_segment(tmp_path, data)
    compress_finished(tmp_path, SegmentName(2, 1), FileCalls(), lambda: False)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name + ".zst"]
    assert closed_by_successor(tmp_path) == []
    assert path.exists()


def _try_to_open(path: Path, answers: "multiprocessing.Queue[str]") -> None:
    try:
        LogDirectory.open(path).close()
        answers.put("")
    except LogError as error:
        answers.put(str(error))


def _try_to_open_as_nobody(path: Path, answers: "multiprocessing.Queue[str]") -> None:
    if os.geteuid() == 0:  # Root may write everywhere.
        os.setuid(65534)
    _try_to_open(path, answers)


def test_two_managers_cannot_write_one_log(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path)
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[str] = context.Queue()
    for expected in (f"(process {os.getpid()})", ""):
        other = context.Process(target=_try_to_open, args=(tmp_path, answers))
        other.start()
        answer = answers.get(timeout=30)
        other.join()
        assert expected in answer
        assert bool(answer) == bool(expected)
        directory.close() if expected else None
    answers.close()


def test_what_a_killed_writer_had_not_finished_is_swept(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    leftover = tmp_path / "00000001-00000002.orbitlog.writing"
    leftover.write_bytes(b"half")
    assert recovered(tmp_path) == (None, ())
    assert not leftover.exists()


def test_a_path_that_is_no_log_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("text")
    with pytest.raises(NotALog, match=r"is a file.*log_path"):
        LogDirectory.open(file)
    with pytest.raises(NotALog, match=r"holds files and no log \(for instance file\).*log_path"):
        LogDirectory.open(tmp_path)
    with pytest.raises(LogError, match=r"Not a directory.*log_path"):
        LogDirectory.open(file / "log")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file"]


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[str] = context.Queue()
    other = context.Process(target=_try_to_open_as_nobody, args=(tmp_path, answers))
    other.start()
    assert "Permission denied; give the manager's user write access" in answers.get(timeout=30)
    other.join()


def test_a_newer_log_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitkv.events.frame.FORMAT_VERSION", codec.FORMAT_VERSION + 1)
    data, _ = samples.segment(FRAMES)
    monkeypatch.undo()
    path = samples.write_segment(tmp_path, data[:-1])
    with pytest.raises(NewerFormat, match=rf"{path.name}.*format {codec.FORMAT_VERSION + 1}.*log_path"):
        recovered(tmp_path)
    assert path.read_bytes() == data[:-1]


def test_finished_segments_are_compressed_and_the_oldest_dropped(tmp_path: Path) -> None:
    previous = 0
    for number in range(1, 6):
        at = samples.header(number=number, first_seq=6 * number - 5, previous=previous)
        records = samples.records(6 * number - 5, 6 * number, pages=900)
        data, _ = samples.segment([records], at=at, closed=number < 5)
        previous = samples.last_checksum(data)
        samples.write_segment(tmp_path, data, number=number)
    (tmp_path / "00000001-00000001.orbitlog.damaged-99").write_bytes(b"kept aside")
    current = SegmentName(1, 5)
    compress_finished(tmp_path, current, FileCalls(), lambda: False)
    names = sorted(entry.name for entry in tmp_path.iterdir())
    assert [name.endswith(".zst") for name in names] == [False, True, True, True, True, False]
    packed = (tmp_path / names[1]).read_bytes()
    assert zstandard.get_frame_parameters(packed).has_checksum
    assert list_troubles(tmp_path) == []
    sizes = {name: (tmp_path / name).stat().st_size for name in names}
    removed = drop_oldest(tmp_path, current, sum(sizes.values()) - sizes[names[0]] - sizes[names[1]] - 1)
    assert sorted(path.name for path in removed) == names[:3]
    log = Log.open(tmp_path)
    assert [segment.header.number for segment in log.segments() if list(segment.frames())] == [3, 4, 5]
    assert log.troubles == []
    assert "speaks from incarnation 1 seq 13" in log.notes
    drop_oldest(tmp_path, current, 1)
    assert [entry.name for entry in tmp_path.iterdir()] == [str(current)]


def list_troubles(path: Path) -> list[str]:
    log = Log.open(path)
    for segment in log.segments():
        for _ in segment.frames():
            pass
    return [str(trouble) for trouble in log.troubles]
