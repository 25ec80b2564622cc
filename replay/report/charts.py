"""The charts over time: budgets, tiers, SSD traffic, the pool, hints. One function for each.

Each gives a chart, or None where the log has nothing to draw.
"""

from typing import Any

from bokeh.models import Range1d

from replay.report import palette
from replay.report.data import Data, Row
from replay.report.plots import bars, legend, level_lines, limit, stacked, time_chart
from replay.report.quantities import byte_unit, rate_unit


def budgets(data: Data, x_range: Range1d) -> Any | None:
    levels = data.level("reserved", "reserved_hints")
    if not _anything(levels):
        return None
    budget = _setting(data, "query_budget_bytes")
    unit, scale = byte_unit(max(_highest(levels), budget or 0))
    chart = time_chart(x_range, f"{unit} reserved")
    lines = {"reserved, all": (levels["reserved"], palette.ORIGINS["demand"])}
    if "reserved_hints" in levels:
        lines["reserved, hints"] = levels["reserved_hints"], palette.ORIGINS["warm"]
    drawn = level_lines(chart, lines, scale, unit)
    if budget is not None:
        drawn["budget, all"] = [limit(chart, budget / scale, palette.LIMIT)]
        divisor = _setting(data, "speculative_divisor") or 1
        hints = budget // divisor / scale
        drawn["budget, hints"] = [limit(chart, hints, palette.OUTCOMES["pending"])]
        chart.y_range.end = 1.08 * max(budget, _highest(levels)) / scale
    legend(chart, drawn)
    return chart


def waiting(data: Data, x_range: Range1d) -> Any | None:
    levels = data.level("waiting")
    if not _anything(levels):
        return None
    chart = time_chart(x_range, "queries waiting", height=170)
    lines = {"queries that wait for budget": (levels["waiting"], palette.PHASES["waits for budget"])}
    legend(chart, level_lines(chart, lines, 1, "queries"))
    return chart


def tiers(data: Data, x_range: Range1d, kind: str) -> Any | None:
    """`kind`: demand, or warm for what hints saw."""
    series = data.chart(kind)
    if not series:
        return None
    ordered = {tier: series[tier] for tier in palette.TIERS if tier in series}
    per, seconds = rate_unit(_highest_rate(series))
    chart = time_chart(x_range, f"pages per {per}")
    bars(chart, stacked(ordered, per_s=seconds), palette.TIERS, "pages", per)
    return chart


def traffic(data: Data, x_range: Range1d) -> Any | None:
    series = data.chart("traffic")
    if not series:
        return None
    highest = _highest_rate(series)
    unit, scale = byte_unit(highest)
    chart = time_chart(x_range, f"{unit} per s")
    colours = {
        "read, demand": palette.ORIGINS["demand"],
        "read, warm": palette.ORIGINS["warm"],
        "written": palette.ORIGINS["write"],
    }
    bars(chart, stacked(series, scale), colours, unit, "s")
    return chart


def in_flight(data: Data, x_range: Range1d) -> Any | None:
    levels = data.level("in_flight_foreground", "in_flight_background")
    if not _anything(levels):
        return None
    most = _setting(data, "ssd_inflight_bytes_max")
    unit, scale = byte_unit(max(_highest(levels), most or 0))
    chart = time_chart(x_range, f"{unit} in flight")
    names = {
        "in_flight_foreground": ("reads for demands", palette.ORIGINS["demand"]),
        "in_flight_background": ("reads for hints, and writes", palette.ORIGINS["warm"]),
    }
    lines = {name: (levels[series], colour) for series, (name, colour) in names.items() if series in levels}
    drawn = level_lines(chart, lines, scale, unit)
    if most is not None:
        drawn["limit"] = [limit(chart, most / scale, palette.LIMIT)]
        hints = most - (_setting(data, "ssd_foreground_reserved_bytes") or 0)
        drawn["limit for hints and writes"] = [limit(chart, hints / scale, palette.OUTCOMES["pending"])]
    legend(chart, drawn)
    return chart


def resident(data: Data, x_range: Range1d) -> Any | None:
    levels = data.level("resident_retained", "resident_probationary", "resident_reclaimable")
    if not _anything(levels):
        return None
    chart = time_chart(x_range, "pages in DRAM")
    lines = {
        name: (levels[series], colour)
        for name, colour in palette.CLASSES.items()
        if (series := f"resident_{name}") in levels
    }
    legend(chart, level_lines(chart, lines, 1, "pages"))
    return chart


def pool(data: Data, x_range: Range1d) -> Any | None:
    levels = data.level("pool_used", "pending")
    if not _anything(levels):
        return None
    capacity = _setting(data, "pool_bytes")
    unit, scale = byte_unit(max(_highest(levels), capacity or 0))
    chart = time_chart(x_range, f"{unit} of the pool")
    lines = {"used, padding included": (levels["pool_used"], palette.CLASSES["retained"])}
    if "pending" in levels:
        lines["prepared, outcome open"] = levels["pending"], palette.OUTCOMES["pending"]
    drawn = level_lines(chart, lines, scale, unit)
    if capacity is not None:
        drawn["capacity"] = [limit(chart, capacity / scale, palette.LIMIT)]
    legend(chart, drawn)
    return chart


def evictions(data: Data, x_range: Range1d) -> Any | None:
    return _counted(data, x_range, "evictions", "pages", palette.CLASSES)


def hints(data: Data, x_range: Range1d) -> Any | None:
    known = {"admitted": palette.OUTCOMES["restored"], "needed": palette.TIERS["miss"]}
    return _counted(data, x_range, "hints", "hints", known)


def _counted(data: Data, x_range: Range1d, name: str, unit: str, known: dict[str, str]) -> Any | None:
    series = data.chart(name)
    if not series:
        return None
    per, seconds = rate_unit(_highest_rate(series))
    chart = time_chart(x_range, f"{unit} per {per}", height=200)
    bars(chart, stacked(series, per_s=seconds), palette.colours(list(series), known), unit, per)
    return chart


def _anything(levels: dict[str, list[Row]]) -> bool:
    return any(row["value"] for rows in levels.values() for row in rows)


def _highest(levels: dict[str, list[Row]]) -> float:
    return max((row["value"] for rows in levels.values() for row in rows), default=0.0)


def _highest_rate(series: dict[str, list[Row]]) -> float:
    rates: dict[tuple[int, float], float] = {}
    for rows in series.values():
        for row in rows:
            place = row["stretch"], row["left_ms"]
            seconds = (row["right_ms"] - row["left_ms"]) / 1000
            rates[place] = rates.get(place, 0.0) + row["amount"] / seconds
    return max(rates.values(), default=0.0)


def _setting(data: Data, name: str) -> int | None:
    """Of the newest incarnation whose first record is in the log."""
    values = [row[name] for row in data.incarnations if row[name] is not None]
    return values[-1] if values else None
