"""Sizes and durations as people write them, read exactly and written back so that they read the same.

Written by hand: the libraries for this go through floats, and take "4Gb" for bits or skip what stands
between two numbers; a setting must mean one thing.
"""

import re
from fractions import Fraction

from orbitkv.config.errors import Unfit

_BINARY = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}
_DECIMAL = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "KB": 10**3}
_MICROSECONDS = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
_NUMBER_UNIT = re.compile(r"\s*(\d{1,40}(?:\.\d{1,40})?)\s*([A-Za-z]*)\s*", re.ASCII)
"""Digits are bounded: Python refuses to read a number of thousands of them, and floats have an end."""
_SECONDS_MAX = 10**12


def parse_size(value: object) -> int:
    """Bytes from `4096`, `"4KiB"`, `"1.5GiB"`, `"16GB"`. Raises Unfit."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise Unfit("a size cannot be negative", 'write bytes, or a unit as in "256MiB"')
        return value
    number, unit = _split(value, "a size", '"256MiB"')
    scale = 1 if unit == "" else (_BINARY | _DECIMAL).get(unit)
    if scale is None:
        letter = unit[0].upper()
        if letter in "KMGT":
            remedy = f'write "{letter}iB" for powers of 1024, or "{letter}B" for powers of 1000'
        else:
            remedy = "use B, KiB, MiB, GiB or TiB"
        raise Unfit(f'"{unit}" is not a unit of size', remedy)
    size = number * scale
    if size.denominator != 1:
        raise Unfit("that is not a whole number of bytes", "use a smaller unit")
    return int(size)


def format_size(size_bytes: int) -> str:
    """The shortest exact form: 268435456 is "256MiB", 1000 is "1000B"."""
    if size_bytes == 0:
        return "0B"
    for unit, scale in _BINARY.items():
        if size_bytes % scale == 0:
            return f"{size_bytes // scale}{unit}"
    raise AssertionError("every size is a number of bytes")


def parse_duration(value: object) -> float:
    """Seconds from `5`, `0.25`, `"250ms"`, `"5s"`, `"10m"`, `"1h"`. Raises Unfit."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value < _SECONDS_MAX:
            raise Unfit("a duration is finite and not negative", 'write seconds, or a unit as in "250ms"')
        return float(value)
    number, unit = _split(value, "a duration", '"5s"')
    scale = _MICROSECONDS["s"] if unit == "" else _MICROSECONDS.get(unit)
    if scale is None:
        raise Unfit(f'"{unit}" is not a unit of time', "use us, ms, s, m (minutes) or h")
    return float(number * scale / _MICROSECONDS["s"])


def format_duration(seconds: float) -> str:
    microseconds = Fraction(str(seconds)) * _MICROSECONDS["s"]
    if microseconds == 0:
        return "0s"
    for unit, scale in _MICROSECONDS.items():
        if (microseconds / scale).denominator == 1:
            return f"{microseconds / scale}{unit}"
    return f"{seconds}s"


def _split(value: object, kind: str, example: str) -> tuple[Fraction, str]:
    match = _NUMBER_UNIT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise Unfit(f"that is not {kind}", f"write a number and a unit, as in {example}")
    return Fraction(match[1]), match[2]
