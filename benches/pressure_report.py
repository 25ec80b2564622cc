"""The pressure bench's tables: ratios, what they are ratios of, what hints came to, and peaks."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from benches.common import Goal, Report, Sample, Spread, table
from benches.pressure_shape import Shape
from orbitkv.events.outcomes import HintSkip

OFF, ON = "off", "on"
Pairs: TypeAlias = dict[str, list[Sample]]
"""Arm -> one sample a pair."""
Columns: TypeAlias = Mapping[str, tuple[str, int]]
"""Heading -> (figure, digits)."""

RATIOS = (
    {"requests/s": "requests_per_s", "TTFT p50": "ttft_p50_ms", "TTFT p95": "ttft_p95_ms"},
    {"exposed p50": "exposed_p50_ms", "exposed p95": "exposed_p95_ms", "SSD/request": "ssd_mib_per_request"},
)
SPEEDS: Columns = {
    "n": ("requests", 0),
    "req/s": ("requests_per_s", 2),
    "TTFT p50": ("ttft_p50_ms", 0),
    "p95 ms": ("ttft_p95_ms", 0),
    "exposed p50": ("exposed_p50_ms", 1),
    "p95 ms ": ("exposed_p95_ms", 1),
    "restores": ("restores", 0),
    "SSD MiB/req": ("ssd_mib_per_request", 1),
    "amplif.": ("amplification", 2),
}
COHORT: Columns = {
    "prepared": ("prepared_mib", 0),
    "restored": ("restored_mib", 0),
    "unused": ("unused_mib", 0),
    "at start": ("pending_start_mib", 0),
    "pending": ("pending_end_mib", 0),
    "restored / prepared": ("restored_share", 2),
    "s until used": ("residency_restored_s", 2),
    "s until lost": ("residency_unused_s", 2),
}
HINTS: Columns = {
    "spared": ("hints_spared", 0),
    "sent": ("hints_sent", 0),
    "withdrawn": ("hints_withdrawn", 0),
    "unneeded": ("hints_not_needed", 0),
    "admitted": ("hints_admitted", 0),
    "no room": ("hints_no_room", 0),
    **{reason.name.lower(): (f"skips_{reason.name.lower()}", 0) for reason in HintSkip},
}
PRESSURE = "pressure"
RESTORED_SHARE, SSD_RATIO, EXPOSED_RATIO = 0.95, 1.02, 0.70
"""What is aimed at: nearly all that is prepared is used, at no more reads, and it is felt."""


def tell(report: Report, shape: Shape, found: Mapping[str, Pairs]) -> None:
    _tell_ratios(report, found)
    _tell_medians(report, "Medians", found, (OFF, ON), SPEEDS)
    _tell_medians(report, "Prepared pages, MiB (medians, hints on)", found, (ON,), COHORT)
    _tell_medians(report, "Hints (medians, hints on); the last four are skips", found, (ON,), HINTS)
    _tell_peaks(report, shape, found)
    if PRESSURE in found:
        _set_goals(report, found[PRESSURE])


def ratio(pairs: Pairs, figure: str) -> Spread | None:
    """On / off, pair by pair; None where some pair has nothing to divide by."""
    both = [(on[figure], off[figure]) for on, off in zip(pairs[ON], pairs[OFF], strict=True)]
    if not all(off and math.isfinite(off) and math.isfinite(on) for on, off in both):
        return None
    return Spread.of([on / off for on, off in both])


def middle(samples: Sequence[Sample], figure: str) -> Spread | None:
    """Over the pairs where the figure exists at all."""
    values = [sample[figure] for sample in samples if math.isfinite(sample[figure])]
    return Spread.of(values) if values else None


def _tell_ratios(report: Report, found: Mapping[str, Pairs]) -> None:
    figures = [figure for columns in RATIOS for figure in columns.values()]
    ratios = {case: {name: _plain(ratio(pairs, name)) for name in figures} for case, pairs in found.items()}
    for columns in RATIOS:
        rows = table("On / off: median [quartiles] over the pairs", "case", *columns)
        for case, pairs in found.items():
            spreads = (ratio(pairs, figure) for figure in columns.values())
            rows.add_row(case, *("-" if spread is None else spread.text() for spread in spreads))
        report.add(rows, {"ratios": ratios, "samples": _finite(found)})


def _tell_medians(
    report: Report,
    title: str,
    found: Mapping[str, Pairs],
    arms: Sequence[str],
    columns: Columns,
) -> None:
    rows = table(title, "case", *columns)
    for case in found:
        for arm in arms:
            cells = _cells(found[case][arm], columns)
            rows.add_row(f"{case}, {arm}" if len(arms) > 1 else case, *cells.values())
    report.add(rows, {})


def _cells(samples: Sequence[Sample], columns: Columns) -> dict[str, str]:
    cells = {name: _short(middle(samples, name), digits) for name, digits in columns.values()}
    if "restored_share" in cells and any(sample["pending_start_mib"] for sample in samples):
        cells["restored_share"] += " carry-in"  # some of it was prepared before: no success rate
    return cells


def _tell_peaks(report: Report, shape: Shape, found: Mapping[str, Pairs]) -> None:
    limits = {
        "pending": shape.pool_bytes,
        "warming": shape.speculative_bytes,
        **dict.fromkeys(("preparing", "ready", "restoring", "reserved"), shape.budget_bytes),
    }
    in_mib = {name: limit / (1 << 20) for name, limit in limits.items()}
    rows = table("Peaks over all records, MiB (the greatest of all pairs)", "case", *limits)
    for case, pairs in found.items():
        for arm, samples in pairs.items():
            peaks = (max(sample[f"peak_{name}_mib"] for sample in samples) for name in limits)
            rows.add_row(f"{case}, {arm}", *(f"{peak:.0f}" for peak in peaks))
    rows.add_row("limit", *(f"{limit:.0f}" for limit in in_mib.values()))
    report.add(rows, {"limits_mib": in_mib})


def _set_goals(report: Report, pairs: Pairs) -> None:
    share = middle(pairs[ON], "restored_share")
    name = "restored / prepared" if share else "restored / prepared (nothing was prepared)"
    report.goal(Goal(name, share.median if share else 0.0, RESTORED_SHARE))
    for name, figure, bound in (
        ("SSD bytes per request, on / off", "ssd_mib_per_request", SSD_RATIO),
        ("exposed wait p95, on / off", "exposed_p95_ms", EXPOSED_RATIO),
    ):
        found = ratio(pairs, figure)
        if found is not None:
            report.goal(Goal(name, found.median, bound, at_least=False))


def _short(spread: Spread | None, digits: int) -> str:
    return "-" if spread is None else f"{spread.median:.{digits}f}"


def _plain(spread: Spread | None) -> dict[str, float] | None:
    return None if spread is None else {"median": spread.median, "low": spread.low, "high": spread.high}


def _finite(found: Mapping[str, Pairs]) -> dict[str, dict[str, list[dict[str, float | None]]]]:
    """For JSON, which has no word for what is not a number."""
    return {
        case: {
            arm: [
                {name: value if math.isfinite(value) else None for name, value in sample.items()}
                for sample in samples
            ]
            for arm, samples in pairs.items()
        }
        for case, pairs in found.items()
    }
