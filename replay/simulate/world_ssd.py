"""The simulated page file: what stands in its slots, what its directory says, and what a power loss takes.

Slots hold identities instead of bytes. It knows no kernel and no chores; `world` reads and writes it.
Whatever was written since the last `sync` may be gone, or rotten, after a power loss.
"""

import struct
from collections.abc import Sequence
from random import Random

import attrs

from orbitkv.events import commands
from orbitkv.events.config import KernelConfig
from orbitkv.events.ids import ALIGNMENT_BYTES
from replay.simulate.faults import Faults


@attrs.frozen
class Identity:
    """What a page image says of itself in its trailer."""

    namespace_digest: bytes
    group: int
    key: bytes
    incarnation: int
    generation: int


@attrs.define
class Image:
    """One slot of the page file: what stands in it, and what the directory says of it."""

    identity: Identity
    entry: Identity
    footprint_bytes: int
    rotten: bool = False


def u32(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def u64(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


class SimulatedSsd:
    """One page file; it outlives every process. All randomness is the caller's."""

    def __init__(self, random: Random, config: KernelConfig, faults: Faults) -> None:
        self.random = random
        self.config = config
        self.faults = faults
        self.disk: dict[int, Image] = {}
        self.condemned: set[int] = set()
        self.segments: dict[int, int] = {}
        """Segment to slot bytes."""
        self._unsynced: dict[int, None] = {}

    def sync(self) -> None:
        """What was written until now survives a power loss."""
        self._unsynced.clear()

    def write(self, slot: int, identity: Identity, footprint_bytes: int) -> None:
        self.disk[slot] = Image(identity, identity, footprint_bytes)
        self._unsynced[slot] = None

    def clear(self, slot: int) -> None:
        self.disk.pop(slot, None)

    def spoil(self, slot: int) -> None:
        """Bits rot, and now and then two slots change places."""
        if self.faults.strikes("rotten_slot", self.random):
            self.disk[slot].rotten = True
        if self.faults.strikes("swapped_slots", self.random):
            other = self.random.choice(list(self.disk))
            one, two = self.disk[slot], self.disk[other]
            if one.footprint_bytes == two.footprint_bytes:
                one.identity, two.identity = two.identity, one.identity

    def format(self, segment: int, slot_bytes: int) -> None:
        self.segments[segment] = slot_bytes
        for slot in [slot for slot in self.disk if self.segment_of(slot) == segment]:
            del self.disk[slot]
        self.condemned = {slot for slot in self.condemned if self.segment_of(slot) != segment}

    def segment_of(self, slot: int) -> int:
        return slot // self.config.ssd_slots_per_segment_max

    # --- trouble, and what a restart finds -------------------------------------------------------------

    def lose_power(self) -> None:
        """Of every unsynced slot: all is there, the directory alone is, or neither."""
        for slot in self._unsynced:
            if slot in self.disk:
                roll = self.random.random()
                if roll < 0.3:
                    del self.disk[slot]
                elif roll < 0.6:
                    self.disk[slot].rotten = True
        self._unsynced.clear()

    def copy_one_slot(self) -> None:
        """As two writers of one key would leave it: a second image of a page in a free slot."""
        slot = self.random.choice(list(self.disk))
        segment = self.segment_of(slot)
        first = segment * self.config.ssd_slots_per_segment_max
        count = min(
            self.config.ssd_slots_per_segment_max, self.config.ssd_segment_bytes // self.segments[segment]
        )
        free = [
            other
            for other in range(first, first + count)
            if other not in self.disk and other not in self.condemned
        ]
        if free:
            self.disk[self.random.choice(free)] = attrs.evolve(self.disk[slot])

    def directory(self) -> list[commands.RecoverSegment]:
        """What a successor reads at its start, a command per segment."""
        return [self._segment_found(segment) for segment in sorted(self.segments)]

    def _segment_found(self, segment: int) -> commands.RecoverSegment:
        slots = sorted(slot for slot in self.disk if self.segment_of(slot) == segment)
        images = [self.disk[slot] for slot in slots]
        scopes = sorted({(image.entry.namespace_digest, image.entry.group) for image in images})
        return commands.RecoverSegment(
            segment=segment,
            slot_bytes=self.segments[segment],
            slots=u32(slots),
            spaces=u32([scopes.index((image.entry.namespace_digest, image.entry.group)) for image in images]),
            scopes=tuple(scopes),
            keys=tuple(image.entry.key for image in images),
            generations=u64([image.entry.generation for image in images]),
            incarnations=u32([image.entry.incarnation for image in images]),
            footprints=u32([image.footprint_bytes // ALIGNMENT_BYTES for image in images]),
            quarantined=u32(sorted(slot for slot in self.condemned if self.segment_of(slot) == segment)),
        )
