"""SSD slots: fixed segments, one slot size each, reclaimed segment by segment.

A slot is FREE, WRITING (assigned, not findable), WRITTEN (findable while its page points to it) or
QUARANTINED (rotten: counts in the cap, never used again). A segment is free, open, or draining: a
draining one takes no page and is returned when nothing in it is in flight. Capacity is whole segments,
so the cap holds by construction.
"""

from collections.abc import Iterable
from enum import IntEnum

import attrs
import numpy as np

from orbitkv.manager.kernel.columns import Array


class SlotState(IntEnum):
    FREE = 0
    WRITING = 1
    WRITTEN = 2
    QUARANTINED = 3


@attrs.define(slots=True)
class Segment:
    slot_bytes: int
    touched: int
    """Seq of the last record that opened it or read from it."""
    draining: bool
    in_flight: int
    """Reads and writes submitted and not yet ended."""
    state: Array
    page: Array
    generation: Array
    incarnation: Array
    failures: Array
    readers: list[int]
    """Reads in flight by place."""
    free: list[int]
    """Free places, used last in, first out."""

    @property
    def slots(self) -> int:
        return len(self.state)

    def written_count(self) -> int:
        return int((self.state == SlotState.WRITTEN).sum())


def new_segment(slot_bytes: int, segment_bytes: int, slots_max: int, touched: int) -> Segment:
    count = min(segment_bytes // slot_bytes, slots_max)
    return Segment(
        slot_bytes=slot_bytes,
        touched=touched,
        draining=False,
        in_flight=0,
        state=np.zeros(count, np.int8),
        page=np.full(count, -1, np.int64),
        generation=np.zeros(count, np.int64),
        incarnation=np.zeros(count, np.int64),
        failures=np.zeros(count, np.int8),
        readers=[0] * count,
        free=list(range(count - 1, -1, -1)),
    )


class SlotTable:
    __slots__ = ("segment_bytes", "segments", "segments_max", "slots_max")

    def __init__(self, ssd_bytes: int, segment_bytes: int, slots_max: int) -> None:
        self.segments_max = ssd_bytes // segment_bytes
        self.segment_bytes = segment_bytes
        self.slots_max = slots_max
        self.segments: dict[int, Segment] = {}
        """Open and draining segments by number."""

    def place(self, slot: int) -> tuple[int, int]:
        """(segment, index in it)"""
        return divmod(slot, self.slots_max)

    def find(self, slot: int) -> tuple[Segment, int]:
        """The slot's segment and its place there."""
        return self.segments[slot // self.slots_max], slot % self.slots_max

    def begin_reads(self, slots: Iterable[int], seq: int) -> None:
        for slot in slots:
            segment = self.segments[slot // self.slots_max]
            segment.in_flight += 1
            segment.readers[slot % self.slots_max] += 1
            segment.touched = seq

    def end_reads(self, slots: Iterable[int]) -> None:
        for slot in slots:
            segment = self.segments[slot // self.slots_max]
            segment.in_flight -= 1
            segment.readers[slot % self.slots_max] -= 1

    def segment_of(self, slot: int) -> Segment:
        return self.segments[slot // self.slots_max]

    def number(self, segment: int, index: int) -> int:
        return segment * self.slots_max + index

    def file_offset(self, slot: int) -> int:
        segment, index = self.place(slot)
        return segment * self.segment_bytes + index * self.segments[segment].slot_bytes

    def unopened(self) -> int | None:
        """The lowest segment number that is not open."""
        if len(self.segments) >= self.segments_max:
            return None
        return next(number for number in range(self.segments_max) if number not in self.segments)

    def free_slots(self, slot_bytes: int, count: int) -> list[int]:
        """Up to `count` free slots of one size, in the order in which they are to be assigned."""
        found: list[int] = []
        for number in sorted(self.segments):
            segment = self.segments[number]
            if segment.slot_bytes != slot_bytes or segment.draining or not segment.free:
                continue
            base = number * self.slots_max
            found.extend(base + index for index in segment.free[: -(count - len(found)) - 1 : -1])
            if len(found) == count:
                break
        return found

    def coldest(self) -> int | None:
        """The open segment that was opened or read longest ago."""
        candidates = [(s.touched, n) for n, s in self.segments.items() if not s.draining]
        return min(candidates)[1] if candidates else None

    def quarantined_count(self) -> int:
        return sum(int((s.state == SlotState.QUARANTINED).sum()) for s in self.segments.values())

    def used_bytes(self) -> int:
        """Bytes of slots that hold, or are about to hold, or can no longer hold a page."""
        return sum(int((s.state != SlotState.FREE).sum()) * s.slot_bytes for s in self.segments.values())
