"""Takes facts with lists in them apart: one row for each part, range or group, as the tables want them.

Each function is given a fact as it stands in the log, an array that begins with its tag, and gives rows in
the order of the columns that `replay.warehouse.tables` declares for it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np

from orbitkv.events.config import KernelConfig

Row: TypeAlias = Sequence[Any]

_COUNTING = np.arange(4096, dtype="<u4").tobytes()
"""0, 1, 2 ... as a packed column, as long as most queries need."""
_CONFIG_FIELDS = tuple(field.name for field in msgspec.structs.fields(KernelConfig))


def config(fact: Row) -> Iterator[Row]:
    _, incarnation, _, settings, *_ = fact
    known = msgspec.convert(settings, KernelConfig)
    yield (incarnation, *(getattr(known, name) for name in _CONFIG_FIELDS))


def rank_groups(fact: Row) -> Iterator[Row]:
    _, session, instance, rank, _, _, _, groups, *_ = fact
    for group, page_tokens, _ in groups:
        yield session, instance, rank, group, page_tokens


def rank_slices(fact: Row) -> Iterator[Row]:
    _, session, instance, rank, _, _, _, groups, *_ = fact
    for group, _, slices in groups:
        for name, payload_bytes, *replicated in slices:
            yield session, instance, rank, group, name, payload_bytes, bool(replicated and replicated[0])


def instance_groups(fact: Row) -> Iterator[Row]:
    _, instance, _, groups, *_ = fact
    for group in groups:
        yield instance, *group


def parts(fact: Row) -> Iterator[Row]:
    return _parts(fact[1], fact[10])


def hint_parts(fact: Row) -> Iterator[Row]:
    return _parts(fact[1], fact[10])


def _parts(operation: int, given: Row) -> Iterator[Row]:
    for number, part in enumerate(given):
        yield operation, number, *part


def hint_pages(fact: Row) -> Iterator[Row]:
    return _numbered_pages(fact[1], fact[11])


def waiting_pages(fact: Row) -> Iterator[Row]:
    return _numbered_pages(fact[1], fact[2])


def waiting_unknown(fact: Row) -> Iterator[Row]:
    return _numbered_pages(fact[1], fact[3])


def _numbered_pages(operation: int, by_part: Row) -> Iterator[Row]:
    for number, pages in enumerate(by_part):
        yield operation, number, 0, pages


def granted_reach(fact: Row) -> Iterator[Row]:
    return _reach(fact[1], fact[3])


def cut_reach(fact: Row) -> Iterator[Row]:
    return _reach(fact[1], fact[2])


def _reach(operation: int, by_part: Row) -> Iterator[Row]:
    for number, reach in enumerate(by_part):
        yield operation, number, reach


def granted_hits(fact: Row) -> Iterator[Row]:
    _, operation, _, _, positions, buffers, *_ = fact
    yield operation, positions or counting(len(buffers)), buffers


def synced_ranges(fact: Row) -> Iterator[Row]:
    _, lease, rank, ranges, *_ = fact
    for first, end in ranges:
        yield lease, rank, first, end


def dropped_buffers(fact: Row) -> Iterator[Row]:
    _, reason, _, buffers, *_ = fact
    yield reason, buffers


def counting(size_bytes: int) -> bytes:
    """0, 1, 2 ... as a packed column of so many bytes."""
    if size_bytes <= len(_COUNTING):
        return _COUNTING[:size_bytes]
    return np.arange(size_bytes // 4, dtype="<u4").tobytes()
