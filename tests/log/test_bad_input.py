"""Every command of `replay` beside everything that is no log, or no longer a whole one.

None ends in a traceback or hangs, each says by its exit code what it was, nothing half done stays behind, and
what it was given is as it was.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from orbitkv.events.frame import SEGMENT_BYTES_MAX
from orbitkv.events.scan import Scan
from replay.__main__ import main
from replay.warehouse import WarehouseError, database
from tests import histories

HISTORIES = Path(histories.__file__).parent
SEGMENT = "00000001-00000001.orbitlog"
OK, DAMAGED, REFUSED = 0, 1, 2
ENDLESS = "SELECT a.range FROM range(1000000) a, range(1000000) b WHERE hash(a.range, b.range) > 0"

COMMANDS: dict[str, Callable[[str, Path], list[str]]] = {
    "fold": lambda log, _: ["fold", log],
    "fold --json": lambda log, _: ["fold", log, "--json"],
    "verify": lambda log, _: ["verify", log],
    "timeline": lambda log, _: ["timeline", log, "--full"],
    "audit": lambda log, _: ["audit", log, "--invariant", "chain", "--invariant", "snapshot_digests"],
    "report": lambda log, out: ["report", log, "-o", f"{out}/report.html"],
    "perfetto": lambda log, out: ["perfetto", log, "-o", f"{out}/trace.json"],
    "export": lambda log, out: ["export", log, f"{out}/export"],
    "export --pseudonymise": lambda log, out: ["export", log, f"{out}/pseudonyms", "--pseudonymise"],
    "load": lambda log, out: ["load", log, "--db", f"{out}/loaded.duckdb"],
    "seal": lambda log, _: ["seal", log],
    "sql": lambda log, _: ["sql", log, "SELECT count(*) FROM records"],
    "fixture": lambda log, out: ["fixture", log, "--seq", "3-9", "--out", f"{out}/piece"],
}
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


# --- places and names -------------------------------------------------------------------------------------


def test_a_path_that_is_no_text_is_used_or_refused(tmp_path: Path) -> None:
    """DuckDB and files of text take none."""
    path = tmp_path / os.fsdecode(b"\xff")
    shutil.copytree(HISTORIES / "plain", path)
    (tmp_path / "out").mkdir()
    codes = {}
    for name, arguments in COMMANDS.items():
        answer = CliRunner().invoke(main, arguments(str(path), tmp_path / "out"))
        assert isinstance(answer.exception, SystemExit | None), name
        assert answer.exit_code == OK or "no text in UTF-8" in answer.stderr, (name, answer.stderr)
        codes[name] = answer.exit_code
    assert set(codes.values()) == {OK, REFUSED}
    assert codes["verify"] == OK
    assert not (tmp_path / "out" / "loaded.duckdb").exists()


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "sql"])
def test_a_full_device_for_the_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    log = tmp_path / "log"
    shutil.copytree(HISTORIES / "plain", log)
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            main(COMMANDS[name](str(log), tmp_path))
    assert ended.value.code == REFUSED
    assert "the answer cannot be written: No space left on device" in capsys.readouterr().err


# --- other processes --------------------------------------------------------------------------------------


def test_who_comes_second_leaves_the_database_of_the_first_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made after the second has looked for it, and before he opens it."""
    place, holding = tmp_path / "db", "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print(); input()"
    command = [sys.executable, "-c", holding, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None

        def late() -> object:
            first.stdout.readline()
            return duckdb

        exists = iter([False])
        with monkeypatch.context() as patch:
            patch.setattr(database, "_duckdb", late)
            patch.setattr(Path, "exists", lambda *_, **__: next(exists, True))
            with pytest.raises(WarehouseError, match="cannot be opened"), database.opened(place):
                pass
        assert place.is_file()
        first.communicate(b"\n")


@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_is_told_to_end_takes_his_files_along(tmp_path: Path, way: signal.Signals) -> None:
    log, folder = tmp_path / "log", tmp_path / "temporary"
    shutil.copytree(HISTORIES / "plain", log)
    folder.mkdir()
    command = [sys.executable, "-m", "replay", "sql", str(log), ENDLESS, "-o", str(tmp_path / "answer.csv")]
    before = {each.name for each in tmp_path.iterdir()}
    with subprocess.Popen(
        command, env=os.environ | {"TMPDIR": str(folder)}, stderr=subprocess.PIPE, text=True
    ) as process:
        while not any(each.name.startswith(".answer.csv.") for each in tmp_path.iterdir()):
            assert process.poll() is None
        process.send_signal(way)
        _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "interrupted" in errors and "Traceback" not in errors
    assert list(folder.iterdir()) == []
    assert {each.name for each in tmp_path.iterdir()} == before


def test_ctrl_c_while_duckdb_works_is_no_error_of_duckdb() -> None:
    with pytest.raises(KeyboardInterrupt):
        work_for_ever()


def work_for_ever() -> None:
    with database.opened(None) as connection:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        connection.execute(f"SELECT count(*) FROM ({ENDLESS})")


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
