"""Every command of `replay` beside everything that is no log, or no longer a whole one.

None ends in a traceback or hangs, each says by its exit code what it was, nothing half done stays behind, and
what it was given is as it was.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from orbitkv.events.frame import SEGMENT_BYTES_MAX
from orbitkv.events.scan import Scan
from replay.__main__ import main
from tests.log.reading_commands import COMMANDS, DAMAGED, HISTORIES, OK, REFUSED, SEGMENT

TAKE_WHAT_IS_THERE = ("export", "export --pseudonymise", "fixture")
"""Refuse a log of which nothing can be had; the others show what is wrong with it."""


# --- what is no log ---------------------------------------------------------------------------------------


def nothing(path: Path) -> None:
    pass


def empty_folder(path: Path) -> None:
    path.mkdir()


def zeros(path: Path) -> None:
    path.write_bytes(bytes(100_000))


def pipe(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path)


def link_to_nothing(path: Path) -> None:
    path.mkdir()
    (path / SEGMENT).symlink_to(path / "gone")


def folder_for_segment(path: Path) -> None:
    (path / SEGMENT).mkdir(parents=True)


def pipe_for_segment(path: Path) -> None:
    path.mkdir()
    os.mkfifo(path / SEGMENT)
    (path / "00000001-00000002.orbitlog").write_bytes(plain())


def huge_segment(path: Path) -> None:
    path.mkdir()
    with (path / SEGMENT).open("wb") as file:
        file.truncate(SEGMENT_BYTES_MAX + 1)


NO_LOGS = (
    nothing,
    empty_folder,
    zeros,
    pipe,
    loop,
    link_to_nothing,
    folder_for_segment,
    pipe_for_segment,
    huge_segment,
)


@pytest.mark.parametrize("make", NO_LOGS, ids=lambda make: make.__name__)
def test_what_is_no_log_is_refused_and_nothing_is_left(tmp_path: Path, make: Callable[[Path], None]) -> None:
    for name, code, words in asked(tmp_path, make):
        assert code == REFUSED, (name, words)
        assert list((tmp_path / "out").iterdir()) == [], name
        assert {each.name for each in tmp_path.iterdir()} <= {"log", "out"}, name


# --- logs of which little is left -------------------------------------------------------------------------


def no_bytes(path: Path) -> None:
    path.mkdir()
    (path / SEGMENT).write_bytes(b"")


def zeros_for_segment(path: Path) -> None:
    path.mkdir()
    (path / SEGMENT).write_bytes(bytes(100_000))


def begun_header(path: Path) -> None:
    path.mkdir()
    (path / SEGMENT).write_bytes(plain()[:10])


def header_only(path: Path) -> None:
    path.mkdir()
    (path / SEGMENT).write_bytes(plain()[: next(iter(Scan(plain()))).offset])


def flipped_header(path: Path) -> None:
    path.mkdir()
    data = bytearray(plain())
    data[20] ^= 1
    (path / SEGMENT).write_bytes(data)


RUINS = (no_bytes, zeros_for_segment, begun_header, header_only, flipped_header)


@pytest.mark.parametrize("make", RUINS, ids=lambda make: make.__name__)
def test_a_ruin_is_called_damaged_by_all(tmp_path: Path, make: Callable[[Path], None]) -> None:
    for name, code, words in asked(tmp_path, make):
        assert code == (REFUSED if name in TAKE_WHAT_IS_THERE else DAMAGED), (name, words)
        assert not (tmp_path / "log-sealed").exists(), name


def snapshot_only(path: Path) -> None:
    path.mkdir()
    (path / SEGMENT).write_bytes(plain()[: next(iter(Scan(plain()))).end_offset])


def torn_frame(path: Path) -> None:
    path.mkdir()
    (path / SEGMENT).write_bytes(plain()[: len(plain()) * 2 // 3])


def names_that_are_no_text(path: Path) -> None:
    shutil.copytree(HISTORIES / "plain", path)
    for name in (b"\xff.damaged", b"\x1b[31m.damaged", b"<script>\n'.damaged"):
        (path / os.fsdecode(name)).write_bytes(b"")


WHOLE = (snapshot_only, torn_frame, names_that_are_no_text)


@pytest.mark.parametrize("make", WHOLE, ids=lambda make: make.__name__)
def test_what_a_manager_may_leave_is_well(tmp_path: Path, make: Callable[[Path], None]) -> None:
    for name, code, words in asked(tmp_path, make):
        expected = REFUSED if (make, name) == (snapshot_only, "fixture") else OK
        assert code == expected, (name, words)
        assert "\x1b" not in words, name


# --- helpers ----------------------------------------------------------------------------------------------


def plain() -> bytes:
    return (HISTORIES / "plain" / SEGMENT).read_bytes()


def asked(tmp_path: Path, make: Callable[[Path], None]) -> Iterator[tuple[str, int, str]]:
    """Each command's name, exit code and words."""
    log, out = tmp_path / "log", tmp_path / "out"
    make(log)
    before = listed(log)
    for name, arguments in COMMANDS.items():
        out.mkdir()
        answer = CliRunner().invoke(main, arguments(str(log), out))
        assert isinstance(answer.exception, SystemExit | None), (name, answer.exception)
        assert listed(log) == before, name
        assert not [each.name for each in out.iterdir() if each.name.startswith(".")], name
        yield name, answer.exit_code, answer.output
        shutil.rmtree(out)


def listed(path: Path) -> list[tuple[str, int, int, bytes]]:
    if not path.is_dir():
        return []
    return [
        (each.name, each.lstat().st_mtime_ns, each.lstat().st_size, content(each))
        for each in sorted(path.iterdir())
    ]


def content(path: Path) -> bytes:
    small = path.is_file() and path.stat().st_size <= 1 << 20
    return path.read_bytes() if small else b""
