"""Who owns which bytes of the DRAM pool: superblocks, each free or carved into slots of one size.

The pool is cut into superblocks of equal size. A free superblock is carved when a page size finds no
free slot, and is free again when its last slot has been given back, so that any page size can have it
next. Slots of one size never mix with another's, hence there is no fragmentation inside a superblock
beyond its tail (`superblock_bytes % slot_bytes`).

Two halves that must not be confused: `plan` asks and changes nothing; `carve`, `take`, `give` and
`uncarve` change, are called by `apply` only, and assert that the facts fit. A plan is good until the
next change. Everything is last in, first out, so the same facts always lead to the same plans.

This file does no I/O, knows no page and no key, and never waits.
"""

from array import array
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from orbitkv.events.ids import ALIGNMENT_BYTES


class Plan(msgspec.Struct):
    """What has to become true, in this order: `carve` these superblocks, then `take` these offsets.

    A msgspec struct although it never leaves memory: an attrs class takes twice as long to make, which
    would be a tenth of an allocation.
    """

    carve: list[int]
    offsets: list[int]


class SuperblocksSnapshot(msgspec.Struct, array_like=True, frozen=True):
    """The allocator as plain values. Columns are packed little-endian: u64 bytes and offsets, u32 numbers."""

    pool_bytes: int
    superblock_bytes: int
    carved: bytes
    """u64 per superblock: its slot size, 0 for a free one."""
    free: bytes
    """u32: free superblocks, the next to be carved last."""
    room: tuple[tuple[int, bytes], ...]
    """(slot size, u32 superblocks that have a free slot, the next to be used last), by rising size."""
    free_slots: tuple[tuple[int, bytes], ...]
    """(superblock, u64 offsets of its free slots, the next to be taken last), by rising superblock."""


