"""The charts about single requests: how long each took, and where the slowest spent their time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, FactorRange, NumeralTickFormatter, Range1d
from bokeh.plotting import figure

from replay.report import palette
from replay.report.data import Row
from replay.report.plots import dress, hover, legend, time_chart

NAME_SHOWN_MAX = 30
_LEAST_MS = 0.01
"""What the logarithmic axis begins at: most misses are answered in the record that asks."""

_KINDS = {
    "waited for budget": palette.PHASES["waits for budget"],
    "read from the SSD": palette.TIERS["ssd"],
    "all from DRAM": palette.TIERS["dram"],
    "nothing to restore": palette.TIERS["miss"],
}
_PHASES = (
    ("queued", "queued_ms", "opened_ms"),
    ("waits for budget", "wait_ms", "grant_ms"),
    ("waits for its pages", "grant_ms", "answer_ms"),
    ("ready, not yet copied", "answer_ms", "restore_ms"),
    ("copied to the GPU", "restore_ms", "sync_ms"),
    ("until first use", "sync_ms", "used_ms"),
)


def short(name: str) -> str:
    """A request's name as charts have room for it."""
    shown = name if len(name) <= NAME_SHOWN_MAX else f"{name[: NAME_SHOWN_MAX - 1]}…"
    return shown or "(no name)"


def durations(rows: Sequence[Row], x_range: Range1d) -> Any | None:
    """A dot for each query: when, and how long until its KV could be used."""
    if not rows:
        return None
    chart = time_chart(x_range, "ms until usable", height=260, logarithmic=True)
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
    chart: Any = figure(
        height=80 + 20 * len(rows),
        sizing_mode="stretch_width",
        y_range=FactorRange(factors=labels[::-1]),
        x_axis_label="ms since it was queued (or its query was opened)",
        tools="xpan,xbox_zoom,reset,save",
        active_drag="xbox_zoom",
    )
    dress(chart)
    chart.xaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    chart.x_range.range_padding = 0.02
    chart.ygrid.grid_line_color = None
    drawn = {}
    for name, begin, end in _PHASES:
        source = _phase_source(rows, labels, begin, end)
        if len(source.data["left"]):
            drawn[name] = _bars(chart, source, palette.PHASES[name], 0.72, name)
    hints = _phase_source(rows, labels, "hint_ms", "hint_end_ms")
    if len(hints.data["left"]):
        drawn["hint"] = _bars(chart, hints, palette.PHASES["hint"], 0.22, "hint")
    if not drawn:
        return None
    legend(chart, {name: [renderer] for name, renderer in drawn.items()})
    return chart


def _bars(chart: Any, source: ColumnDataSource, colour: str, height: float, name: str) -> Any:
    bars = chart.hbar(
        y="label", left="left", right="right", height=height, source=source, color=colour, line_color=None
    )
    hover(
        chart,
        [bars],
        [("", f"@label: {name}"), ("from", "@left{0,0.[000]} ms"), ("for", "@took{0,0.[000]} ms")],
    )
    return bars


def _phase_source(rows: Sequence[Row], labels: Sequence[str], begin: str, end: str) -> ColumnDataSource:
    spans = [
        (label, row[begin] - row["started_ms"], row[end] - row["started_ms"])
        for label, row in zip(labels, rows, strict=True)
        if row[begin] is not None and row[end] is not None and row[end] > row[begin]
    ]
    return ColumnDataSource(
        {
            "label": [label for label, _, _ in spans],
            "left": np.array([left for _, left, _ in spans]),
            "right": np.array([right for _, _, right in spans]),
            "took": np.array([right - left for _, left, right in spans]),
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
