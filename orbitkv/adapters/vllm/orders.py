"""What the scheduler's side tells the ranks, and what they tell it back. Shapes only; pickled by vLLM.

A page of the manager is one or several blocks of vLLM. A rank copies whole blocks, so orders name, for
each page of the lease (by position) or of the save (by key), the block for each part of the page.
"""

from collections.abc import Iterable

import attrs

NO_BLOCK = -1
"""This part of the page is not to be copied: the GPU has it already."""


@attrs.frozen(slots=True)
class PageBlocks:
    """One page of a lease, and the blocks that its parts go to."""

    position: int
    """In the lease's page list."""
    group: int
    blocks: tuple[int, ...]
    """One per part of the page, in order; NO_BLOCK for parts that stay as they are."""


@attrs.frozen(slots=True)
class LoadOrder:
    """Copy these pages of the lease. Every rank takes its share."""

    request: str
    """vLLM's id of the request."""
    lease: bytes = attrs.field(repr=False)
    pages: tuple[PageBlocks, ...]

    @property
    def blocks(self) -> set[int]:
        return {block for page in self.pages for block in page.blocks if block != NO_BLOCK}


@attrs.frozen(slots=True)
class SaveOrder:
    """Offer these pages of one group. Their blocks stay untouched until every rank has answered."""

    number: int
    group: int
    keys: tuple[bytes, ...] = attrs.field(repr=False)
    blocks: tuple[tuple[int, ...], ...]
    """The blocks of each page."""


@attrs.frozen(slots=True)
class StepOrders:
    """All that a rank is told for one step."""

    loads: tuple[LoadOrder, ...] = ()
    saves: tuple[SaveOrder, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.loads or self.saves)


@attrs.define(slots=True)
class RankReport:
    """What ranks have ended since they were last asked; reports of several ranks add up."""

    saves: dict[int, int] = attrs.field(factory=dict)
    """Save number -> ranks that no longer need its blocks."""
    failed_loads: set[str] = attrs.field(factory=set)
    """Requests of which some rank could not copy its share."""

    def add(self, other: "RankReport") -> None:
        for number, ranks in other.saves.items():
            self.saves[number] = self.saves.get(number, 0) + ranks
        self.failed_loads |= other.failed_loads

    def save_ended(self, number: int) -> None:
        self.saves[number] = self.saves.get(number, 0) + 1

    def __bool__(self) -> bool:
        return bool(self.saves or self.failed_loads)


def runs(positions: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending positions as half-open ranges."""
    ranges: list[tuple[int, int]] = []
    for position in positions:
        if ranges and ranges[-1][1] == position:
            ranges[-1] = (ranges[-1][0], position + 1)
        else:
            ranges.append((position, position + 1))
    return ranges
