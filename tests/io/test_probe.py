"""What the host refuses is found out at start, said in words, and worked around or named as an error."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orbitkv.io.errors import StoreError
from orbitkv.io.probe import choose_io, why_no_direct, why_no_io_uring

ROOT = Path(__file__).parents[2]


def on_refusing_host(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.io.refusing_host", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def in_force(*arguments: object) -> dict[str, object]:
    ran = on_refusing_host(*arguments)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, object] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize(
    ("number", "words"),
    [("EPERM", "EPERM, a container profile or the sysctl"), ("ENOSYS", "ENOSYS, this kernel or sandbox has")],
)
def test_without_io_uring_threads_take_over_and_the_reason_is_said(
    tmp_path: Path, number: str, words: str
) -> None:
    found = in_force(number, "-", tmp_path, "auto", "auto")
    assert found["engine"] == "threads"
    assert words in str(found["reason"])


def test_without_o_direct_the_page_cache_takes_over_and_the_reason_is_said(tmp_path: Path) -> None:
    found = in_force("-", "direct", tmp_path, "auto", "auto")
    assert found["direct"] is False
    assert "O_DIRECT was refused: Invalid argument" in str(found["reason"])


def test_without_either_it_still_works(tmp_path: Path) -> None:
    found = in_force("EPERM", "direct", tmp_path, "auto", "auto")
    assert (found["engine"], found["direct"]) == ("threads", False)


def test_forcing_io_uring_on_a_host_that_refuses_it_is_an_error(tmp_path: Path) -> None:
    ran = on_refusing_host("EPERM", "-", tmp_path, "io_uring", "auto")
    assert ran.returncode == 3
    assert ran.stdout.startswith('io_engine = "io_uring" but this host refuses it: EPERM')
    assert 'set io_engine = "auto" or "threads"' in ran.stdout
    assert "Traceback" not in ran.stderr


def test_forcing_o_direct_on_a_host_that_refuses_it_is_an_error(tmp_path: Path) -> None:
    ran = on_refusing_host("-", "direct", tmp_path, "auto", "on")
    assert ran.returncode == 3
    assert "refuses O_DIRECT" in ran.stdout
    assert 'or io_direct = "auto" or "off"' in ran.stdout


def test_a_missing_liburing_is_a_refusal_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "orbitkv.io.ring", raising=False)
    monkeypatch.setitem(sys.modules, "liburing", None)
    assert "liburing package cannot be loaded" in why_no_io_uring()
    assert choose_io(tmp_path, "auto", "off").engine == "threads"


def test_forced_settings_are_named_as_the_reason(tmp_path: Path) -> None:
    chosen = choose_io(tmp_path, "threads", "off")
    assert (chosen.engine, chosen.direct) == ("threads", False)
    assert chosen.reason == (
        'threads because io_engine = "threads"; through the page cache because io_direct = "off"'
    )


@pytest.mark.parametrize(("engine", "direct"), [("uring", "auto"), ("auto", "yes")])
def test_an_unknown_setting_names_the_ones_there_are(tmp_path: Path, engine: str, direct: str) -> None:
    with pytest.raises(StoreError, match='is not known: set it to one of "auto"'):
        choose_io(tmp_path, engine, direct)


def test_probing_leaves_nothing_behind(tmp_path: Path) -> None:
    why_no_direct(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_probing_a_directory_that_is_gone_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="set ssd_path to a directory"):
        why_no_direct(tmp_path / "gone")
