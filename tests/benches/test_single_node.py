"""The single-node bench: sizes, refusals, and a small run with the embedded engine, whole files and all."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from benches.single_node.joined import lives
from benches.single_node.judging import compare
from benches.single_node.plan import Sample
from benches.single_node.sizes import AmountType

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 500
"""A guard against a hang: a run takes five seconds on a quiet machine."""
pytestmark = pytest.mark.timeout(TIMEOUT_S + 60)
SMALL = ["--engine", "toy", "--host-gib", "0.0625", "--lengths", "512", "--gpu-tokens", "0.3pool"]


def bench(output: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benches.single_node", *SMALL, "--output", str(output), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_sizes_are_numbers_or_fractions_of_the_pool() -> None:
    convert = AmountType().convert
    assert convert("0.5pool", None, None).bytes(1000, 1 << 30) == 500
    assert convert("2", None, None).bytes(1000, 1 << 30) == 2 << 30
    assert convert("1.69pool", None, None).units(1000, 100) == 17
    assert convert("12", None, None).units(1000, 100) == 12
    for wrong in ("-1", "pool", "0", "inf", "nan", "many"):
        with pytest.raises(click.BadParameter):
            convert(wrong, None, None)


def test_a_folder_that_exists_is_refused(tmp_path: Path) -> None:
    done = bench(tmp_path)
    assert done.returncode != 0
    assert "exists" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_working_set_that_fits_the_pool_is_refused(tmp_path: Path) -> None:
    done = bench(tmp_path / "out", "--workload", "sustained", "--working-set", "0.9pool")
    assert done.returncode != 0
    assert "fits the pool" in done.stderr
    assert not (tmp_path / "out" / "summary.json").exists()


def test_a_run_that_fails_has_no_summary(tmp_path: Path) -> None:
    """A model without weights: the serving process ends with an error, with an engine and without."""
    config = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 64}
    config["max_position_embeddings"] = 4096
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = bench(tmp_path / "out", "--engine", "vllm", "--backend", "none", "--model", str(tmp_path))
    assert done.returncode != 0
    assert "this run has no summary" in done.stderr
    assert not (tmp_path / "out" / "summary.json").exists()


def test_a_serial_run_goes_through_every_tier(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = bench(out, "--trace-transfers", "--working-set", "2")
    assert done.returncode == 0, done.stderr
    summary = json.loads((out / "summary.json").read_text())
    phases = summary["arms"][0]["phases"]
    pages = phases["cold"]["miss_pages"]
    assert pages == phases["cold"]["requests"] * 8
    assert phases["gpu hit"]["dram_pages"] == phases["gpu hit"]["ssd_pages"] == 0
    assert phases["after pressure"]["dram_pages"] == pages
    assert phases["after drop-dram"]["ssd_pages"] == pages
    assert summary["conditions"]["medium"]
    arm = out / summary["arms"][0]["name"]
    rows = table(arm / "samples.csv")
    assert {row["phase"] for row in rows} >= phases.keys()
    joined = {row["request"]: row for row in table(arm / "lives.csv")}
    restored = [joined[row["request"]] for row in rows if row["phase"] == "after drop-dram"]
    assert all(int(life["copied_bytes"]) > 0 and life["read_for"] == "demand" for life in restored)
    assert all(life["queue_to_first_use_ms"] for life in restored)
    assert "| after drop-dram |" in (out / "report.md").read_text()
    assert not (arm / "ssd").exists()


def test_a_sustained_window_counts_its_drain_and_balances(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = bench(
        out, "--workload", "sustained", "--concurrencies", "2", "--max-requests", "20", "--queue-warmup", "on"
    )
    assert done.returncode == 0, done.stderr
    (arm,) = json.loads((out / "summary.json").read_text())["arms"]
    window = arm["window"]
    assert window["requests"] == 20
    assert window["requests_per_s"] == pytest.approx(20 / window["elapsed_s"])
    known = window["pending_start_mib"] + window["prepared_mib"]
    gone = window["restored_mib"] + window["unused_mib"]
    assert known - gone == pytest.approx(window["pending_end_mib"])


def sample(prompt: int, at: int, output: tuple[int, ...]) -> Sample:
    return Sample(
        phase="window", request=f"window-{at}", prompt=prompt, length=1, reused=at > 0, submitted_ns=at,
        output=output,
    )  # fmt: skip


def test_an_output_is_compared_with_its_prompts_first() -> None:
    compared, found = compare([sample(1, 2, (1, 9)), sample(2, 1, (5,)), sample(1, 0, (1, 2))])
    assert compared == 1
    assert [(one.request, one.reference, one.output) for one in found] == [("window-2", (1, 2), (1, 9))]


def test_clocks_of_two_processes_are_never_subtracted() -> None:
    queued = {"stage": "queued", "request_id": "window-1-ab12", "pid": 1, "monotonic_ns": 1_000_000}
    used = {"stage": "first_use", "request_id": "window-1-ab12", "pid": 2, "monotonic_ns": 5_000_000}
    (life,) = lives([queued, used], ["window-1"])
    assert life.queue_to_first_use_ms is None
    (life,) = lives([queued, used | {"pid": 1}], ["window-1"])
    assert life.queue_to_first_use_ms == 4.0
