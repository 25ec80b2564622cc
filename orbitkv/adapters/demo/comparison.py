"""With and without warm-up, side by side: the same requests and capacities, fresh processes every time.

The two take turns, in an order that turns round from pair to pair, so that neither always runs on the
warmer machine; each figure is compared within its pair. What comes out is written as it is: a table that
shows no gain is a result.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

from orbitkv.adapters.demo.arm import run_arm
from orbitkv.adapters.demo.compared import ComparedFigure, Comparison, Spread
from orbitkv.adapters.demo.plan import DemoPlan
from orbitkv.adapters.demo.show import Screen
from orbitkv.adapters.demo.summary import Summary
from orbitkv.adapters.medium import medium

MIB = 1 << 20
OFF, ON = "off", "on"

FIGURES: Mapping[str, Callable[[Summary], float]] = {
    "requests_per_s": lambda one: one.requests_per_s,
    "ttft_p50_ms": lambda one: one.ttft_ms.p50,
    "ttft_p95_ms": lambda one: one.ttft_ms.p95,
    "exposed_wait_p50_ms": lambda one: one.exposed_wait_ms.p50,
    "exposed_wait_p95_ms": lambda one: one.exposed_wait_ms.p95,
    "ssd_mib_per_request": lambda one: one.ssd_bytes_per_request / MIB,
    "prepared_mib": lambda one: one.prepared_bytes / MIB,
    "restored_warm_mib": lambda one: one.restored_warm_bytes / MIB,
    "unused_mib": lambda one: one.unused_bytes / MIB,
    "pending_mib": lambda one: one.pending_bytes / MIB,
    "hints_admitted": lambda one: one.hints_admitted,
}


async def compare(plan: DemoPlan, screen: Screen) -> Comparison:
    """Run the pairs; leaves a folder for every run, and compare.json. Raises AdapterError."""
    runs: dict[str, list[Summary]] = {OFF: [], ON: []}
    for pair in range(plan.options.pairs):
        for arm in order_of(pair):
            out = run_folder(plan.options.out, pair + 1, arm)
            name = f"pair {pair + 1} of {plan.options.pairs}, warm-up {arm}"
            summary = await run_arm(plan.arm(warmup=arm == ON, out=out), screen, name)
            screen.say(f"{name}: {summary.requests_per_s:.1f} requests/s, p95 {summary.ttft_ms.p95:.1f} ms")
            runs[arm].append(summary)
    comparison = compared(runs, medium(plan.options.out))
    _write(comparison, plan.options.out / "compare.json")
    return comparison


def run_folder(out: Path, pair: int, arm: str) -> Path:
    """`pair` counts from 1."""
    return out / f"pair-{pair}-{arm}"


def _write(comparison: Comparison, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(comparison)) + b"\n")


def order_of(pair: int) -> tuple[str, str]:
    return (OFF, ON) if pair % 2 == 0 else (ON, OFF)


def compared(runs: Mapping[str, Sequence[Summary]], medium_words: str) -> Comparison:
    """`runs`: as many summaries of either arm, by pair."""
    any_run = runs[OFF][0]
    return Comparison(
        pairs=len(runs[OFF]),
        order=[order_of(pair) for pair in range(len(runs[OFF]))],
        requests=any_run.requests,
        medium=medium_words,
        io_engine=any_run.io_engine,
        io_direct=any_run.io_direct,
        figures={name: _compared(runs, read) for name, read in FIGURES.items()},
        skips={arm: _skips(runs[arm]) for arm in runs},
        runs={arm: list(runs[arm]) for arm in runs},
        trouble=[
            f"pair {pair + 1}, warm-up {arm}: {words}"
            for arm in runs
            for pair, summary in enumerate(runs[arm])
            for words in summary.trouble
        ],
    )


def _compared(runs: Mapping[str, Sequence[Summary]], read: Callable[[Summary], float]) -> ComparedFigure:
    off, on = [read(run) for run in runs[OFF]], [read(run) for run in runs[ON]]
    ratios = [mine / theirs for mine, theirs in zip(on, off, strict=True) if theirs]
    return ComparedFigure(_spread(off), _spread(on), _spread(ratios) if ratios else None)


def _spread(values: Sequence[float]) -> Spread:
    return Spread(round(median(values), 3), round(min(values), 3), round(max(values), 3))


def _skips(summaries: Sequence[Summary]) -> dict[str, float]:
    """Per run, by reason."""
    reasons = sorted({reason for one in summaries for reason in one.hint_skips})
    return {reason: median(one.hint_skips.get(reason, 0) for one in summaries) for reason in reasons}
