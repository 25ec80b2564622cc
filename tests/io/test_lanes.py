"""What goes to the device next, and how much may be there."""

import attrs

from orbitkv.io.lanes import Lanes
from orbitkv.manager.ports import PageRead, PageWrite
from tests.io.ssd_support import IMAGE, identity_of, read_of, write_of


def lanes(images: int, transfers: int = 100) -> Lanes:
    return Lanes(inflight_bytes_max=images * IMAGE, transfers_max=transfers)


def demand(*tokens: int) -> list[PageRead]:
    return [read_of(n, slot=n, identity=identity_of(n), into=0) for n in tokens]


def warm(*tokens: int) -> list[PageRead]:
    return [read_of(n, slot=n, identity=identity_of(n), into=0, foreground=False) for n in tokens]


def save(*tokens: int) -> list[PageWrite]:
    return [write_of(n, slot=n, identity=identity_of(n), out_of=0) for n in tokens]


def tokens(taken: tuple[list[PageRead], list[PageWrite]]) -> tuple[list[int], list[int]]:
    reads, writes = taken
    return [read.token for read in reads], [write.token for write in writes]


def test_demand_goes_before_saves_and_saves_before_warm_reads() -> None:
    waiting = lanes(images=4)
    waiting.add_reads(warm(30, 31) + demand(10))
    waiting.add_writes(save(20, 21))
    assert tokens(waiting.take()) == ([10, 30], [20, 21])
    assert waiting.waiting == 1


def test_bytes_bound_what_is_at_the_device_and_landing_makes_room() -> None:
    waiting = lanes(images=2)
    first, second, third = demand(1, 2, 3)
    waiting.add_reads([first, second, third])
    assert tokens(waiting.take()) == ([1, 2], [])
    assert tokens(waiting.take()) == ([], [])
    waiting.landed(first)
    assert tokens(waiting.take()) == ([3], [])


def test_the_number_of_transfers_is_bounded_too() -> None:
    waiting = lanes(images=100, transfers=3)
    waiting.add_reads(demand(1, 2))
    waiting.add_writes(save(3, 4))
    assert tokens(waiting.take()) == ([1, 2], [3])


def test_writes_take_at_most_half() -> None:
    waiting = lanes(images=4)
    writes = save(1, 2, 3)
    waiting.add_writes(writes)
    assert tokens(waiting.take()) == ([], [1, 2])
    waiting.add_reads(demand(4))
    assert tokens(waiting.take()) == ([4], [])
    waiting.landed(writes[0])
    assert tokens(waiting.take()) == ([], [3])


def test_warm_reads_use_what_writes_may_not() -> None:
    waiting = lanes(images=4)
    waiting.add_writes(save(1, 2, 3))
    waiting.add_reads(warm(4, 5))
    assert tokens(waiting.take()) == ([4, 5], [1, 2])


def test_nothing_slips_past_a_demand_that_does_not_fit() -> None:
    waiting = lanes(images=2)
    small, large = demand(1, 2)
    waiting.add_reads([small, attrs.evolve(large, image_bytes=2 * IMAGE)])
    waiting.add_writes(save(3))
    waiting.add_reads(warm(4))
    assert tokens(waiting.take()) == ([1], [])


def test_an_image_larger_than_the_allowance_goes_alone() -> None:
    waiting = Lanes(inflight_bytes_max=IMAGE // 2, transfers_max=8)
    (read,), (write,) = demand(1), save(2)
    waiting.add_reads([read])
    waiting.add_writes([write])
    assert tokens(waiting.take()) == ([1], [])
    waiting.landed(read)
    assert tokens(waiting.take()) == ([], [2])
