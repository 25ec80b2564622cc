"""The single-node bench on a real engine: every phase is what its name says, and outputs are compared."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.restart.managers import ROOT

PROMPT_PAGES = 512 // 32
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def hints() -> bool:
    """The bench sets the switch itself."""
    return False


def served(output: Path, model: Path, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benches.single_node", "--model", str(model), "--output", str(output)]
    command += ["--lengths", "512", "--gpu-tokens", "2048", "--host-gib", "0.0625", "--working-set", "2"]
    command += ["--connector-option", "held_blocks_fraction=0.9"]
    done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True)
    said = [path.read_text()[-2000:] for path in output.glob("*/engine.out")]
    assert done.returncode == 0, (done.stderr, said)
    arm: dict[str, Any] = json.loads((output / "summary.json").read_text())["arms"][0]
    return arm


def test_the_serial_workload_restores_from_both_tiers(tmp_path: Path, tiny_model: Path) -> None:
    arm = served(tmp_path / "out", tiny_model, "--trace-transfers")
    phases = arm["phases"]
    assert phases["cold"]["miss_pages"] == 2 * PROMPT_PAGES
    assert phases["after pressure"]["dram_pages"] == 2 * PROMPT_PAGES
    assert phases["after drop-dram"]["ssd_pages"] == 2 * PROMPT_PAGES
    assert arm["outputs"] == {"compared": 6, "different": []}
    assert [target["name"] for target in arm["targets"]] == [
        "TTFT from DRAM / (GPU hit + copy)",
        "TTFT from SSD / from DRAM",
        "TTFT cold / from DRAM",
        "TTFT cold / from SSD",
    ]


def test_native_offloading_is_a_baseline(tmp_path: Path, tiny_model: Path) -> None:
    arm = served(tmp_path / "out", tiny_model, "--backend", "native")
    assert arm["phases"]["after pressure"]["requests"] == 2
    assert arm["outputs"] == {"compared": 4, "different": []}
    samples = json.loads((tmp_path / "out" / arm["name"] / "samples.json").read_text())
    pressed = [one for one in samples if one["phase"] == "after pressure"]
    assert all(one["cached_tokens"] >= 512 - 32 for one in pressed), "restored, not computed"


def test_the_window_needs_a_working_set_and_keeps_its_books(tmp_path: Path, tiny_model: Path) -> None:
    out = tmp_path / "out"
    arm = served(
        out, tiny_model, "--workload", "sustained", "--concurrencies", "4", "--max-requests", "40",
        "--duration-seconds", "120", "--working-set", "1.69pool", "--queue-warmup", "on",
        "--host-gib", "0.03125",
    )  # fmt: skip
    window = arm["window"]
    assert window["requests"] > 0
    assert window["dram_pages"] + window["ssd_pages"] > 0
    assert arm["outputs"]["different"] == []
