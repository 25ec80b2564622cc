"""Exports of logs that are damaged, mixed or growing; and exports that must not, or cannot, be written."""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from orbitkv.events.frame import LogError
from replay.export.copying import export_log
from replay.fold import fold_log
from replay.log import Log
from replay.verify import verify_log
from tests.log import samples
from tests.log.exporting import (
    SAMPLE,
    SECRET,
    TROUBLE,
    content_of,
    names_of,
    records_of,
    write_planted,
)


def test_a_damaged_log_is_exported_up_to_the_damage(tmp_path: Path) -> None:
    original, exported = tmp_path / "log", tmp_path / "out"
    files = write_planted(original, SAMPLE)
    data = bytearray(files[1].read_bytes())
    data[len(data) // 2] ^= 1
    files[1].write_bytes(data)
    export = export_log(original, exported, SECRET)
    assert not export.ok
    assert export.segments == 2
    assert export.log.troubles[0].path == files[1]
    again = fold_log(exported)
    assert again.ok
    assert again.records == export.records == export.log.troubles[0].seq - 1
    assert verify_log(exported).ok
    assert [name for name in names_of(original) if name in content_of(exported)] == []


def broken_header(files: list[Path]) -> None:
    files[2].write_bytes(b"x" * 200)


def missing(files: list[Path]) -> None:
    files[2].unlink()


def lying_snapshot(files: list[Path]) -> None:
    at = attrs.evolve(
        samples.header(1, 3, 181, samples.last_checksum(files[1].read_bytes())),
        log_id=next(Log.open(files[1]).segments()).header.log_id,
    )
    files[2].write_bytes(samples.segment([], at=at, snapshot=b"no state")[0])


@pytest.mark.parametrize("hurt", [broken_header, missing, lying_snapshot])
def test_it_ends_before_a_segment_that_cannot_be_read(
    tmp_path: Path, hurt: Callable[[list[Path]], None]
) -> None:
    files = write_planted(tmp_path / "log", SAMPLE)
    assert files[2].name.startswith("00000001")
    hurt(files)
    export = export_log(tmp_path / "log", tmp_path / "out", SECRET)
    assert not export.ok
    assert export.incarnations == {1: (1, 181)}
    assert fold_log(tmp_path / "out").ok


def test_two_logs_in_one_directory_are_not_mixed(tmp_path: Path) -> None:
    files = write_planted(tmp_path / "log", SAMPLE)
    other = write_planted(tmp_path / "other", TROUBLE)[0]
    renumbered = bytearray(other.read_bytes())
    files[1].write_bytes(renumbered)
    export = export_log(tmp_path / "log", tmp_path / "out", SECRET)
    assert export.segments == 1
    assert not export.ok


def test_a_growing_log_is_exported_as_it_was_when_the_export_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two passes its manager writes on."""
    files = write_planted(tmp_path / "log", SAMPLE)
    *_, last, short = files
    short.unlink()
    whole = last.read_bytes()
    offsets = [frame.offset for frame in next(Log.open(last).segments()).frames()]
    assert len(offsets) > 2
    last.write_bytes(whole[: offsets[-2] + 20])
    segments = Log.segments
    opened: list[Log] = []

    def noted(self: Log) -> Iterator[Any]:
        opened.append(self)
        yield from segments(self)
        if len(opened) == 1:
            last.write_bytes(whole)

    monkeypatch.setattr(Log, "segments", noted)
    export = export_log(tmp_path / "log", tmp_path / "out", SECRET)
    monkeypatch.undo()
    assert export.ok
    assert len(opened) == 2
    again = verify_log(tmp_path / "out")
    assert again.ok
    assert 0 < again.records < len(records_of(tmp_path / "log"))


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    write_planted(tmp_path / "log", SAMPLE, records_max=60)
    (tmp_path / "empty").mkdir()
    export_log(tmp_path / "log", tmp_path / "empty", SECRET)
    before = content_of(tmp_path / "empty")
    (tmp_path / "file").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for target in ("empty", "file", "link"):
        with pytest.raises(LogError, match="nothing is overwritten"):
            export_log(tmp_path / "log", tmp_path / target, SECRET)
    with pytest.raises(LogError, match="never changed"):
        export_log(tmp_path / "log", tmp_path / "log" / "out", SECRET)
    assert content_of(tmp_path / "empty") == before
    assert (tmp_path / "file").read_text() == "precious"
    assert {entry.name for entry in tmp_path.iterdir()} == {"log", "empty", "file", "link"}


def test_something_that_came_to_stand_there_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_planted(tmp_path / "log", SAMPLE, records_max=60)
    rename = os.rename

    def late(source: Path, target: Path) -> None:
        target.mkdir()
        (target / "other").write_text("precious")
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    with pytest.raises(LogError, match="nothing is overwritten"):
        export_log(tmp_path / "log", tmp_path / "out", SECRET)
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["other"]
    assert {entry.name for entry in tmp_path.iterdir()} == {"log", "out"}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_who_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    write_planted(tmp_path / "log", SAMPLE, records_max=60)

    def fail(fd: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((LogError, KeyboardInterrupt), match="free space there" if error.args else None):
        export_log(tmp_path / "log", tmp_path / "out", SECRET)
    assert [entry.name for entry in tmp_path.iterdir()] == ["log"]


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    write_planted(tmp_path / "log", SAMPLE, records_max=60)
    export_log(tmp_path / "log", tmp_path / "out", SECRET)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "out").iterdir()} == {0o600}


def test_the_original_is_as_it_was(tmp_path: Path) -> None:
    files = write_planted(tmp_path / "log", SAMPLE, records_max=60)
    before = OrderedDict((file, (file.read_bytes(), file.stat().st_mtime_ns)) for file in files)
    export_log(tmp_path / "log", tmp_path / "out", SECRET)
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files} == before
    assert sorted((tmp_path / "log").iterdir()) == sorted(files)
