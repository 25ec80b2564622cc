"""Hints from a real engine to a real manager: what was prepared is restored, and who ends is taken back."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from orbitkv.adapters.embedded.engine import running_engine
from orbitkv.adapters.embedded.messages import Arrive, Finished
from orbitkv.events.geometry import image_bytes
from tests.demo.real_manager import PAGE_TOKENS, RANKS, SLICE_BYTES, RealManager, real_manager

ROOT = Path(__file__).parents[2]
BLOCKS = (1, 2, 3, 4, 5, 6)
FOOTPRINT = RANKS * SLICE_BYTES


def totals(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "replay", "fold", str(folder / "log"), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)["incarnations"][0]["totals"]
    return document


def cohort(folder: Path) -> tuple[int, int, int]:
    """(prepared, restored, unused for any reason) in pages."""
    found = totals(folder)
    unused = sum(found["unused_bytes"].values())
    return found["prepared_bytes"] // FOOTPRINT, found["restored_bytes"] // FOOTPRINT, unused // FOOTPRINT


async def all_on_ssd(manager: RealManager) -> None:
    await manager.serve("cold", BLOCKS)
    await manager.only_on_ssd(len(BLOCKS))


@pytest.mark.parametrize(("switch", "hints"), [("1", 1), ("0", 0)])
def test_what_a_hint_prepared_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switch: str, hints: int
) -> None:
    monkeypatch.setenv("ORBITKV_QUEUE_WARMUP", switch)

    async def main() -> None:
        async with real_manager(tmp_path) as manager:
            await all_on_ssd(manager)
            report = await manager.serve("hinting", BLOCKS, queue_warmup=None)
        assert (report.hints_sent, report.restored_pages, report.byte_mismatches) == (hints, 6, 0)

    trio.run(main)
    found = totals(tmp_path)
    assert found["read_bytes"] == 6 * image_bytes(FOOTPRINT), "read once, whoever asked first"
    prepared, restored, unused = cohort(tmp_path)
    assert prepared == restored + unused
    assert unused == 0
    assert (prepared > 0) == bool(hints)


def test_a_hint_of_an_aborted_request_is_withdrawn_and_what_it_prepared_stays_pending(
    tmp_path: Path,
) -> None:
    """The running request would go on for longer than the test: the hinted one ends in the queue."""

    async def main() -> None:
        async with real_manager(tmp_path, scale=1.0) as manager:
            await all_on_ssd(manager)
            config = manager.engine_config("hinting", queue_warmup=True)
            config = msgspec.structs.replace(config, running_max=1)
            with (tmp_path / "engines.out").open("ab") as output:
                async with running_engine(config, output) as engine:
                    await engine.ready()
                    await engine.submit(Arrive("running", PAGE_TOKENS + 1, 5000, (11, 999)))
                    await engine.submit(Arrive("unwanted", 6 * PAGE_TOKENS + 1, 4, (*BLOCKS, 999)))
                    await prepared(manager)
                    await engine.abort("unwanted")
                    await engine.abort("running")
                    await engine.drain()
                    while not isinstance(message := await engine.receive(), Finished):
                        pass
        report = message.report
        assert (report.completed, report.aborted, report.hints_withdrawn) == (0, 2, 1)

    trio.run(main)
    found = totals(tmp_path)
    assert found["unused_bytes"] == {"restart": 6 * FOOTPRINT}, "pending until the manager was stopped"
    assert found["hints_admitted"] == 1


async def prepared(manager: RealManager) -> None:
    """Waits until all six pages have been; another process announces nothing."""
    with trio.fail_after(30):
        while f" pending={6 * FOOTPRINT} " not in manager.status()["state"]:  # noqa: ASYNC110 - nothing to await
            await trio.sleep(0.01)


def test_the_engine_writes_its_timeline_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBITKV_TRACE_TRANSFERS", "1")

    async def main() -> None:
        async with real_manager(tmp_path) as manager:
            await all_on_ssd(manager)
            await manager.serve("hinting", BLOCKS, queue_warmup=True)

    trio.run(main)
    text = (tmp_path / "engines.out").read_text()
    lines = [json.loads(line) for line in text.splitlines() if "cache_timeline" in line]
    life = [line for line in lines if line["request_id"] == "hinting-0"]
    assert {line["event"] for line in life} == {"cache_timeline"}
    stages = [line["stage"] for line in life]
    assert stages[0] == "queued"
    assert stages.count("restore_submit") == stages.count("gpu_ready") == RANKS
    assert stages[-1] == "first_use"
    assert "hash" not in text
