"""Exported logs: the same records and decisions as the original's, and none of its keys and names."""

import struct
from pathlib import Path

import attrs
import pytest

from orbitkv.events.frame import SegmentName
from orbitkv.io.log_housekeeping import compress_finished
from orbitkv.io.segment_writer import FileCalls
from replay.auditor import audit_log
from replay.export.copying import export_log
from replay.fold import fold_log
from replay.log import Log
from replay.verify import verify_log
from tests.log.exporting import (
    HISTORIES,
    SAMPLE,
    SECRET,
    SHARED,
    TROUBLE,
    UID,
    content_of,
    fields_of,
    is_name,
    names_of,
    records_of,
    write_planted,
)


def assert_anonymous(original: Path, exported: Path) -> None:
    content, names = content_of(exported), names_of(original)
    assert len(names) > 20
    assert [name for name in names if name in content] == []
    for number in (UID,):
        assert struct.pack(">I", number) not in content


def assert_same_story(original: Path, exported: Path) -> None:
    """Every number and column, the totals, the verdicts and the ledgers."""
    before, after = records_of(original), records_of(exported)
    assert len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        for (field, value), (_, renamed) in zip(fields_of(one), fields_of(other), strict=True):
            if not is_name(field, value) and field not in ("uid", "body"):
                assert value == renamed, (one.seq, field)
            else:
                assert bool(value) == bool(renamed), (one.seq, field)
    for walk in (fold_log, verify_log):
        told, again = walk(original), walk(exported)
        assert again.difference is None
        assert again.ok
        unnamed = {"digest": "", "store": {}}
        assert [attrs.evolve(each, **unnamed) for each in again.incarnations] == [
            attrs.evolve(each, **unnamed) for each in told.incarnations
        ]
    first, second = audit_log(original), audit_log(exported)
    expected, judged = ([(v.invariant, v.count) for v in each.verdicts] for each in (first, second))
    assert judged == expected
    assert (second.records, second.by_incarnation) == (first.records, first.by_incarnation)


# --- what an export is ------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [SAMPLE, TROUBLE, SHARED], ids=lambda path: path.name)
def test_an_export_tells_the_same_story_without_the_names(tmp_path: Path, source: Path) -> None:
    original, exported = tmp_path / "log", tmp_path / "out"
    files = write_planted(original, source)
    export = export_log(original, exported, SECRET)
    assert export.ok
    assert (export.segments, export.records) == (len(files), len(records_of(original)))
    assert len(export.incarnations) > 1
    assert export.size_bytes == sum(file.stat().st_size for file in exported.iterdir())
    assert_anonymous(original, exported)
    assert_same_story(original, exported)
    snapshots = sum(each.snapshots_compared for each in fold_log(exported).incarnations)
    assert snapshots == len(files) - len(export.incarnations)


@pytest.mark.parametrize(
    "name", sorted(path.name for path in HISTORIES.iterdir() if any(path.glob("*.orbitlog*")))
)
def test_recorded_logs_are_exported_too(tmp_path: Path, name: str) -> None:
    """Of a real manager, of every kind of trouble, cut, compressed, and with shared charges."""
    exported = tmp_path / "out"
    export_log(HISTORIES / name, exported, SECRET)
    assert_anonymous(HISTORIES / name, exported)
    assert_same_story(HISTORIES / name, exported)


def test_compressed_segments_are_exported_compressed(tmp_path: Path) -> None:
    original, exported = tmp_path / "log", tmp_path / "out"
    write_planted(original, SAMPLE)
    last = max(file.name for file in original.iterdir())
    compress_finished(original, SegmentName(int(last[:8]), int(last[9:17])), FileCalls(), lambda: False)
    export_log(original, exported, SECRET)
    assert {file.name for file in exported.iterdir()} == {file.name for file in original.iterdir()}
    assert sum(file.suffix == ".zst" for file in exported.iterdir()) > 3
    assert_anonymous(original, exported)
    assert_same_story(original, exported)


@pytest.mark.parametrize("dropped", [1, 2, 3])
def test_a_log_without_its_oldest_part_is_exported_from_where_it_speaks(tmp_path: Path, dropped: int) -> None:
    original, exported = tmp_path / "log", tmp_path / "out"
    whole = tmp_path / "whole"
    for file in write_planted(original, TROUBLE)[:dropped]:
        whole.mkdir(exist_ok=True)
        file.rename(whole / file.name)
    export_log(original, exported, SECRET)
    content = content_of(exported)
    assert [name for name in names_of(whole) | names_of(original) if name in content] == []
    assert_same_story(original, exported)


def test_one_segment_is_exported_too(tmp_path: Path) -> None:
    middle = write_planted(tmp_path / "log", SAMPLE)[1]
    evidence = middle.rename(tmp_path / "evidence")
    exported = tmp_path / "out"
    export = export_log(evidence, exported, SECRET)
    assert [file.name for file in exported.iterdir()] == [middle.name]
    assert export.ok
    assert fold_log(exported).ok


def test_without_pseudonyms_the_records_are_the_very_bytes(tmp_path: Path) -> None:
    original, exported = tmp_path / "log", tmp_path / "out"
    write_planted(original, SAMPLE)
    assert not export_log(original, exported).pseudonymised

    def payloads(path: Path) -> list[bytes]:
        found = []
        for segment in Log.open(path).segments():
            found.append(segment.snapshot or b"")
            found += [bytes(frame.payload) for frame in segment.frames()]
        return found

    assert payloads(exported) == payloads(original)
    assert fold_log(exported).incarnations == fold_log(original).incarnations
