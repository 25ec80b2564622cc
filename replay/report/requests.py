"""The charts about single requests: how long each took, and where the slowest spent their time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, FactorRange, FixedTicker, NumeralTickFormatter, Range1d
from bokeh.plotting import figure

from replay.report import palette
from replay.report.data import Row
from replay.report.plots import dress, hover, legend, time_chart
from replay.report.quantities import duration, time_unit

NAME_SHOWN_MAX = 30
_LEAST_MS = 0.01
"""Where the logarithmic axis has its zero: most misses are answered in the record that asks."""
_TICKS = {_LEAST_MS: "0"} | {10.0**power: duration(10.0**power) for power in range(-1, 10)}

_KINDS = {
    "waited for budget": palette.PHASES["waits for budget"],
    "read from the SSD": palette.TIERS["ssd"],
    "all from DRAM": palette.TIERS["dram"],
    "nothing to restore": palette.TIERS["miss"],
}
_PHASES = (
    ("queued", "queued_ms", "opened_ms", 0.72),
    ("waits for budget", "wait_ms", "wait_end_ms", 0.72),
    ("waits for its pages", "grant_ms", "answer_ms", 0.72),
    ("ready, not yet copied", "answer_ms", "restore_ms", 0.72),
    ("copied to the GPU", "restore_ms", "sync_ms", 0.72),
    ("until first use", "sync_ms", "used_ms", 0.72),
    ("hint", "hint_ms", "hint_end_ms", 0.22),
)
"""(name, its beginning, its end, height of its bar)"""


def short(name: str) -> str:
    """A request's name as charts have room for it."""
    shown = name if len(name) <= NAME_SHOWN_MAX else f"{name[: NAME_SHOWN_MAX - 1]}…"
    return shown or "(no name)"


def durations(rows: Sequence[Row], x_range: Range1d) -> Any | None:
    """A dot for each query: when, and how long until its KV could be used."""
    if not rows:
        return None
    chart = time_chart(x_range, "time until usable", height=260, logarithmic=True)
    chart.yaxis.ticker = FixedTicker(ticks=list(_TICKS))
    chart.yaxis.major_label_overrides = _TICKS
    chart.y_range.start = _LEAST_MS / 2
    drawn = {}
    for kind, colour in _KINDS.items():
        mine = [row for row in rows if _kind(row) == kind]
        if not mine:
            continue
        source = ColumnDataSource(
            {
                "ms": np.array([row["opened_ms"] for row in mine]),
                "took": np.array([max(row["took_ms"], _LEAST_MS) for row in mine]),
                "request": [short(row["request"]) for row in mine],
                "seq": [row["seq"] for row in mine],
                "incarnation": [row["incarnation"] for row in mine],
                "pages": [_pages(row) for row in mine],
            }
        )
        drawn[kind] = chart.scatter("ms", "took", source=source, size=6, color=colour, alpha=0.75)
    legend(chart, {kind: [renderer] for kind, renderer in drawn.items()})
    hover(
        chart,
        list(drawn.values()),
        [
            ("request", "@request"),
            ("took", "@took{0,0.[00]} ms"),
            ("pages", "@pages"),
            ("opened", "@ms{%H:%M:%S.%3N} UTC, incarnation @incarnation seq @seq"),
        ],
        formatters={"@ms": "datetime"},
    )
    return chart


def phases(rows: Sequence[Row]) -> Any | None:
    """Where the slowest queries spent their time, each from its own beginning."""
    if not rows:
        return None
    labels = [f"{place}. {short(row['request'])}" for place, row in enumerate(rows, 1)]
    longest_ms = max((row["used_ms"] or row["usable_ms"]) - row["started_ms"] for row in rows)
    unit, unit_ms = time_unit(longest_ms)
    chart: Any = figure(
        height=80 + 20 * len(rows),
        sizing_mode="stretch_width",
        y_range=FactorRange(factors=labels[::-1]),
        x_axis_label=f"{unit} since it was queued (or its query was opened)",
        tools="xpan,xbox_zoom,reset,save",
        active_drag="xbox_zoom",
    )
    dress(chart)
    chart.xaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    chart.x_range.range_padding = 0.02
    chart.ygrid.grid_line_alpha = 0
    drawn: dict[str, Any] = {}
    for name, begin, end, height in _PHASES:
        source = _phase_source(rows, labels, begin, end, unit_ms)
        if len(source.data["left"]):
            drawn[name] = chart.hbar(
                y="label", left="left", right="right", source=source,
                height=height, color=palette.PHASES[name], line_color=None,
            )  # fmt: skip
            said = [("", f"@label: {name}"), ("from", f"@left{{0,0.[000]}} {unit}"), ("for", "@took")]
            hover(chart, [drawn[name]], said)
    legend(chart, {name: [renderer] for name, renderer in drawn.items()})
    return chart


def _phase_source(
    rows: Sequence[Row], labels: Sequence[str], begin: str, end: str, unit_ms: int
) -> ColumnDataSource:
    spans = [
        (label, row[begin] - row["started_ms"], row[end] - row["started_ms"])
        for label, row in zip(labels, rows, strict=True)
        if row[begin] is not None and row[end] is not None and row[end] > row[begin]
    ]
    return ColumnDataSource(
        {
            "label": [label for label, _, _ in spans],
            "left": np.array([left / unit_ms for _, left, _ in spans]),
            "right": np.array([right / unit_ms for _, _, right in spans]),
            "took": [duration(right - left) for _, left, right in spans],
        }
    )


def _kind(row: Row) -> str:
    if row["waited"]:
        return "waited for budget"
    if not row["hit"]:
        return "nothing to restore"
    return "read from the SSD" if row["ssd"] else "all from DRAM"


def _pages(row: Row) -> str:
    return f"{row['asked_pages']} asked: {row['dram']} dram, {row['ssd']} ssd, {row['miss']} miss"
