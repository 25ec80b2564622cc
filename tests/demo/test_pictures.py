"""What the demo draws of its log, in other processes, and what it says where it cannot."""

import json
from pathlib import Path

import pytest
import trio

from orbitkv.adapters.demo import manager
from orbitkv.adapters.demo.pictures import make_pictures
from tests.demo.processes import gone
from tests.demo.test_demo_run import SMALL, demo, environment, leftovers
from tests.log.simulated import simulated_records, write_log

pytest.importorskip("bokeh", reason="the report's library is not installed")
pytest.importorskip("duckdb", reason="the report's library is not installed")

pytestmark = pytest.mark.timeout(300)
"""Several processes load their libraries, which takes its time on a busy machine."""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder with a log, as a run leaves it."""
    folder = tmp_path / "run"
    folder.mkdir()
    write_log(folder / "log", simulated_records(3, 300), segment_records=10_000)
    return folder


def test_a_run_leaves_a_report_and_a_trace_and_says_where(tmp_path: Path) -> None:
    environ, out = environment(tmp_path / "t"), tmp_path / "out"
    arguments = [*SMALL[1:], "--engines", "1", "--ranks", "1"]
    assert SMALL[0] == "--no-pictures"
    with demo(out, environ, *arguments) as process:
        said, complained = process.communicate(timeout=280)
    assert process.returncode == 0, complained
    assert f"report: {out / 'report.html'}" in said.splitlines()
    assert f"trace for ui.perfetto.dev: {out / 'trace.json'}" in said.splitlines()
    assert "audit: ok" in (out / "report.html").read_text()
    assert json.loads((out / "trace.json").read_bytes())["traceEvents"]
    assert gone(environ) == []
    assert leftovers(out, tmp_path / "t") == []


@pytest.mark.parametrize("missing", ["bokeh", "duckdb"])
def test_without_its_libraries_it_says_what_to_install(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    hidden = tmp_path / "hidden" / missing
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text(f"raise ModuleNotFoundError('No {missing}', name='{missing}')\n")
    monkeypatch.setenv("PYTHONPATH", str(hidden.parent))
    pictures = trio.run(make_pictures, out)
    assert pictures.lines[0].startswith("no report: ")
    assert "which is not installed" in pictures.lines[0]
    assert "pip install 'orbitkv[replay]'" in pictures.lines[0]
    assert pictures.lines[1] == f"trace for ui.perfetto.dev: {out / 'trace.json'}"
    assert not (out / "report.html").exists()


def test_a_log_that_is_damaged_is_drawn_and_told(out: Path) -> None:
    file = max((out / "log").iterdir(), key=lambda each: each.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    pictures = trio.run(make_pictures, out)
    assert pictures.lines == [
        f"report: {out / 'report.html'}; it says what is wrong with the log",
        f"trace for ui.perfetto.dev: {out / 'trace.json'}; it says what is wrong with the log",
    ]


def test_a_log_that_is_gone_is_told(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    pictures = trio.run(make_pictures, tmp_path)
    assert [line.split(":")[0] for line in pictures.lines] == ["no report", "no trace for ui.perfetto.dev"]
    assert all("holds no log segment" in line for line in pictures.lines)


def test_an_interrupted_drawing_leaves_nothing(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is told as Ctrl-C would, so that it removes what it had not finished."""
    spills = tmp_path / "spills"
    spills.mkdir()
    monkeypatch.setenv("TMPDIR", str(spills))
    monkeypatch.setattr(manager, "JUDGE_GRACE_S", 100.0)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.replay, "report", out / "log", "-o", str(out / "report.html"))
            await something_in(spills)  # it has begun to load, and seconds of work lie before it
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert list(spills.iterdir()) == []
    assert [each.name for each in out.iterdir()] == ["log"]


async def something_in(folder: Path) -> None:
    with trio.fail_after(250):
        while True:
            if list(await trio.Path(folder).iterdir()):
                return
            await trio.sleep(0.01)
