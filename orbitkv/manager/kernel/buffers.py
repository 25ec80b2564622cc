"""Buffers: DRAM allocations, one row each, and the order in which they are given up.

A buffer is *indexed* while lookups of its page find it (`queue` >= 0), *held* by queries, leases and
copies (`holds`), and *busy* while a device or a carrier reads or writes its memory. It is freed when
it is none of the three. Row numbers are reused; `generation` is not.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from orbitkv.events.outcomes import PageClass
from orbitkv.manager.kernel.columns import (
    EMPTY,
    ONE,
    Array,
    Ints,
    distinct,
    grown,
    highest,
    is_uniform,
    lowest,
)
from orbitkv.manager.kernel.recency import TouchQueue

_RETAINED = PageClass.RETAINED


class Busy:
    """Why the memory of a buffer may not be reused although nobody holds it: bits of `busy`.

    Plain ints: an IntFlag costs a microsecond for every page that it touches.
    """

    READING: Final = 1
    FILLING: Final = 2
    """Ranks fill it, the carrier copies into it or seals it."""
    WRITING: Final = 4
    """The SSD reads it."""


_BITS = {bit: np.array(bit, np.int8) for bit in (Busy.READING, Busy.FILLING, Busy.WRITING)}
_OTHER_BITS = {bit: np.array(~bit, np.int8) for bit in _BITS}


class BufferTable:
    """Columns by buffer number."""

    __slots__ = (
        "busy",
        "cohort",
        "footprint",
        "free",
        "generation",
        "holds",
        "landed_ns",
        "last",
        "offset",
        "origin",
        "page",
        "queue",
        "queue_numbers",
        "queues",
        "rows",
        "slot_bytes",
    )

    def __init__(self) -> None:
        self.rows = 0
        self.free: list[int] = []
        self.page: Array = np.full(64, -1, np.int64)
        self.offset: Array = np.zeros(64, np.int64)
        self.slot_bytes: Array = np.zeros(64, np.int64)
        self.footprint: Array = np.zeros(64, np.int64)
        self.generation: Array = np.zeros(64, np.int64)
        self.holds: Array = np.zeros(64, np.int32)
        self.busy: Array = np.zeros(64, np.int8)
        self.queue: Array = np.full(64, -1, np.int16)
        self.last: Array = np.zeros(64, np.int64)
        self.landed_ns: Array = np.zeros(64, np.int64)
        self.origin: Array = np.zeros(64, np.int8)
        self.cohort: Array = np.zeros(64, np.int8)
        """0: not prepared; 1: prepared, outcome open; 2: its outcome is known."""
        self.queue_numbers: dict[tuple[int, int], int] = {}
        """(page class, slot bytes) -> position in `queues`."""
        self.queues: list[TouchQueue] = []

    def live_count(self) -> int:
        return self.rows - len(self.free)

    def live(self) -> Ints:
        return np.flatnonzero(self.page[: self.rows] >= 0)

    def in_queues(self, numbers: Iterable[int]) -> Ints:
        """Rows of the indexed buffers of these queues, in rising order."""
        queues = self.queue[: self.rows]
        there = np.zeros(self.rows, np.bool_)
        for number in numbers:
            there |= queues == number
        return there.nonzero()[0]

    def next_numbers(self, count: int) -> list[int]:
        """The rows that the next `count` allocations take."""
        reused = self.free[: -count - 1 : -1]
        return reused + list(range(self.rows, self.rows + count - len(reused)))

    def allocate(
        self,
        buffers: Ints,
        pages: Ints,
        offsets: Ints,
        slot_bytes: int,
        footprint_bytes: int,
        generation: int,
    ) -> None:
        count = len(buffers)
        assert self.next_numbers(count) == buffers.tolist(), "buffer rows are reused last in, first out"
        reused = min(count, len(self.free))
        del self.free[len(self.free) - reused :]
        self.rows += count - reused
        if self.rows > len(self.page):
            self._grow(self.rows)
        self.page[buffers] = pages
        self.offset[buffers] = offsets
        self.slot_bytes[buffers] = slot_bytes
        self.footprint[buffers] = footprint_bytes
        self.generation[buffers] = np.arange(generation, generation + count)

    def release(self, buffers: Ints) -> None:
        assert not highest(self.holds[buffers]) and not highest(self.busy[buffers]), (
            "a freed buffer is nobody's"
        )
        assert highest(self.queue[buffers]) < 0 <= lowest(self.page[buffers]), "freed once, unindexed"
        self.page[buffers] = -1
        self.generation[buffers] = 0
        self.last[buffers] = 0
        self.landed_ns[buffers] = 0
        self.cohort[buffers] = 0
        self.free.extend(buffers.tolist())

    def hold(self, buffers: Ints) -> None:
        """One more holds each of them; none is named twice."""
        self.holds[buffers] += ONE

    def let_go(self, buffers: Ints) -> None:
        """One less holds each of them; none is named twice."""
        self.holds[buffers] -= ONE

    def set_busy(self, buffers: Ints, why: int) -> None:
        self.busy[buffers] |= _BITS[why]

    def clear_busy(self, buffers: Ints, why: int) -> None:
        self.busy[buffers] &= _OTHER_BITS[why]

    def enter_queue(self, buffers: Ints, page_class: PageClass, seq: int) -> None:
        """Index buffers of one size in their class, most recent first in `buffers`."""
        queue = self.queue_for(page_class, int(self.slot_bytes[buffers[0]]))
        self.queue[buffers] = queue.number
        self.last[buffers] = seq
        queue.append(buffers[::-1], seq, self)

    def touch(self, buffers: Ints, seq: int) -> None:
        """Make them recent, the first of `buffers` most. What this record touched before moves again."""
        last = self.last[buffers]
        if highest(last) == seq:
            for number, group in self.by_queue(buffers[last == seq]):
                self.queues[number].withdraw(group, seq)
        self.last[buffers] = seq
        for number, group in self.by_queue(buffers):
            self.queues[number].append(group[::-1], seq, self)

    def by_queue(self, buffers: Ints) -> list[tuple[int, Ints]]:
        """`buffers` split by the queue they are in, order kept."""
        numbers = self.queue[buffers]
        if is_uniform(numbers):
            return [(int(numbers.item(0)), buffers)]
        return [(number, buffers[numbers == number]) for number in distinct(numbers).tolist()]

    def by_size(self, buffers: Ints) -> list[Ints]:
        sizes = self.slot_bytes[buffers]
        if not len(buffers):
            return []
        if is_uniform(sizes):
            return [buffers]
        return [buffers[sizes == size] for size in distinct(sizes).tolist()]

    def queue_for(self, page_class: PageClass, slot_bytes: int) -> TouchQueue:
        number = self.queue_numbers.get((page_class, slot_bytes))
        if number is None:
            number = len(self.queues)
            self.queue_numbers[page_class, slot_bytes] = number
            self.queues.append(TouchQueue(number, page_class))
        return self.queues[number]

    def below_retained(self, buffers: Ints) -> Ints:
        """Those of the indexed `buffers` that are in a lower class."""
        numbers = self.queue[buffers]
        if is_uniform(numbers):
            return EMPTY if self.queues[numbers.item(0)].page_class == _RETAINED else buffers
        lower = np.array([queue.page_class != _RETAINED for queue in self.queues], np.bool_)
        return buffers[lower[numbers]]

    def _grow(self, size: int) -> None:
        self.page = grown(self.page, size, -1)
        self.queue = grown(self.queue, size, -1)
        for name in (
            "offset",
            "slot_bytes",
            "footprint",
            "generation",
            "holds",
            "busy",
            "last",
            "landed_ns",
            "origin",
            "cohort",
        ):
            setattr(self, name, grown(getattr(self, name), size, 0))
