"""The pool allocator: plans that change nothing, changes that only assert, any size after any other."""

import msgspec
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orbitkv.manager.kernel.superblocks import Superblocks, SuperblocksSnapshot, coldest_superblock

UNIT = 4096
"""A unit that keeps the numbers below small; slots are multiples of 4 KiB."""


def allocate(blocks: Superblocks, slot_bytes: int, count: int) -> list[int]:
    plan = blocks.plan(slot_bytes, count)
    assert plan is not None
    for superblock in plan.carve:
        blocks.carve(superblock, slot_bytes)
    blocks.take(plan.offsets)
    return plan.offsets


def free(blocks: Superblocks, offsets: list[int]) -> None:
    blocks.give(offsets)
    for superblock in blocks.empty_carved():
        blocks.uncarve(superblock)


def test_the_first_page_carves_the_first_superblock():
    blocks = Superblocks(64 * UNIT, 16 * UNIT)
    plan = blocks.plan(5 * UNIT, 4)
    assert plan is not None
    assert plan.carve == [0, 1]
    assert plan.offsets == [0, 5 * UNIT, 10 * UNIT, 16 * UNIT]


def test_a_plan_changes_nothing():
    blocks = Superblocks(64 * UNIT, 16 * UNIT)
    allocate(blocks, 4 * UNIT, 3)
    before = blocks.snapshot()
    assert blocks.plan(4 * UNIT, 2) == blocks.plan(4 * UNIT, 2)
    blocks.plan(8 * UNIT, 5)
    assert blocks.snapshot() == before


def test_what_was_freed_last_is_taken_first():
    blocks = Superblocks(64 * UNIT, 16 * UNIT)
    offsets = allocate(blocks, 4 * UNIT, 8)
    free(blocks, [offsets[5], offsets[1]])
    assert allocate(blocks, 4 * UNIT, 2) == [offsets[1], offsets[5]]


def test_partly_used_superblocks_are_filled_before_another_is_carved():
    blocks = Superblocks(64 * UNIT, 16 * UNIT)
    first = allocate(blocks, 4 * UNIT, 4)
    free(blocks, [first[2]])
    plan = blocks.plan(4 * UNIT, 3)
    assert plan is not None
    assert plan.offsets == [first[2], 16 * UNIT, 20 * UNIT]
    assert plan.carve == [1]
    allocate(blocks, 4 * UNIT, 3)
    assert blocks.used_bytes == 24 * UNIT


def test_all_or_nothing():
    blocks = Superblocks(32 * UNIT, 16 * UNIT)
    assert blocks.plan(4 * UNIT, 9) is None
    assert blocks.plan(4 * UNIT, 8) is not None
    assert blocks.plan(17 * UNIT, 1) is None, "a page larger than a superblock never fits"
    assert blocks.free_slots(17 * UNIT) == 0
    assert blocks.plan(17 * UNIT, 0) is not None


def test_an_empty_superblock_serves_any_other_size():
    blocks = Superblocks(32 * UNIT, 16 * UNIT)
    small = allocate(blocks, 4 * UNIT, 8)
    assert blocks.plan(16 * UNIT, 1) is None
    free(blocks, small[:4])
    assert list(blocks.carved) == [0, 4 * UNIT]
    assert allocate(blocks, 16 * UNIT, 1) == [0]


def test_the_largest_free_region_counts_runs_of_superblocks_then_slots():
    blocks = Superblocks(64 * UNIT, 16 * UNIT)
    assert blocks.largest_free_bytes() == 64 * UNIT
    first = allocate(blocks, 16 * UNIT, 3)
    assert blocks.largest_free_bytes() == 16 * UNIT
    allocate(blocks, 5 * UNIT, 1)
    assert blocks.largest_free_bytes() == 5 * UNIT
    free(blocks, [first[0]])
    free(blocks, [first[1]])
    assert blocks.largest_free_bytes() == 32 * UNIT
    allocate(blocks, 4 * UNIT, 8)
    allocate(blocks, 5 * UNIT, 2)
    assert blocks.largest_free_bytes() == 0


