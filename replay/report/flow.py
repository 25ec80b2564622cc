"""What became of prepared bytes, as bands that run from left to right. Numbers are those of the audit.

Only the geometry: heights are in proportion to bytes; the template draws.
"""

from collections.abc import Sequence

import attrs

from replay.auditor import Cohort
from replay.report.quantities import share, size

WIDTH, HEIGHT = 1060.0, 250.0
_BAR = 14.0
_COLUMNS = (10.0, 330.0, 630.0)
_GAP = 26.0
_LEAST_HEIGHT = 2.0

CAUSES = {
    "evicted": "evicted to make room",
    "cleanup": "evicted by an operator's cleanup",
    "replaced": "saved by an engine while it was read",
    "restart": "still pending when the manager stopped",
}


@attrs.frozen
class Bar:
    kind: str
    label: str
    x: float
    y: float
    height: float
    width: float = _BAR


@attrs.frozen
class Band:
    kind: str
    path: str


@attrs.frozen
class Flow:
    bars: list[Bar]
    bands: list[Band]
    width: float = WIDTH
    height: float = HEIGHT


def flow_of(cohort: Cohort) -> Flow | None:
    """None where nothing was prepared."""
    prepared = cohort.prepared_bytes
    if not prepared:
        return None
    outcomes = [
        (name, amount)
        for name, amount in (
            ("restored", cohort.restored_bytes),
            ("unused", cohort.unused_bytes),
            ("pending", cohort.pending_bytes),
        )
        if amount
    ]
    causes = sorted(cohort.unused_bytes_by_cause.items(), key=lambda item: -item[1])
    scale = (HEIGHT - 2 * _GAP * max(len(outcomes), len(causes), 1)) / prepared
    (left,) = _column(_COLUMNS[0], [("prepared", "prepared", prepared)], prepared, scale, _GAP)
    middle = _column(_COLUMNS[1], [(name, name, amount) for name, amount in outcomes], prepared, scale, _GAP)
    bars, bands = [left, *middle], _bands(left, middle)
    unused = next((bar for bar in middle if bar.kind == "unused"), None)
    if unused is not None and causes:
        named = [("unused", CAUSES.get(cause, cause), amount) for cause, amount in causes]
        right = _column(_COLUMNS[2], named, prepared, scale, unused.y)
        bars += right
        bands += _bands(unused, right)
    lowest = max(bar.y + bar.height for bar in bars)
    return Flow(bars, bands, height=lowest + _GAP)


def _column(
    x: float, parts: Sequence[tuple[str, str, int]], whole: int, scale: float, first_y: float
) -> list[Bar]:
    bars, y = [], first_y
    for kind, name, amount in parts:
        bars.append(Bar(kind, _label(name, amount, whole), x, y, _height(amount * scale)))
        y += bars[-1].height + _GAP
    return bars


def _bands(source: Bar, targets: Sequence[Bar]) -> list[Band]:
    bands, y = [], source.y
    for target in targets:
        bands.append(Band(target.kind, _path(source.x + _BAR, y, target.x, target.y, target.height)))
        y += target.height
    return bands


def _path(x0: float, y0: float, x1: float, y1: float, height: float) -> str:
    """A band of this height from (x0, y0) to (x1, y1), its upper edges' ends."""
    bend = (x0 + x1) / 2
    return (
        f"M{x0:.1f},{y0:.1f} C{bend:.1f},{y0:.1f} {bend:.1f},{y1:.1f} {x1:.1f},{y1:.1f} "
        f"V{y1 + height:.1f} C{bend:.1f},{y1 + height:.1f} {bend:.1f},{y0 + height:.1f} "
        f"{x0:.1f},{y0 + height:.1f} Z"
    )


def _label(name: str, amount: int, whole: int) -> str:
    return f"{name}: {size(amount)}" + (f" ({share(amount, whole)})" if amount != whole else "")


def _height(height: float) -> float:
    return max(height, _LEAST_HEIGHT)
