"""Shifting mixes of page sizes under LRU: the superblock policy beside general first-fit extents.

A model, not the manager: keys, hits and evictions are the kernel's rules in miniature around the
kernel's own allocator, so that millions of requests take seconds. No byte is copied.
"""

import random
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Protocol

import attrs
import numpy as np

from orbitkv.manager.kernel.superblocks import Superblocks, coldest_superblock

KIB, MIB = 1 << 10, 1 << 20
TRAILER_BYTES = 4096
SMALL, MEDIUM, MIDDLE, LARGE = (
    footprint + TRAILER_BYTES for footprint in (256 * KIB, MIB, 2304 * KIB, 9 * MIB)
)
SIZES = (SMALL, MEDIUM, MIDDLE, LARGE)
REUSE = 0.5
"""Share of requests that name a page seen before; how far back is skewed to the recent."""

Page = tuple[int, int]
"""(key, image bytes)"""
SizeAt = Callable[[random.Random, float], int]
"""Size of the next new page when so many pools' worth of bytes have been requested."""


def _waves(rng: random.Random, pools: float) -> int:
    return (SMALL, MIDDLE, LARGE)[int(pools / 1.5) % 3]


def _mixed(rng: random.Random, pools: float) -> int:
    """Equal bytes of all four sizes, but for one that has three times its share for a pool's worth."""
    weights = [1 / size for size in SIZES]
    weights[int(pools) % len(SIZES)] *= 3
    return rng.choices(SIZES, weights)[0]


def _alternation(rng: random.Random, pools: float) -> int:
    return (SMALL, LARGE)[int(pools * 16) % 2]


MIXES: dict[str, tuple[SizeAt, str]] = {
    "waves": (_waves, "256K, then 2.25M, then 9M, and again; each for 1.5 pools' worth"),
    "mixed": (_mixed, "256K, 1M, 2.25M and 9M together; each in turn in fashion for a pool's worth"),
    "alternation": (_alternation, "256K and 9M taking turns every sixteenth of a pool"),
}


def requests(size_at: SizeAt, pool_bytes: int, pools: float, seed: int) -> Iterator[Page]:
    rng = random.Random(seed)
    seen: list[Page] = []
    asked_bytes = 0
    while asked_bytes < pools * pool_bytes:
        if seen and rng.random() < REUSE:
            page = seen[-1 - int(len(seen) * rng.random() ** 4)]
        else:
            page = (len(seen), size_at(rng, asked_bytes / pool_bytes))
            seen.append(page)
        asked_bytes += page[1]
        yield page


@attrs.define
class Outcome:
    requested_bytes: int = 0
    """Of misses: what had to be allocated."""
    evicted_bytes: int = 0
    hit_bytes: int = 0
    first_eviction_bytes: int = 0
    """Resident when something had to go for the first time."""
    requested_then_bytes: int = 0
    """Requested until then."""
    largest_eviction_bytes: int = 0
    """Given up for one request."""
    worst_window: float = 0.0
    """Highest evicted / requested over any stretch of requests worth half a pool."""

    @property
    def evicted_per_requested(self) -> float:
        """From the first eviction on, so that the filling of the empty pool does not flatter it."""
        return self.evicted_bytes / (self.requested_bytes - self.requested_then_bytes)

    def note_pressure(self, resident_bytes: int) -> None:
        """Something must go now."""
        if not self.first_eviction_bytes:
            self.first_eviction_bytes = resident_bytes
            self.requested_then_bytes = self.requested_bytes


class PoolModel(Protocol):
    outcome: Outcome

    @property
    def resident_bytes(self) -> int: ...

    def touch(self, page: Page) -> bool:
        """True when it was there; it is the most recent now."""

    def insert(self, page: Page) -> None:
        """Take room for it, evicting as needed."""


def drive(pool: PoolModel, stream: Iterator[Page], window_bytes: int) -> Outcome:
    outcome = pool.outcome
    requested_bytes = evicted_bytes = 0
    for page in stream:
        if pool.touch(page):
            outcome.hit_bytes += page[1]
            continue
        before_bytes = outcome.evicted_bytes
        pool.insert(page)
        outcome.requested_bytes += page[1]
        eviction_bytes = outcome.evicted_bytes - before_bytes
        outcome.largest_eviction_bytes = max(outcome.largest_eviction_bytes, eviction_bytes)
        if outcome.requested_bytes - requested_bytes >= window_bytes:
            ratio = (outcome.evicted_bytes - evicted_bytes) / (outcome.requested_bytes - requested_bytes)
            outcome.worst_window = max(outcome.worst_window, ratio)
            requested_bytes, evicted_bytes = outcome.requested_bytes, outcome.evicted_bytes
    return outcome


