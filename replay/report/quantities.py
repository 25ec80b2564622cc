"""Numbers as a person reads them, and units for axes."""

from datetime import UTC, datetime

from replay.phrases import size_text

_BYTE_UNITS = (("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40))


def byte_unit(highest: float) -> tuple[str, int]:
    """(name, bytes) of the unit in which the highest value of an axis is at least 1."""
    return next(((name, size) for name, size in reversed(_BYTE_UNITS) if highest >= size), _BYTE_UNITS[0])


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
    if ms >= 2 * 3_600_000:
        return f"{ms / 3_600_000:.1f} h"
    if ms >= 120_000:
        return f"{ms / 60_000:.1f} min"
    if ms >= 1000:
        return f"{ms / 1000:.2f} s"
    return f"{ms:.1f} ms" if ms >= 1 or ms == 0 else f"{1000 * ms:.0f} us"


def moment(ms: float) -> str:
    """With the date, to the millisecond, UTC."""
    when = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{when:%Y-%m-%d %H:%M:%S}.{when.microsecond // 1000:03d}"


def clock(ms: float) -> str:
    return moment(ms)[11:]
