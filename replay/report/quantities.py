"""Numbers as a person reads them, and units for axes."""

from datetime import UTC, datetime

from replay.wording.phrases import size_text

_BYTE_UNITS = (("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40))


def byte_unit(highest: float) -> tuple[str, int]:
    """(name, bytes) of the unit in which the highest value of an axis is at least 1."""
    return next(((name, size) for name, size in reversed(_BYTE_UNITS) if highest >= size), _BYTE_UNITS[0])


_TIME_UNITS = (("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000))


def time_unit(longest_ms: float, *, units: int = 3) -> tuple[str, int]:
    """(name, ms) of the unit in which the longest time of an axis is at least so many."""
    fitting = ((name, ms) for name, ms in reversed(_TIME_UNITS) if longest_ms >= units * ms)
    return next(fitting, _TIME_UNITS[0])


def rate_unit(highest_per_s: float) -> tuple[str, int]:
    """(name, seconds) of the time over which the highest rate of an axis is at least 1."""
    return next(
        ((name, ms // 1000) for name, ms in _TIME_UNITS[1:] if highest_per_s * ms >= 1000), ("d", 86_400)
    )


def size(size_bytes: float | None) -> str:
    return "-" if size_bytes is None else size_text(int(size_bytes))


def count(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def duration(ms: float | None) -> str:
    """E.g. "830 us", "4.3 ms", "12.1 s", "3.2 h"."""
    if ms is None:
        return "-"
    if 0 < ms < 1:
        return f"{_figures(1000 * ms)} us"
    unit, unit_ms = time_unit(ms, units=1)
    return f"{_figures(ms / unit_ms)} {unit}"


def _figures(number: float) -> str:
    """Three of them, or all before the point."""
    return f"{number:.0f}" if number >= 99.95 else f"{number:.3g}"


def moment(ms: float) -> str:
    """With the date, to the millisecond, UTC."""
    when = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{when:%Y-%m-%d %H:%M:%S}.{when.microsecond // 1000:03d}"


def clock(ms: float) -> str:
    return moment(ms)[11:]
