"""Sizes and durations: read exactly, refused when they could mean two things, written back the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitkv.config.errors import Unfit
from orbitkv.config.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("0", 0),
        ("4KiB", 4096),
        ("1.5 GiB", 3 << 29),
        ("16GB", 16 * 10**9),
        ("0.0009765625KiB", 1),
        ("3TiB", 3 << 40),
    ],
)
def test_sizes(text: object, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("4G", "GiB"),
        ("4Gb", "GiB"),
        ("4gib", "GiB"),
        ("7 parsecs", "use B"),
        ("0.3B", "whole number"),
        ("-1", "not a size"),
        (-1, "negative"),
        ("", "not a size"),
        ("1GiB!", "not a size"),
        ("٣MiB", "not a size"),
        (True, "not a size"),
        (1.5, "not a size"),
        (None, "not a size"),
        ([1], "not a size"),
    ],
)
def test_what_is_no_size(text: object, told: str) -> None:
    with pytest.raises(Unfit, match=told):
        parse_size(text)


@given(st.integers(0, 1 << 70))
def test_sizes_read_back(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (5, 5.0),
        (0.25, 0.25),
        ("250ms", 0.25),
        ("5s", 5.0),
        ("1.5m", 90.0),
        ("2h", 7200.0),
        ("10us", 1e-5),
        ("7", 7.0),
    ],
)
def test_durations(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["5 fortnights", "1h30m", "5s!!3s", "-5s", -5, float("inf"), float("nan"), True, "", None]
)
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(Unfit):
        parse_duration(text)


@given(st.integers(0, 10**12).map(lambda microseconds: microseconds / 10**6))
def test_durations_read_back(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-15)