class Superblocks:
    """The allocator. All sizes and offsets are bytes; offsets count from the start of the pool.

    Slot and superblock sizes are multiples of ALIGNMENT_BYTES, so that one byte per aligned block is
    enough to tell for any offset whether a slot is taken there.
    """

    __slots__ = (
        "_carved",
        "_empty",
        "_free",
        "_room",
        "_stacks",
        "_taken",
        "_used_bytes",
        "pool_bytes",
        "superblock_bytes",
    )

    def __init__(self, pool_bytes: int, superblock_bytes: int) -> None:
        count = pool_bytes // superblock_bytes
        self.pool_bytes = pool_bytes
        self.superblock_bytes = superblock_bytes
        self._carved = [0] * count
        self._free = array("I", range(count - 1, -1, -1))
        self._room: dict[int, list[int]] = {}
        self._stacks: list[array[int]] = [array("Q") for _ in range(count)]
        self._taken = bytearray(pool_bytes // ALIGNMENT_BYTES)
        self._empty: dict[int, None] = {}
        self._used_bytes = 0

    # --- asking --------------------------------------------------------------------------------------

    @property
    def carved(self) -> Sequence[int]:
        """Slot size by superblock; 0 for a free one. To be read only."""
        return self._carved

    @property
    def used_bytes(self) -> int:
        """Bytes of all slots that are taken."""
        return self._used_bytes

    def slots_per_superblock(self, slot_bytes: int) -> int:
        """0 means that a slot of this size can never be had: it is larger than a superblock."""
        return self.superblock_bytes // slot_bytes

    def taken_slots(self, superblock: int) -> int:
        """How many slots of a carved superblock are taken."""
        return self.superblock_bytes // self._carved[superblock] - len(self._stacks[superblock])

    def free_slots(self, slot_bytes: int) -> int:
        """How many slots of this size could be taken now, those of free superblocks included."""
        carved = sum(len(self._stacks[superblock]) for superblock in self._room.get(slot_bytes, ()))
        return carved + len(self._free) * self.slots_per_superblock(slot_bytes)

    def largest_free_bytes(self) -> int:
        """The longest run of free superblocks; where there is none, the largest free slot; 0 when full."""
        longest = run = 0
        if self._free:
            for slot_bytes in self._carved:
                run = 0 if slot_bytes else run + 1
                longest = max(longest, run)
            return longest * self.superblock_bytes
        return max((slot_bytes for slot_bytes, room in self._room.items() if room), default=0)

    def empty_carved(self) -> list[int]:
        """Carved superblocks with no slot taken, in rising order: they may be uncarved."""
        return sorted(self._empty)

    def plan(self, slot_bytes: int, count: int) -> Plan | None:
        """Where `count` slots would come from, all or nothing; None when they do not fit now."""
        room = self._room.get(slot_bytes, ())
        if room and count == 1:  # by far the most frequent question
            return Plan([], [self._stacks[room[-1]][-1]])
        offsets: list[int] = []
        missing = count
        for superblock in reversed(room):
            stack = self._stacks[superblock]
            offsets += stack[: -missing - 1 : -1]
            missing = count - len(offsets)
            if not missing:
                return Plan([], offsets)
        per_superblock = self.superblock_bytes // slot_bytes
        if missing > len(self._free) * per_superblock:
            return None
        carve = self._next_free(-(-missing // per_superblock)) if missing else []
        for superblock in carve:
            base = superblock * self.superblock_bytes
            slots = min(missing, per_superblock)
            offsets += range(base, base + slots * slot_bytes, slot_bytes)
            missing -= slots
        return Plan(carve, offsets)

    def _next_free(self, count: int) -> list[int]:
        return list(self._free[: -count - 1 : -1])

    # --- changing: called when facts are applied ------------------------------------------------------

    def carve(self, superblock: int, slot_bytes: int) -> None:
        """SuperblockCarved. Used after the superblocks of this size that already have room."""
        count = self.slots_per_superblock(slot_bytes)
        assert count, f"a slot of {slot_bytes} bytes is larger than a superblock"
        assert slot_bytes % ALIGNMENT_BYTES == 0, f"a slot of {slot_bytes} bytes is not aligned"
        next_free = self._free[-1] if self._free else None
        assert next_free == superblock, f"superblock {superblock} is not the next free one, {next_free} is"
        self._free.pop()
        base = superblock * self.superblock_bytes
        self._carved[superblock] = slot_bytes
        self._stacks[superblock] = array("Q", range(base + (count - 1) * slot_bytes, base - 1, -slot_bytes))
        self._room.setdefault(slot_bytes, []).insert(0, superblock)
        self._empty[superblock] = None

    def take(self, offsets: Iterable[int]) -> None:
        """BuffersAllocated. The offsets of a plan, in its order."""
        size, stacks, taken = self.superblock_bytes, self._stacks, self._taken
        carved, empty, used_bytes = self._carved, self._empty, 0
        for offset in offsets:
            superblock = offset // size
            stack = stacks[superblock]
            next_free = stack.pop() if stack else None
            assert next_free == offset, f"offset {offset} is not the next free slot, {next_free} is"
            taken[offset // ALIGNMENT_BYTES] = 1
            used_bytes += carved[superblock]
            if superblock in empty:
                del empty[superblock]
            if not stack:
                room = self._room[carved[superblock]]
                assert room[-1] == superblock, f"superblock {superblock} is not the first choice for its size"
                room.pop()
        self._used_bytes += used_bytes

    def give(self, offsets: Iterable[int]) -> None:
        """BuffersFreed. Slots that are taken, in any order."""
        size, stacks, taken = self.superblock_bytes, self._stacks, self._taken
        for offset in offsets:
            block = offset // ALIGNMENT_BYTES
            assert taken[block], f"no slot is taken at offset {offset}"
            taken[block] = 0
            superblock = offset // size
            slot_bytes = self._carved[superblock]
            self._used_bytes -= slot_bytes
            stack = stacks[superblock]
            if not stack:
                self._room[slot_bytes].append(superblock)
            stack.append(offset)
            if len(stack) == size // slot_bytes:
                self._empty[superblock] = None

    def uncarve(self, superblock: int) -> None:
        """SuperblockReturned. Only for an empty one; it is the next to be carved."""
        assert superblock in self._empty, f"superblock {superblock} is not empty"
        del self._empty[superblock]
        self._room[self._carved[superblock]].remove(superblock)
        self._carved[superblock] = 0
        self._stacks[superblock] = array("Q")
        self._free.append(superblock)

    # --- the whole ----------------------------------------------------------------------------------

    def snapshot(self) -> SuperblocksSnapshot:
        """Equal allocators give equal snapshots."""
        return SuperblocksSnapshot(
            self.pool_bytes,
            self.superblock_bytes,
            array("Q", self._carved).tobytes(),
            self._free.tobytes(),
            tuple((size, array("I", room).tobytes()) for size, room in sorted(self._room.items()) if room),
            tuple((number, stack.tobytes()) for number, stack in enumerate(self._stacks) if stack),
        )

    @classmethod
    def restore(cls, snapshot: SuperblocksSnapshot) -> "Superblocks":
        new = cls(snapshot.pool_bytes, snapshot.superblock_bytes)
        new._carved = list(array("Q", snapshot.carved))
        new._free = array("I", snapshot.free)
        new._room = {slot_bytes: [] for slot_bytes in new._carved if slot_bytes}
        new._room |= {slot_bytes: list(array("I", room)) for slot_bytes, room in snapshot.room}
        for superblock, offsets in snapshot.free_slots:
            new._stacks[superblock] = array("Q", offsets)
        for superblock, slot_bytes in enumerate(new._carved):
            if slot_bytes:
                new._restore_taken(superblock, slot_bytes)
        return new

    def _restore_taken(self, superblock: int, slot_bytes: int) -> None:
        free = set(self._stacks[superblock])
        base = superblock * self.superblock_bytes
        count = self.slots_per_superblock(slot_bytes)
        for offset in range(base, base + count * slot_bytes, slot_bytes):
            self._taken[offset // ALIGNMENT_BYTES] = offset not in free
        self._used_bytes += (count - len(free)) * slot_bytes
        if len(free) == count:
            self._empty[superblock] = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Superblocks) and self.snapshot() == other.snapshot()

    __hash__ = None  # type: ignore[assignment]  # mutable: must not be a key

    def __repr__(self) -> str:
        carved = len(self._carved) - len(self._free)
        return f"<Superblocks {carved}/{len(self._carved)} carved, {self._used_bytes} bytes used>"


def coldest_superblock(
    blocks: Superblocks,
    slot_bytes: int,
    offsets: npt.NDArray[np.int64],
    last_seqs: npt.NDArray[np.int64],
    held: npt.NDArray[np.bool_],
) -> int | None:
    """The superblock of another size that is best emptied to make room for `slot_bytes`, or None.

    The three arrays have one row for every taken slot: where it lies, when it was last used (any
    integers of which the lower goes first), and whether somebody holds it. A superblock with a held
    slot is never chosen, as emptying it would not return it. Coldest is the lowest mean recency: by
    the maximum, one page still in use keeps a whole superblock of old ones (up to 6 % fewer hits in
    the mixes of `benches/pool.py`), and a median gains nothing for its sorting. Ties go to the lowest
    superblock. Costs about 4 ms for 10^6 rows, once for each superblock that changes its size.
    """
    count = len(blocks.carved)
    where = offsets // blocks.superblock_bytes
    taken = np.bincount(where, minlength=count)
    held_slots = np.bincount(where[held], minlength=count)
    carved = np.array(blocks.carved, dtype=np.int64)
    candidates = np.flatnonzero((carved != slot_bytes) & (taken > 0) & (held_slots == 0))
    if not len(candidates):
        return None
    recency = np.zeros(count, dtype=np.int64)
    np.add.at(recency, where, last_seqs)
    return int(candidates[np.argmin(recency[candidates] // taken[candidates])])
