"""Puts the report's page together: figures, charts and sentences into one HTML file without a network.

Everything that came from the log is escaped by the template; charts carry their data as JSON.
"""

from importlib.resources import files
from pathlib import Path
from typing import Any

import attrs
from bokeh.embed import components
from bokeh.resources import Resources
from jinja2 import Environment, PackageLoader, StrictUndefined

from replay.auditor import Audit
from replay.report import charts, palette, quantities, requests
from replay.report.cited import Cited, Place
from replay.report.data import Data
from replay.report.flow import flow_of
from replay.report.plots import time_range
from replay.report.stories import Story, story

_WINDOWS_MAX = 12
"""Incarnations that get a button; more than that are told in the table alone."""


@attrs.frozen
class Content:
    """What the page is made of."""

    log: Path
    audit: Audit
    data: Data
    stories: list[Story]


def content_of(log: Path, audit: Audit, data: Data) -> Content:
    return Content(log, audit, data, [story(row, log) for row in data.slowest])


def cited_places(content: Content) -> set[Place]:
    """The records that the page links to."""
    places = {
        (told.incarnation, said.seq) for told in content.stories for said in told.said if said.seq is not None
    }
    places |= {(each.incarnation, each.seq) for verdict in content.audit.verdicts for each in verdict.first}
    return places | {(row["incarnation"], row["seq"]) for row in content.data.failures}


def render(content: Content, cited: list[Cited]) -> str:
    script, pictures = _pictures(content.data)
    environment = Environment(
        loader=PackageLoader("replay.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        size=quantities.size,
        count=quantities.count,
        duration=quantities.duration,
        moment=quantities.moment,
        clock=quantities.clock,
    )
    environment.globals.update(share=quantities.share)
    cohort = content.audit.totals.cohort
    return environment.get_template("report.html.j2").render(
        content=content,
        audit=content.audit,
        data=content.data,
        head=content.data.headline,
        ledgers=content.audit.totals,
        cohort=cohort,
        flow=flow_of(cohort),
        charts=pictures,
        chart_script=script,
        chart_library="\n".join(Resources(mode="inline", components=["bokeh"]).js_raw),
        style=_text("style.css"),
        page_script=_text("page.js"),
        windows=_windows(content.data),
        colours=palette,
        cited=cited,
        cited_places={(each.incarnation, each.seq) for each in cited},
        broken=[verdict for verdict in content.audit.verdicts if verdict.count],
    )


def _pictures(data: Data) -> tuple[str, dict[str, str]]:
    """The script that draws them, and for each chart that has something to draw its place in the page."""
    begin_ms = min((row["begin_ms"] for row in data.incarnations), default=0.0)
    end_ms = max((row["end_ms"] for row in data.incarnations), default=1.0)
    x_range = time_range(begin_ms, end_ms)
    drawn: dict[str, Any] = {
        "durations": requests.durations(data.scatter, x_range),
        "phases": requests.phases(data.slowest),
        "budgets": charts.budgets(data, x_range),
        "waiting": charts.waiting(data, x_range),
        "demand": charts.tiers(data, x_range, "demand"),
        "warm": charts.tiers(data, x_range, "warm"),
        "traffic": charts.traffic(data, x_range),
        "in_flight": charts.in_flight(data, x_range),
        "pool": charts.pool(data, x_range),
        "resident": charts.resident(data, x_range),
        "evictions": charts.evictions(data, x_range),
        "hints": charts.hints(data, x_range),
    }
    there = {name: chart for name, chart in drawn.items() if chart is not None}
    if not there:
        return "", {}
    script, places = components(there, wrap_script=False)
    return script, places


def _windows(data: Data) -> list[dict[str, Any]]:
    """What the buttons above the charts show: everything, or one incarnation."""
    spans: dict[int, list[float]] = {}
    for row in data.incarnations:
        span = spans.setdefault(row["incarnation"], [row["begin_ms"], row["end_ms"]])
        span[1] = max(span[1], row["end_ms"])
    if not 1 < len(spans) <= _WINDOWS_MAX:
        return []
    whole = [min(begin for begin, _ in spans.values()), max(end for _, end in spans.values())]
    return [
        {"name": "all", "begin_ms": whole[0], "end_ms": whole[1]},
        *(
            {"name": f"incarnation {number}", "begin_ms": begin, "end_ms": end}
            for number, (begin, end) in spans.items()
        ),
    ]


def _text(name: str) -> str:
    return (files("replay.report") / "templates" / name).read_text(encoding="utf-8")
