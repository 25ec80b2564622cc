"""`replay sql` among other processes: pipes, full devices, signals, and too little room."""

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from replay.query.asking import ask
from replay.query.trouble import QueryError
from tests.log.sql_asking import run


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "replay", "sql", *map(str, arguments)]


def test_a_reader_that_has_had_enough_is_no_error(database: Path) -> None:
    query = "SELECT * FROM records, range(20000)"
    with subprocess.Popen(
        command("--db", database, query), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("stretch,seq,")
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait() == 0
    assert "Traceback" not in errors
    assert "Error" not in errors


@pytest.mark.parametrize("form", ["csv", "json", "table"])
def test_a_full_device_is_named(database: Path, form: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("--db", database, "SELECT 1 AS one", "--format", form),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2
    assert "cannot be written to standard output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_standard_output_is_named(database: Path) -> None:
    words = shlex.join(command("--db", database, "SELECT 1 AS one"))
    done = subprocess.run(f"{words} >&-", shell=True, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert "standard output is closed" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_a_long_question(database: Path) -> None:
    """The header comes with the first rows, so that the question is known to be at work."""
    query = "SELECT a.range FROM range(1000000) a, range(1000000) b WHERE hash(a.range, b.range) > 0"
    with subprocess.Popen(
        command("--db", database, query), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "range\n"
        drain = threading.Thread(target=lambda: list(iter(lambda: process.stdout.read(1 << 16), "")))
        process.send_signal(signal.SIGINT)
        drain.start()
        errors = process.stderr.read()
        assert process.wait() == 130
        drain.join()
    assert "interrupted" in errors
    assert "Traceback" not in errors


@pytest.fixture
def crowded() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:", config={"memory_limit": "20MB", "max_temp_directory_size": "0MB"}) as it:
        yield it


def test_a_question_that_needs_too_much_room_is_told_so(crowded: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(QueryError, match="needs more memory or temporary space than it may have"):
        list(ask(crowded, "SELECT range, range::VARCHAR FROM range(3000000) ORDER BY range % 97").rows)


def test_help_names_the_exit_codes() -> None:
    assert "Exit codes: 0 answered" in run("--help").stdout
    assert os.linesep.join(["replay sql LOG --tables"]) in run("--help").stdout
