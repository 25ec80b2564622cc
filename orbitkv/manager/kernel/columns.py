"""Packed columns in, numpy arrays out, and tables that grow. No rule of the cache lives here.

Page lists come as little-endian u32 bytes (see `orbitkv.events.ids`). Inside the kernel they are
int64 arrays, because numpy indexes with int64 without a conversion on every use.
"""

import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Array: TypeAlias = npt.NDArray[Any]

NONE: int = 0xFFFF_FFFF

EMPTY: Ints = np.empty(0, np.int64)
EMPTY.setflags(write=False)


def unpack(column: bytes) -> Ints:
    """u32 column to int64 array."""
    return np.frombuffer(column, "<u4").astype(np.int64)


def pack(values: Ints | Iterable[int]) -> bytes:
    """Integers below 2^32 to a u32 column."""
    if isinstance(values, np.ndarray):
        return values.astype("<u4").tobytes()
    column = array("I", values)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def lowest(values: Array) -> int:
    """The smallest value; NONE for no values. Cheaper than `values.min()` on short arrays."""
    return int(np.minimum.reduce(values)) if len(values) else NONE


def unpack_wide(column: bytes) -> Ints:
    """u64 column (values below 2^63) to int64 array."""
    return np.frombuffer(column, "<i8").astype(np.int64)


def pack_wide(values: Ints | Sequence[int]) -> bytes:
    return np.asarray(values, dtype="<i8").tobytes()


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
