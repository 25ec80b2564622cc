"""What all charts of the report share: axes with units, legends, one line of time, and their looks.

Colours of text, axes and grids come from the page's style sheet, so that they follow light and dark.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from bokeh.models import (
    ColumnDataSource,
    DatetimeTickFormatter,
    HoverTool,
    NumeralTickFormatter,
    Range1d,
)
from bokeh.models.annotations import Legend, LegendItem
from bokeh.plotting import figure

from replay.report.data import Row

Values = npt.NDArray[np.float64]
TIME_RANGE = "time"
"""The page moves all charts over time by the range of this name."""
_BAR = ("left", "right", "bottom", "top", "amount", "rate")
_TOOLS = "xpan,xbox_zoom,xwheel_zoom,reset,save"


def time_range(begin_ms: float, end_ms: float) -> Range1d:
    margin = max((end_ms - begin_ms) * 0.01, 0.5)
    return Range1d(start=begin_ms - margin, end=end_ms + margin, name=TIME_RANGE)


def time_chart(x_range: Range1d, unit: str, *, height: int = 230, logarithmic: bool = False) -> Any:
    """An empty chart over time; `unit` is what its other axis counts."""
    chart: Any = figure(
        height=height,
        sizing_mode="stretch_width",
        x_axis_type="datetime",
        x_range=x_range,
        y_axis_type="log" if logarithmic else "linear",
        tools=_TOOLS,
        active_drag="xbox_zoom",
        active_scroll=None,
        x_axis_label="time (UTC)",
        y_axis_label=unit,
        output_backend="canvas",
    )
    chart.xaxis.formatter = DatetimeTickFormatter(
        microseconds="%H:%M:%S.%f",
        milliseconds="%H:%M:%S.%3N",
        seconds="%H:%M:%S",
        minsec="%H:%M:%S",
        minutes="%H:%M",
        hourmin="%H:%M",
        hours="%d %b %H:%M",
        days="%d %b",
        months="%b %Y",
    )
    if not logarithmic:
        chart.y_range.start = 0
    chart.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    dress(chart)
    return chart


def dress(chart: Any) -> None:
    chart.toolbar.logo = None
    chart.toolbar.autohide = True
    chart.background_fill_color = None
    chart.border_fill_color = None
    chart.outline_line_color = None
    chart.min_border_left = 70
    chart.min_border_right = 15
    chart.axis.axis_label_text_font_style = "normal"
    chart.axis.axis_label_text_font_size = "12px"
    chart.axis.major_label_text_font_size = "11px"
    chart.axis.minor_tick_line_color = None


def legend(chart: Any, items: Mapping[str, Sequence[Any]]) -> None:
    """Above the chart; a click hides what it names."""
    entries = [LegendItem(label=label, renderers=list(renderers)) for label, renderers in items.items()]
    made: Any = Legend(items=entries, orientation="horizontal", click_policy="hide", ncols="auto")
    made.background_fill_color = None
    made.border_line_color = None
    made.label_text_font_size = "12px"
    made.padding, made.margin, made.spacing = 2, 0, 12
    # Unlike what stands on the canvas, these labels are elements of the page.
    made.stylesheets = [".bk-label { color: var(--ink) !important; }"]
    chart.add_layout(made, "above")


def hover(chart: Any, renderers: Sequence[Any], tooltips: Sequence[tuple[str, str]], **more: Any) -> None:
    chart.add_tools(HoverTool(renderers=list(renderers), tooltips=list(tooltips), **more))


def limit(chart: Any, value: float, colour: str) -> Any:
    """A dashed line over the whole chart; gives a renderer for the legend."""
    width = (chart.x_range.end - chart.x_range.start) * 10
    ends = [chart.x_range.start - width, chart.x_range.end + width]
    return chart.line(ends, [value, value], line_color=colour, line_dash="dashed", line_width=1.4)


def steps(rows: Sequence[Row], scale: float) -> ColumnDataSource:
    """A level over time, with a gap between stretches. Times in ms, values divided by `scale`."""
    times: list[float] = []
    values: list[float] = []
    for place, row in enumerate(rows):
        if place and row["stretch"] != rows[place - 1]["stretch"]:
            times.append(rows[place - 1]["ms"])
            values.append(float("nan"))
        times.append(row["ms"])
        values.append(row["value"] / scale)
    return ColumnDataSource({"ms": np.array(times), "value": np.array(values)})


def stacked(
    series: Mapping[str, Sequence[Row]], scale: float = 1.0, per_s: float = 1.0
) -> dict[str, ColumnDataSource]:
    """Bars, one upon the other in the order of `series`: amounts over `scale`, for each `per_s` seconds."""
    heights: dict[tuple[int, float], float] = {}
    sources = {}
    for name, rows in series.items():
        columns: dict[str, list[float]] = {name: [] for name in _BAR}
        for row in rows:
            place = row["stretch"], row["left_ms"]
            rate = row["amount"] / ((row["right_ms"] - row["left_ms"]) / 1000) / scale * per_s
            bottom = heights.get(place, 0.0)
            heights[place] = bottom + rate
            values = (row["left_ms"], row["right_ms"], bottom, bottom + rate, row["amount"] / scale, rate)
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
        arrays = {key: np.array(column, np.float64) for key, column in columns.items()}
        sources[name] = ColumnDataSource(arrays | {"what": [name] * len(rows)})
    return sources


def bars(
    chart: Any, sources: Mapping[str, ColumnDataSource], colours: Mapping[str, str], unit: str, per: str
) -> None:
    """Draw what `stacked` gives, with a legend and what each bar says when it is pointed at."""
    drawn = {
        name: chart.quad(
            left="left", right="right", bottom="bottom", top="top", source=source,
            fill_color=colours[name], line_color=None, fill_alpha=0.9,
        )
        for name, source in sources.items()
    }  # fmt: skip
    legend(chart, {name: [renderer] for name, renderer in drawn.items()})
    hover(
        chart,
        list(drawn.values()),
        [
            ("", "@what"),
            ("from", "@left{%H:%M:%S.%3N} UTC"),
            (unit, "@amount{0,0.[00]}"),
            (f"per {per}", "@rate{0,0.[00]}"),
        ],
        formatters={"@left": "datetime"},
    )


def level_lines(
    chart: Any, lines: Mapping[str, tuple[Sequence[Row], str]], scale: float, unit: str
) -> dict[str, list[Any]]:
    """Levels as stepped lines by name -> (rows, colour). Gives what the legend names."""
    drawn: dict[str, list[Any]] = {}
    for place, (name, (rows, colour)) in enumerate(lines.items()):
        source = steps(rows, scale)
        line = chart.step("ms", "value", source=source, mode="after", line_color=colour, line_width=1.6)
        drawn[name] = [line]
        hover(
            chart,
            [line],
            [("", name), ("from", "@ms{%H:%M:%S.%3N} UTC"), (unit, "@value{0,0.[00]}")],
            formatters={"@ms": "datetime"},
            mode="vline" if place == 0 else "mouse",
            line_policy="prev",
        )
    return drawn
