"""Packed columns in, numpy arrays out, and tables that grow. No rule of the cache lives here.

Page lists come as little-endian u32 bytes (see `orbitkv.events.ids`). Inside the kernel they are
int64 arrays, because numpy indexes with int64 without a conversion on every use.
"""

import struct
import sys
from array import array
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Array: TypeAlias = npt.NDArray[Any]

NONE: int = 0xFFFF_FFFF

EMPTY: Ints = np.empty(0, np.int64)
EMPTY.setflags(write=False)


ZERO: Array = np.zeros((), np.int64)
"""For `column < ZERO`: numpy compares with an array of no dimension in half the time of an int."""
ONE: Array = np.ones((), np.int32)
"""For counts up and down (`holds`, `references`), for the same reason."""
ABSENT: Ints = np.full(1, -1, np.int64)
"""`ABSENT.repeat(n)` is `np.full(n, -1)` in a third of the time."""
ABSENT.setflags(write=False)

_U32 = np.dtype("<u4")
_I64_LE = np.dtype("<i8")
_I64 = np.dtype(np.int64)
_SOME = 512
_FEW = 64
"""Up to so many values a walk over Python integers is quicker than a numpy reduction."""
_HANDFUL = 8
"""Up to so many values it is quicker even where numpy need not reduce, as for the place of the largest."""


def unpack(column: bytes) -> Ints:
    """u32 column to int64 array."""
    return np.frombuffer(column, _U32).astype(_I64)


def numbers_of(column: bytes) -> tuple[int, ...]:
    """u32 column to plain integers, for those who walk over them one by one."""
    return struct.unpack(f"<{len(column) // 4}I", column)


def pack(values: Ints | Iterable[int]) -> bytes:
    """Integers below 2^32 to a u32 column."""
    if isinstance(values, np.ndarray):
        return values.astype(_U32).tobytes()
    column = array("I", values)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def lowest(values: Array) -> int:
    """The smallest value; NONE for no values. A quarter of the time of `values.min()` on short arrays."""
    if len(values) <= _HANDFUL:
        return min(values.tolist(), default=NONE)
    return int(values.item(values.argmin()))


def highest(values: Array) -> int:
    """The largest value; -1 for no values."""
    if len(values) <= _HANDFUL:
        return max(values.tolist(), default=-1)
    return int(values.item(values.argmax()))


def is_uniform(values: Array) -> bool:
    """Whether all of at least one value are equal."""
    if len(values) <= _HANDFUL:
        numbers = values.tolist()
        return bool(numbers.count(numbers[0]) == len(numbers))
    return bool(values.item(values.argmin()) == values.item(values.argmax()))


def total(values: Array) -> int:
    """The sum."""
    return sum(values.tolist()) if len(values) <= _FEW else int(values.sum())


def has_repeats(values: Ints) -> bool:
    if len(values) <= _FEW:
        return len(set(values.tolist())) < len(values)
    ordered = _in_order(values)
    return bool(np.count_nonzero(ordered[1:] == ordered[:-1]))


def _in_order(values: Ints) -> Ints:
    """Sorted. Numbers often run on: the stable way is a hundred times as fast on many that do."""
    return np.sort(values, kind="stable" if len(values) > _SOME else None)


def distinct(values: Ints) -> Ints:
    """The values in rising order, each once. `np.unique` hashes: ten times as long on a few hundred."""
    ordered = _in_order(values)
    if len(ordered) < 2:
        return ordered
    new = np.empty(len(ordered), np.bool_)
    new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


def count_each(column: Array, rows: Ints, change: Array) -> None:
    """Add `change` to `column` at each of `rows`, also where a row is named twice."""
    if len(rows) == 1:
        column[rows.item()] += change
    elif has_repeats(rows):
        np.add.at(column, rows, change)
    else:
        column[rows] += change


def unpack_wide(column: bytes) -> Ints:
    """u64 column (values below 2^63) to int64 array."""
    return np.frombuffer(column, _I64_LE).astype(_I64)


def pack_wide(values: Ints | Iterable[int]) -> bytes:
    if isinstance(values, np.ndarray):
        return values.astype(_I64_LE).tobytes()
    column = array("q", values)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def column_length(column: bytes) -> int:
    return len(column) // 4


def is_column(column: bytes) -> bool:
    return len(column) % 4 == 0


def grown(array: Array, size: int, fill: int) -> Array:
    """A copy of `array` with room for at least `size` values, at least doubled; new places hold `fill`."""
    capacity = max(size, 2 * len(array), 64)
    bigger = np.full(capacity, fill, array.dtype)
    bigger[: len(array)] = array
    return bigger
