"""The demo as a user runs it: real manager, real engines, real files, and nothing left afterwards."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.demo.processes import gone, marked, marked_environment

ROOT = Path(__file__).parents[2]
SMALL = ("--no-pictures", "--requests", "40", "--speed", "20", "--pool", "64MiB", "--ssd", "256MiB")
LONG = ("--no-pictures", "--requests", "500", "--speed", "1", "--pool", "64MiB", "--ssd", "256MiB")
SLOW = pytest.mark.slow
KEYS = {
    "requests",
    "completed",
    "ttft_ms",
    "asked_pages",
    "hit_pages",
    "missed_pages",
    "ssd_read_bytes",
    "ssd_write_bytes",
    "restored_bytes",
    "byte_mismatches",
    "io_engine",
    "log_records",
    "log_bytes",
    "verify",
    "wall_s",
    "prepared_bytes",
    "restored_warm_bytes",
    "unused_bytes",
    "pending_bytes",
    "hint_skips",
    "hints_admitted",
    "ssd_bytes_per_request",
    "exposed_wait_ms",
}


def environment(temporary: Path) -> dict[str, str]:
    """`temporary` has a short name: the path of the socket in it has 107 bytes at most."""
    temporary.mkdir()
    return marked_environment() | {"TMPDIR": str(temporary)}


@contextmanager
def demo(out: Path, environ: Mapping[str, str], *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """Ended by SIGKILL at the block's end if a test has failed before."""
    with subprocess.Popen(
        [sys.executable, "-m", "orbitkv", "demo", "--out", str(out), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environ,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def leftovers(out: Path, temporary: Path) -> list[Path]:
    """Files that should have gone with the run."""
    return [*temporary.iterdir(), *out.glob("ssd-*")]


def test_a_short_run_serves_everything_and_proves_it(tmp_path: Path) -> None:
    environ, out = environment(tmp_path / "t"), tmp_path / "out"
    with demo(out, environ, *SMALL, "--json") as process:
        said, complained = process.communicate(timeout=100)
    assert process.returncode == 0, complained
    summary = json.loads(said)
    assert summary == json.loads((out / "summary.json").read_text())
    assert set(summary) >= KEYS
    assert summary["completed"] == summary["requests"] == 40
    assert (summary["byte_mismatches"], summary["verify"], summary["trouble"]) == (0, "ok", [])
    hits = summary["hit_pages"]
    assert hits["dram"] + hits["ssd"] + summary["missed_pages"] == summary["asked_pages"]
    assert summary["workload"]["warmup"] is True, "the demo shows it"
    assert summary["engine"]["hints_sent"] > 0
    outcomes = ("restored_warm_bytes", "unused_bytes", "pending_bytes")
    assert summary["prepared_bytes"] == sum(summary[name] for name in outcomes)
    assert summary["ttft_ms"]["modelled"] is True
    assert summary["manager"]["save_drops"].get("disconnected", 0) == 0, "an orderly end loses no save"
    assert complained == ""
    assert list((out / "log").glob("*.orbitlog"))
    assert gone(environ) == []
    assert leftovers(out, tmp_path / "t") == []


@SLOW
def test_people_are_shown_the_factor_and_a_table(tmp_path: Path) -> None:
    environ = environment(tmp_path / "t")
    with demo(tmp_path / "out", environ, *SMALL, "--engines", "1", "--ranks", "1") as process:
        said, complained = process.communicate(timeout=100)
    assert process.returncode == 0, complained
    assert "scale 1/576" in complained
    assert "modelled" in complained
    assert "TTFT p50, p95 (modelled)" in said
    assert "log verified" in said


@SLOW
def test_the_published_trace_hits_in_dram_and_on_the_ssd(tmp_path: Path, mooncake_trace: Path) -> None:
    with demo(
        tmp_path / "out",
        environment(tmp_path / "t"),
        *("--trace", str(mooncake_trace), "--requests", "500", "--json"),
    ) as process:
        said, complained = process.communicate(timeout=110)
    assert process.returncode == 0, complained
    summary = json.loads(said)
    assert (summary["completed"], summary["byte_mismatches"], summary["verify"]) == (500, 0, "ok")
    assert summary["hit_pages"]["dram"] > 50
    assert summary["hit_pages"]["ssd"] > 500
    assert summary["restored_bytes"] > 100 << 20


@SLOW
def test_what_the_manager_refuses_is_told_with_its_words(tmp_path: Path) -> None:
    environ, out = environment(tmp_path / "t"), tmp_path / "out"
    with demo(out, environ, "--pool", "1MiB", "--json") as process:
        said, complained = process.communicate(timeout=60)
    assert (process.returncode, said) == (2, "")
    assert "The manager did not end as it should (status 2)" in complained
    assert "pool_bytes" in complained
    assert "Traceback" not in complained
    assert gone(environ) == []
    assert leftovers(out, tmp_path / "t") == []


# --- the way out --------------------------------------------------------------------------------------


MOMENTS = [
    (signal.SIGINT, 1.3),
    (signal.SIGTERM, 2.5),
    *(
        pytest.param(number, seconds, marks=SLOW)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for seconds in (0.2, 0.4, 0.6, 0.8, 1.0, 1.6, 2.0, 4.0)
    ),
]


@pytest.mark.parametrize(("number", "seconds"), MOMENTS)
def test_an_interrupt_at_any_moment_leaves_nothing(
    tmp_path: Path, number: signal.Signals, seconds: float
) -> None:
    environ, out = environment(tmp_path / "t"), tmp_path / "out"
    with demo(out, environ, *LONG) as process:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        process.send_signal(number)
        _, complained = process.communicate(timeout=60)
    assert gone(environ) == []
    assert leftovers(out, tmp_path / "t") == []
    assert "Traceback" not in complained or process.returncode == -number, complained
    assert process.returncode in {128 + number, -number, 1}, complained


@SLOW
def test_a_second_interrupt_does_not_cut_the_orderly_end_short(tmp_path: Path) -> None:
    environ, out = environment(tmp_path / "t"), tmp_path / "out"
    with demo(out, environ, *LONG) as process:
        _until_serving(out, environ)
        for _ in range(5):
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)  # signals of one kind that are pending together are one signal
        _, complained = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, complained
    assert gone(environ) == []
    assert leftovers(out, tmp_path / "t") == []


@SLOW
def test_the_log_of_an_interrupted_run_verifies(tmp_path: Path) -> None:
    environ, out = environment(tmp_path / "t"), tmp_path / "out"
    with demo(out, environ, *LONG) as process:
        _until_serving(out, environ)
        process.terminate()
        process.communicate(timeout=60)
    verified = subprocess.run(
        [sys.executable, "-m", "replay", "verify", str(out / "log")],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert verified.returncode == 0, verified.stdout


@SLOW
def test_a_killed_demo_takes_its_processes_with_it(tmp_path: Path) -> None:
    """Nobody can remove files after SIGKILL; processes and shared memory go all the same."""
    environ, out = environment(tmp_path / "t"), tmp_path / "out"
    with demo(out, environ, *LONG) as process:
        _until_serving(out, environ)
        process.kill()
        process.communicate(timeout=60)
    assert gone(environ, within_s=40) == []


@pytest.mark.parametrize(
    ("victim", "word"),
    [
        ("rank_process", "A rank of the engine failed"),
        pytest.param("serve", "The manager did not end", marks=SLOW),
    ],
)
def test_a_part_that_dies_ends_the_run_with_its_name(tmp_path: Path, victim: str, word: str) -> None:
    environ, out = environment(tmp_path / "t"), tmp_path / "out"
    with demo(out, environ, *LONG) as process:
        parts = _until_serving(out, environ)
        next(part for part in parts if victim in " ".join(part.cmdline())).kill()
        _, complained = process.communicate(timeout=60)
    assert process.returncode == 2
    assert word in complained
    assert "Traceback" not in complained
    assert gone(environ) == []
    assert leftovers(out, tmp_path / "t") == []


def _until_serving(out: Path, environ: Mapping[str, str]) -> list[psutil.Process]:
    """Waits until the log tells of saves; returns the run's processes."""
    deadline = time.monotonic() + 60
    while sum(file.stat().st_size for file in out.glob("log/*.orbitlog")) < 20_000:
        assert time.monotonic() < deadline, "after a minute the log is still empty"
        time.sleep(0.02)
    return marked(environ)
