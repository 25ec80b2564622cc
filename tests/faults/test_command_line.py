"""Odd input on the command line and in files: three parts of a message and exit code 2, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.restart.managers import ROOT, Place, save

MISTAKE = 2
ENDLESS = "1" * 5000
"""More digits than Python reads or writes."""


def orbitkv(*arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ORBITKV_")}
    return subprocess.run(
        [sys.executable, "-m", "orbitkv", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def mistake(*arguments: str) -> str:
    done = orbitkv(*arguments)
    assert done.returncode == MISTAKE, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("a = " + "[" * 100_000, "recursion"),
        (f"sessions_max = {ENDLESS}", "digits"),
        (f"sessions_max = 0x{ENDLESS}", "between 1 and 65536"),
        (f"sweep_interval = 0x{ENDLESS}", "finite"),
        (f"query_budget_fraction = 0x{ENDLESS}", "not a number"),
        (f'log_path = {{"{"x" * 9000}" = 1}}', "not text"),
    ],
)
def test_a_file_that_is_one_long_mistake(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "orbitkv.toml"
    file.write_text(content)
    said = mistake("serve", "--print-config", f"--config={file}")
    assert why in said
    assert "Remedy:" in said
    assert len(said) < 2000, "a message is read by people"


def test_a_file_without_end() -> None:
    said = mistake("serve", "--print-config", "--config=/dev/zero")
    assert "longer than" in said
    assert "Remedy:" in said


@pytest.mark.parametrize(
    "setting",
    ["sessions-max", "pool-bytes", "sweep-interval", "query-budget-fraction", "http-listen=127.0.0.1:"],
)
def test_numbers_without_end(setting: str) -> None:
    option = f"--{setting}{ENDLESS}" if "=" in setting else f"--{setting}={ENDLESS}"
    said = mistake("serve", "--print-config", option)
    assert "Why:" in said
    assert "Remedy:" in said


@pytest.mark.parametrize("path", ["/dev/null", "/etc/passwd", "", "/proc/self/mem"])
def test_what_is_no_log_is_said_to_be_none(path: str) -> None:
    said = mistake("replay", "fold", path)
    assert "log" in said


def test_what_is_no_socket_is_said_to_be_none() -> None:
    assert "that is no socket" in mistake("admin", "--socket-path", "/etc/passwd", "status")


def test_a_speed_that_is_no_number() -> None:
    said = mistake("demo", "--speed", "nan")
    assert "--speed cannot be nan" in said


def test_relative_paths_are_those_of_where_it_was_started(tmp_path: Path) -> None:
    place = Place(tmp_path, {"socket-path": "orbitkv.sock", "log-path": "log", "ssd-path": "ssd"})
    process = subprocess.Popen(
        place.command(),
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert all(process.stdout.readline() for _ in range(2))
        with place.client() as client:
            assert save(client, range(3)) == 3
        process.terminate()
        assert process.communicate(timeout=20)[1] == ""
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
    assert place.leftovers() == set()
    place.verify()


@pytest.mark.parametrize("closed", [(0,), (1,), (1, 2), (0, 1, 2)])
def test_started_without_a_terminal_it_writes_nothing_into_its_own_files(
    tmp_path: Path, closed: tuple[int, ...]
) -> None:
    """Its first files would else get the numbers of its missing outputs."""
    place = Place(tmp_path)
    shell = " ".join(f"{descriptor}>&-" if descriptor else "<&-" for descriptor in closed)
    process = subprocess.Popen(
        ["/bin/sh", "-c", f'exec "$@" {shell}', "sh", *place.command()],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with place.client() as client:  # waits for it
            save(client, range(3))
            for descriptor in closed:
                assert os.readlink(f"/proc/{process.pid}/fd/{descriptor}") == "/dev/null"
        process.terminate()
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()
    assert place.leftovers() == set()
    place.verify()
