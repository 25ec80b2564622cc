"""The files of a run: raw samples and joined lives of each arm, one summary, one Markdown table.

A run that failed leaves its raw files and no summary.
"""

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec

from benches.common import load, machine
from benches.single_node.joined import Life
from benches.single_node.judging import Judged, targets
from benches.single_node.plan import Sample

PHASE_COLUMNS: Final = (
    ("n", "requests", 0),
    ("TTFT p50 ms", "ttft_p50_ms", 1),
    ("p95 ms", "ttft_p95_ms", 1),
    ("DRAM pages", "dram_pages", 0),
    ("SSD pages", "ssd_pages", 0),
    ("missed", "miss_pages", 0),
    ("copied MiB", "copied_mib", 1),
    ("read p50 ms", "read_p50_ms", 1),
    ("copy p50 ms", "copy_p50_ms", 1),
    ("queue to first use p50 ms", "queue_to_first_use_p50_ms", 1),
)
WINDOW_COLUMNS: Final = (
    ("n", "requests", 0),
    ("req/s", "requests_per_s", 3),
    ("TTFT p50 ms", "ttft_p50_ms", 0),
    ("p95 ms", "ttft_p95_ms", 0),
    ("SSD MiB/req", "ssd_mib_per_request", 1),
    ("amplification", "amplification", 2),
    ("prepared MiB", "prepared_mib", 1),
    ("restored", "restored_mib", 1),
    ("unused", "unused_mib", 1),
    ("pending at start", "pending_start_mib", 1),
    ("at end", "pending_end_mib", 1),
    ("queue to first use p50 ms", "queue_to_first_use_p50_ms", 0),
    ("copy p50 ms", "copy_p50_ms", 1),
    ("ready to unused s", "residency_unused_s", 2),
)


def write_samples(folder: Path, samples: Sequence[Sample], found: Sequence[Life]) -> None:
    (folder / "samples.json").write_bytes(msgspec.json.format(msgspec.json.encode(samples)))
    rows = [{**msgspec.to_builtins(sample), "ttft_ms": round(sample.ttft_ms, 3)} for sample in samples]
    for row in rows:
        row["output"] = " ".join(map(str, row["output"]))
        row |= {f"{tier}_pages": pages for tier, pages in (row.pop("tiers") or {}).items()}
    _write_csv(folder / "samples.csv", rows)
    if found:
        _write_csv(folder / "lives.csv", [attrs.asdict(life) for life in found])


def write_summary(output: Path, judged: Sequence[Judged], conditions: Mapping[str, object]) -> str:
    """Returns the Markdown, which is also in a file."""
    document = {
        "conditions": {name: str(value) for name, value in conditions.items()},
        "arms": [_plain(one) for one in judged],
    }
    (output / "summary.json").write_text(json.dumps(document, indent=1) + "\n")
    rows = []
    for one in judged:
        for phase, figures in one.phases.items():
            rows.append({"arm": one.arm.name, "part": phase, **figures})
        if one.window is not None:
            rows.append({"arm": one.arm.name, "part": "whole window", **one.window})
    _write_csv(output / "summary.csv", rows)
    text = _markdown(judged, conditions)
    (output / "report.md").write_text(text)
    return text


def conditions_of(medium: str) -> dict[str, object]:
    return {**machine(), "load": load(), "medium": medium}


def _plain(one: Judged) -> dict[str, Any]:
    return {
        "name": one.arm.name,
        "arm": msgspec.to_builtins(one.arm),
        "conditions": dict(one.conditions),
        "phases": {phase: _finite(figures) for phase, figures in one.phases.items()},
        "window": None if one.window is None else _finite(one.window),
        "outputs": {
            "compared": one.compared,
            "different": [attrs.asdict(difference) for difference in one.differences],
        },
        "targets": [
            {"name": name, "measured": measured, "bound": bound, "met": met(measured, bound, at_least)}
            for name, measured, bound, at_least in targets(one)
        ],
    }


def met(measured: float, bound: float, at_least: bool) -> bool:
    return measured >= bound if at_least else measured <= bound


def _finite(figures: Mapping[str, float]) -> dict[str, float | None]:
    """For JSON, which has no word for what is not a number."""
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def _markdown(judged: Sequence[Judged], conditions: Mapping[str, object]) -> str:
    lines = ["# One engine on one machine", ""]
    lines += [f"- {name}: {value}" for name, value in conditions.items()]
    for one in judged:
        lines += ["", f"## {one.arm.name}", "", _sentence(one), ""]
        lines += _table("phase", PHASE_COLUMNS, one.phases)
        if one.window is not None:
            lines += ["", *_table("", WINDOW_COLUMNS, {"window": one.window})]
            if one.window.get("pending_start_mib"):
                lines += ["", "Pages were pending at its start: restored / prepared is no success rate."]
        for name, measured, bound, at_least in targets(one):
            sign = ">=" if at_least else "<="
            verdict = "met" if met(measured, bound, at_least) else "MISSED"
            lines += ["", f"- {name}: {measured:.2f} (aim {sign} {bound:g}: {verdict})"]
    return "\n".join(lines) + "\n"


def _sentence(one: Judged) -> str:
    arm = one.arm
    mib = 1 << 20
    words = "; ".join(f"{name} {value}" for name, value in one.conditions.items())
    same = (
        f"{one.compared} outputs compared with their prompt's first, {len(one.differences)} different"
        if one.compared
        else "the engine computes no tokens; restored bytes were compared instead"
    )
    return (
        f"{words}. Prompts of {', '.join(map(str, arm.lengths))} tokens, output {arm.output_tokens}, "
        f"{arm.prefixes} prompts ({arm.working_set_bytes / mib:.0f} MiB), GPU {arm.gpu_tokens} tokens "
        f"({arm.gpu_tokens * arm.kv_bytes_per_token / mib:.0f} MiB), pool {arm.pool_bytes / mib:.0f} MiB, "
        f"query budget {arm.query_budget_bytes / mib:.0f} MiB, SSD {arm.ssd_bytes / mib:.0f} MiB; "
        f"hints {'on' if arm.queue_warmup else 'off'}; {same}."
    )


def _table(
    first: str, columns: Iterable[tuple[str, str, int]], rows: Mapping[str, Mapping[str, float]]
) -> list[str]:
    shown = [column for column in columns if any(column[1] in figures for figures in rows.values())]
    lines = [f"| {' | '.join([first, *(heading for heading, _, _ in shown)])} |"]
    lines.append(f"| --- |{' --: |' * len(shown)}")
    for name, figures in rows.items():
        cells = [_cell(figures.get(figure), digits) for _, figure, digits in shown]
        lines.append(f"| {' | '.join([name, *cells])} |")
    return lines


def _cell(value: float | None, digits: int) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"
