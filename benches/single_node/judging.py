"""What came of an arm: latencies by phase, the window's books from the log, and outputs that differ."""

import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from benches.common import give_up
from benches.pressure_window import WrongWindow, figures_of, watch
from benches.single_node.plan import Arm, Result, Sample
from benches.single_node.workloads import COLD, EMPTIED, GPU_HIT, MEASURED, PRESSED, SEEDING
from orbitkv.adapters.trace_statistics import quantiles

Figures: TypeAlias = dict[str, float]
MIB: Final = 1 << 20


@attrs.frozen
class Difference:
    """A request whose output is not what its prompt gave when it was served first."""

    request: str
    phase: str
    prompt: int
    reference: tuple[int, ...]
    output: tuple[int, ...]


@attrs.define
class Judged:
    arm: Arm
    phases: dict[str, Figures]
    window: Figures | None
    differences: Sequence[Difference]
    compared: int
    """Outputs that had a reference."""
    conditions: Mapping[str, str]

    def differences_plain(self) -> list[dict[str, Any]]:
        return [attrs.asdict(difference) for difference in self.differences]


def judge(arm: Arm, result: Result, log: Path | None) -> Judged:
    if result.byte_mismatches:
        give_up(f"{result.byte_mismatches} restored bytes were wrong", "The run is void", "Report it")
    conditions = dict(result.engine_words)
    if log is not None:
        _verify(log)
    phases = {phase: _phase(samples) for phase, samples in _by_phase(result.samples).items()}
    window = None
    if result.window is not None:
        served = [sample for sample in result.samples if sample.phase == MEASURED]
        elapsed_s = (result.window.end_ns - result.window.start_ns) / 1e9
        window = {"requests": len(served), "elapsed_s": elapsed_s, "requests_per_s": len(served) / elapsed_s}
        window |= _latencies(served)
        if log is not None:
            books, io_engine = _books(log, result, len(served))
            window |= books
            conditions["I/O engine"] = io_engine
    compared, differences = compare(result.samples)
    return Judged(arm, phases, window, differences, compared, conditions)


def compare(samples: Sequence[Sample]) -> tuple[int, list[Difference]]:
    """Every output with its prompt's first one."""
    reference: dict[int, tuple[int, ...]] = {}
    compared = 0
    found = []
    for sample in sorted(samples, key=lambda sample: sample.submitted_ns):
        if not sample.output:
            continue
        if sample.prompt not in reference:
            reference[sample.prompt] = sample.output
            continue
        compared += 1
        if sample.output != reference[sample.prompt]:
            found.append(
                Difference(
                    sample.request, sample.phase, sample.prompt, reference[sample.prompt], sample.output
                )
            )
    return compared, found


def targets(judged: Judged) -> list[tuple[str, float, float, bool]]:
    """Of a serial arm with OrbitKV: (name, measured, bound, whether at least the bound is asked for)."""
    phases = judged.phases
    if judged.arm.backend != "orbitkv" or PRESSED not in phases or EMPTIED not in phases:
        return []
    cold, hit = phases[COLD]["ttft_p50_ms"], phases[GPU_HIT]["ttft_p50_ms"]
    dram, ssd = phases[PRESSED]["ttft_p50_ms"], phases[EMPTIED]["ttft_p50_ms"]
    copy = phases[PRESSED]["copy_p50_ms"]
    return [
        ("TTFT from DRAM / (GPU hit + copy)", dram / (hit + copy), 1.5, False),
        ("TTFT from SSD / from DRAM", ssd / dram, 2.0, False),
        ("TTFT cold / from DRAM", cold / dram, 10.0, True),
        ("TTFT cold / from SSD", cold / ssd, 10.0, True),
    ]


def _by_phase(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.phase in (COLD, GPU_HIT, PRESSED, EMPTIED, SEEDING, MEASURED):
            found[sample.phase].append(sample)
    return found


def _phase(samples: Sequence[Sample]) -> Figures:
    figures: Figures = {"requests": len(samples), **_latencies(samples)}
    accounted = [sample for sample in samples if sample.tiers is not None]
    if accounted:
        for tier in ("dram", "ssd", "miss"):
            figures[f"{tier}_pages"] = sum((sample.tiers or {})[tier] for sample in accounted)
        figures["copied_mib"] = sum(sample.copied_bytes for sample in accounted) / MIB
        figures["copy_p50_ms"] = quantiles([sample.copy_us for sample in accounted], (0.5,))[0] / 1000
    return figures


def _latencies(samples: Sequence[Sample]) -> Figures:
    times_us = [round(sample.ttft_ms * 1000) for sample in samples]
    if not times_us:
        return {"ttft_p50_ms": float("nan"), "ttft_p95_ms": float("nan")}
    p50, p95 = quantiles(times_us, (0.50, 0.95))
    return {"ttft_p50_ms": p50 / 1000, "ttft_p95_ms": p95 / 1000, "ttft_min_ms": min(times_us) / 1000}


def _books(log: Path, result: Result, served: int) -> tuple[Figures, str]:
    assert result.window is not None
    try:
        seen = watch(log, result.window.start_ns, result.window.end_ns)
    except WrongWindow as wrong:
        give_up(f"The log does not add up: {wrong}", "That is a fault of OrbitKV", "Keep it and report it")
    assert seen.store is not None
    direct = "O_DIRECT" if seen.store.io_direct else "buffered"
    return figures_of(seen, served), f"{seen.store.io_engine}, {direct}"


def _verify(log: Path) -> None:
    """By another process that sees only the files."""
    done = subprocess.run(
        [sys.executable, "-m", "replay", "verify", str(log)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        said: Any = (done.stdout + done.stderr).strip()
        give_up("The log does not verify", said, "Keep it and report it")
