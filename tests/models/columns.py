"""Packed columns to lists and back, in the plainest way, so that the models trust nobody's code for it."""

import struct
from collections.abc import Iterable


def numbers(column: bytes) -> list[int]:
    """The u32 values of a column."""
    return list(struct.unpack(f"<{len(column) // 4}I", column))


def wide_numbers(column: bytes) -> list[int]:
    """The u64 values of a wide column."""
    return list(struct.unpack(f"<{len(column) // 8}Q", column))


def column(values: Iterable[int]) -> bytes:
    packed = list(values)
    return struct.pack(f"<{len(packed)}I", *packed)


def wide_column(values: Iterable[int]) -> bytes:
    packed = list(values)
    return struct.pack(f"<{len(packed)}Q", *packed)