@pytest.mark.parametrize("offset", [4 * UNIT, 2 * UNIT, 20 * UNIT])
def test_giving_back_what_is_not_taken_is_a_broken_invariant(offset):
    blocks = Superblocks(32 * UNIT, 16 * UNIT)
    allocate(blocks, 4 * UNIT, 1)
    with pytest.raises(AssertionError):
        blocks.give([offset])


def test_changes_that_do_not_fit_the_state_are_broken_invariants():
    blocks = Superblocks(32 * UNIT, 16 * UNIT)
    allocate(blocks, 4 * UNIT, 1)
    with pytest.raises(AssertionError, match="not the next free one"):
        blocks.carve(0, 4 * UNIT)
    with pytest.raises(AssertionError, match="larger than a superblock"):
        blocks.carve(1, 17 * UNIT)
    with pytest.raises(AssertionError, match="not the next free slot"):
        blocks.take([0])
    with pytest.raises(AssertionError, match="not empty"):
        blocks.uncarve(0)


def test_the_coldest_superblock_of_another_size_is_chosen_unless_it_is_held():
    blocks = Superblocks(64 * UNIT, 16 * UNIT)
    small = allocate(blocks, 8 * UNIT, 4)
    large = allocate(blocks, 16 * UNIT, 1)
    offsets = np.array(small + large)
    last = np.array([7, 9, 3, 20, 1])
    held = np.zeros(5, dtype=np.bool_)
    assert coldest_superblock(blocks, 16 * UNIT, offsets, last, held) == 0
    assert coldest_superblock(blocks, 4 * UNIT, offsets, last, held) == 2
    held[4] = True
    assert coldest_superblock(blocks, 4 * UNIT, offsets, last, held) == 0
    held[:] = True
    assert coldest_superblock(blocks, 4 * UNIT, offsets, last, held) is None


class Against(RuleBasedStateMachine):
    """Random allocation and freeing against a list of taken ranges."""

    SIZES = (3 * UNIT, 4 * UNIT, 7 * UNIT, 16 * UNIT)

    def __init__(self):
        super().__init__()
        self.blocks = Superblocks(8 * 16 * UNIT + 5, 16 * UNIT)
        self.taken: list[tuple[int, int]] = []

    @rule(size=st.sampled_from(SIZES), count=st.integers(0, 9))
    def allocate(self, size, count):
        fits = self.blocks.free_slots(size) >= count
        plan = self.blocks.plan(size, count)
        assert (plan is not None) == fits
        if plan is not None:
            self.taken += [(offset, size) for offset in allocate(self.blocks, size, count)]

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def free(self, data):
        chosen = data.draw(st.lists(st.sampled_from(self.taken), unique=True, min_size=1))
        self.taken = [one for one in self.taken if one not in chosen]
        free(self.blocks, [offset for offset, _ in chosen])

    @rule()
    def carry_on_from_a_snapshot(self):
        data = msgspec.msgpack.encode(self.blocks.snapshot())
        restored = Superblocks.restore(msgspec.msgpack.decode(data, type=SuperblocksSnapshot))
        assert restored == self.blocks
        assert [restored.plan(size, 5) for size in self.SIZES] == [
            self.blocks.plan(size, 5) for size in self.SIZES
        ]
        assert restored.used_bytes == self.blocks.used_bytes
        self.blocks = restored

    @invariant()
    def ranges_are_apart_and_inside(self):
        end = 0
        for offset, size in sorted(self.taken):
            assert offset >= end
            assert offset // (16 * UNIT) == (offset + size - 1) // (16 * UNIT)
            end = offset + size
        assert end <= 8 * 16 * UNIT
        assert self.blocks.used_bytes == sum(size for _, size in self.taken)
        by_superblock = {offset // (16 * UNIT): size for offset, size in self.taken}
        assert list(self.blocks.carved) == [by_superblock.get(number, 0) for number in range(8)]


TestAgainst = Against.TestCase
TestAgainst.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
