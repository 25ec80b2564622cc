"""The command line as a user meets it: real processes, their exit codes, and what they print."""

import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import attrs
import pytest

from orbitkv import __main__ as command_line
from orbitkv import __version__
from orbitkv.config import Config

ROOT = Path(__file__).parents[2]


def orbitkv(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ORBITKV_")}
    return subprocess.run(
        [sys.executable, "-m", "orbitkv", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env=inherited | environment,
    )


def mistake(done: subprocess.CompletedProcess[str]) -> str:
    """What was told about a user's mistake."""
    assert done.returncode == command_line.MISTAKE, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


def test_version_loads_nothing_of_ours() -> None:
    program = "import sys; from orbitkv.__main__ import cli; cli(['--version'], standalone_mode=False); "
    program += "print(*sorted(name for name in sys.modules if name.startswith(('orbitkv', 'trio', 'numpy'))))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    version, modules = done.stdout.splitlines()
    assert version == f"orbitkv {__version__}"
    assert modules == "orbitkv orbitkv.__main__"


def test_help_names_the_commands() -> None:
    done = orbitkv("--help")
    assert done.returncode == 0
    for command in ("admin", "demo", "replay", "serve"):
        assert f"\n  {command} " in done.stdout


def test_every_setting_is_a_flag() -> None:
    text = orbitkv("serve", "--help").stdout
    for attribute in attrs.fields(Config):
        assert f"--{attribute.name.replace('_', '-')}" in text


def test_print_config_is_toml_with_origins() -> None:
    done = orbitkv("serve", "--pool-bytes", "256MiB", "--print-config", ORBITKV_SESSIONS_MAX="9")
    assert done.returncode == 0
    assert '\npool_bytes = "256MiB"  # flag --pool-bytes\n' in done.stdout
    assert "\nsessions_max = 9  # environment ORBITKV_SESSIONS_MAX\n" in done.stdout
    assert set(tomllib.loads(done.stdout)) == {attribute.name for attribute in attrs.fields(Config)}


@pytest.mark.parametrize(
    ("arguments", "environment", "told"),
    [
        (["serve", "--pool-bytes", "8MiB"], {}, "set pool_bytes to at least 16MiB"),
        (["serve", "--pool-byte", "8MiB"], {}, "--pool-bytes"),
        (["serve"], {"ORBITKV_POOL_BYTE": "1"}, "did you mean ORBITKV_POOL_BYTES?"),
        (["serve", "--config", "/nonexistent.toml"], {}, "cannot be read"),
        (["serve"], {"ORBITKV_CONFIG": "/nonexistent.toml"}, "cannot be read"),
        (["sevre"], {}, "No such command"),
        (["admin", "--socket-path", "/nonexistent.sock", "status"], {}, "/nonexistent.sock"),
        (["admin", "release-process", "seven"], {}, "seven"),
    ],
)
def test_mistakes_are_told_without_a_traceback(
    arguments: list[str], environment: dict[str, str], told: str
) -> None:
    assert told in mistake(orbitkv(*arguments, **environment))


def test_release_asks_first() -> None:
    done = orbitkv("admin", "--socket-path", "/nonexistent.sock", "release-process", "7")
    assert "gone for certain" in done.stdout + done.stderr
    assert done.returncode == 1


def test_replay_is_another_process_and_its_exit_code_is_ours() -> None:
    assert orbitkv("replay", "--help").returncode == 0
    done = orbitkv("replay", "verify", "/nonexistent")
    assert done.returncode not in (0, 1)
    assert "/nonexistent" in done.stderr
    assert "Traceback" not in done.stderr


def test_mendable_names_are_exceptions() -> None:
    for name in command_line.MENDABLE:
        module, _, kind = name.rpartition(".")
        assert issubclass(getattr(importlib.import_module(module), kind), Exception)


def test_mistakes_of_side_by_side_tasks_are_told_and_faults_are_not() -> None:
    from orbitkv.io.errors import StoreError
    from orbitkv.io.listener import ListenError

    mistakes = BaseExceptionGroup(
        "", [StoreError("a"), ExceptionGroup("", [ListenError("b"), StoreError("a")])]
    )
    assert list(command_line._messages(mistakes)) == ["a", "b"]
    with_a_fault = BaseExceptionGroup("", [StoreError("a"), ValueError("b")])
    assert list(command_line._messages(with_a_fault)) == []
