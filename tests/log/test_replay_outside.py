"""The commands of `replay` among full devices, other processes, signals, and names that mean harm."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
from click.testing import CliRunner

from orbitkv.events.facts import QueryOpened
from replay.__main__ import main
from replay.simulate.simulated_log import SimulatedLog
from replay.warehouse import WarehouseError, database
from tests.log.reading_commands import COMMANDS, DAMAGED, HISTORIES, OK, REFUSED
from tests.log.simulated import simulated_records, write_log

ENDLESS = "SELECT a.range FROM range(1000000) a, range(1000000) b WHERE hash(a.range, b.range) > 0"


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


def test_a_script_that_is_no_text_or_lacks_what_it_should_keep_is_refused(tmp_path: Path) -> None:
    script, out = tmp_path / "script.txt", tmp_path / "out.txt"
    script.write_bytes(b"# \xff")
    refused = CliRunner().invoke(main, ["fixture", str(script), "--keep", "broken", "--out", str(out)])
    assert (refused.exit_code, out.exists()) == (REFUSED, False)
    assert "script.txt is no script: byte 2" in refused.stderr
    unmet = ["fixture", "--seed", "3", "--steps", "9", "--keep", "HintEnded", "--out", str(out)]
    refused = CliRunner().invoke(main, unmet)
    assert (refused.exit_code, out.exists()) == (REFUSED, False)
    assert "seed 3, 9 steps has nothing of all in which HintEnded holds" in refused.stderr


HOSTILE = "'\"<img src=x onerror=alert(1)>; DROP TABLE records;--\n\x1b[31m\x07\u202e\x00\r"


def with_hostile_names(value: Any) -> Any:
    match value:
        case msgspec.Struct():
            names = value.__struct_fields__
            return type(value)(**{name: with_hostile_names(getattr(value, name)) for name in names})
        case tuple():
            return tuple(map(with_hostile_names, value))
        case str() if value:
            return HOSTILE + value
    return value


def test_names_in_a_log_are_shown_and_never_obeyed(tmp_path: Path) -> None:
    told = [[with_hostile_names(record) for record in each] for each in simulated_records(11, 2500)[:2]]
    write_log(tmp_path / "log", told)
    commands = COMMANDS | {
        "audit": lambda log, _: ["audit", log],
        "sql": lambda log, _: ["sql", log, "FROM requests", "--format", "table"],
        "fixture": lambda log, out: ["fixture", log, "--seq", "1-60", "--script", "--out", f"{out}/s.txt"],
    }
    hostile_lines = 0
    for name, arguments in commands.items():
        answer = CliRunner().invoke(main, arguments(str(tmp_path / "log"), tmp_path), color=True)
        assert isinstance(answer.exception, SystemExit | None), (name, answer.exception)
        assert answer.exit_code in (OK, DAMAGED), (name, answer.stderr)
        assert not [each for each in "\x1b\x07\u202e\x00" if each in answer.output], name
        hostile_lines += answer.output.count("onerror")
    assert hostile_lines > 100
    assert "<img src=x" not in (tmp_path / "report.html").read_text()
    json.loads((tmp_path / "trace.json").read_text())
    assert "\x1b" not in (tmp_path / "s.txt").read_text()


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


def test_a_simulation_without_room_for_its_log_is_not_called_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "log")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(SimulatedLog, "rotate", full)
    monkeypatch.setattr(SimulatedLog, "close", full)
    answer = CliRunner().invoke(main, ["simulate", "--seed", "5", "--steps", "3000"])
    assert (answer.exit_code, list(tmp_path.iterdir())) == (REFUSED, [])
    assert "log cannot be used: No space left on device" in answer.stderr


def test_what_needs_too_much_room_is_ended_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "DUCKDB_MEMORY", "20MB")
    monkeypatch.setattr(database, "DUCKDB_SPILL", "1MB")
    with pytest.raises(WarehouseError, match="more than 20MB of memory and 1MB of temporary space"):
        sort_much()


def sort_much() -> None:
    with database.opened(None) as connection:
        connection.execute(
            "CREATE TABLE much AS SELECT range::VARCHAR x FROM range(3000000) ORDER BY hash(range)"
        )


@pytest.mark.parametrize("number", [-1, 2**63 - 1, 2**63, 2**64 - 1])
def test_numbers_that_no_manager_writes_end_no_command_in_a_traceback(tmp_path: Path, number: int) -> None:
    told = simulated_records(11, 300)[0]
    place = next(place for place, each in enumerate(told) if isinstance(each.events[0], QueryOpened))
    opened = told[place].events[0]
    wrong = {name: number for name in opened.__struct_fields__ if type(getattr(opened, name)) is int}
    lie = msgspec.structs.replace(told[place], events=(msgspec.structs.replace(opened, **wrong),))
    write_log(tmp_path / "log", [told], lies={(1, lie.seq): lie})
    for name, arguments in (COMMANDS | {"audit": lambda log, _: ["audit", log]}).items():
        answer = CliRunner().invoke(main, arguments(str(tmp_path / "log"), tmp_path))
        assert isinstance(answer.exception, SystemExit | None), (name, answer.exception)
        assert name not in ("fold", "verify", "audit") or answer.exit_code != OK, name
        assert "TMPDIR" not in answer.stderr, name


# --- other processes --------------------------------------------------------------------------------------


def test_who_comes_second_leaves_the_database_of_the_first_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made after the second has looked for it, and before he opens it."""
    place = tmp_path / "db"
    holding = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print(flush=True); input()"
    command = [sys.executable, "-c", holding, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        told = first.stdout

        def late() -> object:
            told.readline()
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
        command,
        env=os.environ | {"TMPDIR": str(folder)},
        stderr=subprocess.PIPE,
        text=True,
        # Who runs the tests may have them ignore it, as nohup does; the command would rightly do so too.
        preexec_fn=lambda: signal.signal(way, signal.SIG_DFL),
    ) as process:
        while not any(each.name.startswith(".answer.csv.") for each in tmp_path.iterdir()):
            assert process.poll() is None
        process.send_signal(way)
        _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "interrupted" in errors and "Traceback" not in errors
    assert list(folder.iterdir()) == []
    assert {each.name for each in tmp_path.iterdir()} == before


def test_a_simulation_that_is_ended_leaves_no_log_that_nobody_asked_for(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "replay", "simulate", "--steps", "1000000000"]
    with subprocess.Popen(
        command, env=os.environ | {"TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE, text=True
    ) as process:
        while not list(tmp_path.rglob("*.orbitlog")):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error", [duckdb.InterruptException("INTERRUPT Error"), RuntimeError("Query interrupted")]
)
def test_what_duckdb_makes_of_ctrl_c_is_no_error_of_its_own(error: Exception) -> None:
    with pytest.raises(KeyboardInterrupt), database.opened(None):
        raise error