class SuperblockPool:
    """LRU with one queue a size. A size that finds no room takes the coldest superblock of another one
    when the oldest page of all is of another size, else gives up its own oldest page."""

    def __init__(self, pool_bytes: int, superblock_bytes: int) -> None:
        self.outcome = Outcome()
        self._blocks = Superblocks(pool_bytes, superblock_bytes)
        self._queues: dict[int, OrderedDict[int, None]] = {}
        self._sizes: list[int] = []
        self._offsets = np.zeros(0, np.int64)
        self._last = np.zeros(0, np.int64)
        self._live = np.zeros(0, np.bool_)
        self._seq = 0

    @property
    def resident_bytes(self) -> int:
        return self._blocks.used_bytes

    def touch(self, page: Page) -> bool:
        key, size = page
        self._seq += 1
        queue = self._queues.setdefault(size, OrderedDict())
        if key not in queue:
            return False
        queue.move_to_end(key)
        self._last[key] = self._seq
        return True

    def insert(self, page: Page) -> None:
        key, size = page
        self._grow(key)
        while (plan := self._blocks.plan(size, 1)) is None:
            self._make_room(size)
        for superblock in plan.carve:
            self._blocks.carve(superblock, size)
        self._blocks.take(plan.offsets)
        self._queues[size][key] = None
        self._sizes[key] = size
        self._offsets[key], self._last[key], self._live[key] = plan.offsets[0], self._seq, True

    def _make_room(self, size: int) -> None:
        empty = self._blocks.empty_carved()
        for superblock in empty:
            self._blocks.uncarve(superblock)
        if empty:
            return
        self.outcome.note_pressure(self.resident_bytes)
        oldest = {of: self._last[next(iter(queue))] for of, queue in self._queues.items() if queue}
        if min(oldest, key=lambda of: oldest[of]) != size:
            live = np.flatnonzero(self._live)
            held = np.zeros(len(live), np.bool_)
            offsets = self._offsets[live]
            coldest = coldest_superblock(self._blocks, size, offsets, self._last[live], held)
            assert coldest is not None
            for key in live[offsets // self._blocks.superblock_bytes == coldest].tolist():
                self._evict(key)
            self._blocks.uncarve(coldest)
        else:
            self._evict(next(iter(self._queues[size])))

    def _evict(self, key: int) -> None:
        size = self._sizes[key]
        del self._queues[size][key]
        self._live[key] = False
        self._blocks.give((int(self._offsets[key]),))
        self.outcome.evicted_bytes += size

    def _grow(self, key: int) -> None:
        """Keys count from 0, and each new one is the next."""
        if key >= len(self._sizes):
            more = key + 1024
            self._sizes += [0] * (more - len(self._sizes))
            self._offsets = np.resize(self._offsets, more)
            self._last = np.resize(self._last, more)
            live = np.zeros(more, np.bool_)
            live[: len(self._live)] = self._live
            self._live = live


class Extents:
    """First-fit over a list of free ranges that joins neighbours: the general allocator."""

    def __init__(self, pool_bytes: int) -> None:
        self._free: list[tuple[int, int]] = [(0, pool_bytes)]
        self.used_bytes = 0

    def allocate(self, size: int) -> int | None:
        for index, (start, length) in enumerate(self._free):
            if length >= size:
                if length == size:
                    del self._free[index]
                else:
                    self._free[index] = (start + size, length - size)
                self.used_bytes += size
                return start
        return None

    def free(self, start: int, size: int) -> None:
        self.used_bytes -= size
        index = bisect_left(self._free, (start, 0))
        if index < len(self._free) and self._free[index][0] == start + size:
            size += self._free.pop(index)[1]
        if index and sum(self._free[index - 1]) == start:
            before, length = self._free.pop(index - 1)
            start, size = before, size + length
        insort(self._free, (start, size))


class ExtentPool:
    """One LRU queue over all sizes; the oldest page goes until a range is long enough."""

    def __init__(self, pool_bytes: int) -> None:
        self.outcome = Outcome()
        self._extents = Extents(pool_bytes)
        self._queue: OrderedDict[Page, int] = OrderedDict()

    @property
    def resident_bytes(self) -> int:
        return self._extents.used_bytes

    def touch(self, page: Page) -> bool:
        if page not in self._queue:
            return False
        self._queue.move_to_end(page)
        return True

    def insert(self, page: Page) -> None:
        while (offset := self._extents.allocate(page[1])) is None:
            self.outcome.note_pressure(self.resident_bytes)
            oldest, freed = self._queue.popitem(last=False)
            self._extents.free(freed, oldest[1])
            self.outcome.evicted_bytes += oldest[1]
        self._queue[page] = offset


class IdealPool:
    """LRU by bytes alone, as if memory could be cut into dust: the most that any allocator can give."""

    def __init__(self, pool_bytes: int) -> None:
        self.outcome = Outcome()
        self.resident_bytes = 0
        self._pool_bytes = pool_bytes
        self._queue: OrderedDict[Page, None] = OrderedDict()

    def touch(self, page: Page) -> bool:
        if page not in self._queue:
            return False
        self._queue.move_to_end(page)
        return True

    def insert(self, page: Page) -> None:
        while self.resident_bytes + page[1] > self._pool_bytes:
            self.outcome.note_pressure(self.resident_bytes)
            oldest, _ = self._queue.popitem(last=False)
            self.resident_bytes -= oldest[1]
            self.outcome.evicted_bytes += oldest[1]
        self._queue[page] = None
        self.resident_bytes += page[1]
