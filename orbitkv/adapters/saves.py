"""Saves that a client has begun: which staging slot belongs to which buffer, and until when.

A slot is taken when the manager wants a page, and is free again when the manager has copied it out,
when the page is given up, or never, if its connection breaks (then the whole window is replaced).
The manager numbers buffers and uses a number again after it has given a save up; so a number that
comes a second time takes the page away from the older plan, which could otherwise commit it as another.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import attrs
import numpy as np

from orbitkv.adapters.staging import StagingWindow
from orbitkv.events.ids import Column, WideColumn
from orbitkv.io.wire import PagesSealed, SaveBegun, SlicesCopied

_U32: Final = np.dtype("<u4")
_U64: Final = np.dtype("<u8")


class WantedPage(NamedTuple):
    position: int
    """In the keys that were offered."""
    slot: memoryview
    """The rank's slices of the page go here: in registered order, each padded to 4 KiB."""


@attrs.define(slots=True, eq=False)
class SavePlan:
    """What the manager wants of an offer. Fill every slot, then commit; or abort."""

    group: int
    window: StagingWindow | None = attrs.field(repr=False)
    wanted: list[WantedPage] = attrs.field(factory=list)
    dropped: dict[int, int] = attrs.field(factory=dict)
    """Pages that are not wanted, by SaveDrop."""
    uncredited_pages: int = 0
    """Pages dropped here because no staging slot was free."""
    open: bool = True
    places: dict[int, tuple[int, int]] = attrs.field(factory=dict, repr=False)
    """Buffer to (staging offset, generation): of pages that are still this plan's."""
    unsealed: set[int] = attrs.field(factory=set, repr=False)
    """Committed buffers whose seal has not been heard of."""

    @property
    def sealed(self) -> bool:
        """Committed, and every page of it saved in DRAM."""
        return not self.open and not self.unsealed


@attrs.frozen(slots=True)
class SaveResult:
    accepted_pages: int
    given_up_pages: int
    """The manager had given them up before: expired, or its pressure was too high."""


class SaveTable:
    """All saves of one connection. Not thread-safe: its client's lock protects it."""

    def __init__(self, window: StagingWindow) -> None:
        self.window = window
        self._open: dict[int, SavePlan] = {}
        """Buffer to the plan that may still fill it."""
        self._copying: dict[int, tuple[int, int]] = {}
        """Buffer to (group, offset) of a committed slot that the manager may be reading."""
        self._unsealed: dict[int, SavePlan] = {}

    def add(self, plan: SavePlan, first_position: int, begun: SaveBegun) -> "Named":
        """Give wanted pages their slots; returns the buffers for which there was none."""
        excess: dict[int, int] = {}
        generations = np.frombuffer(begun.generations, _U64).tolist()
        for position, buffer, generation in zip(
            _numbers(begun.positions), _numbers(begun.buffers), generations, strict=True
        ):
            self._supersede(buffer)
            if not self.window.credits(plan.group):
                excess[buffer] = generation
                continue
            offset = self.window.take(plan.group)
            plan.places[buffer] = (offset, generation)
            plan.wanted.append(WantedPage(first_position + position, self.window.slot(plan.group, offset)))
            self._open[buffer] = plan
        return Named.of(excess)

    def _supersede(self, buffer: int) -> None:
        self._free(buffer)  # a number comes again only after its copy has ended
        older = self._open.pop(buffer, None)
        if older is not None:
            self.window.give_back(older.group, older.places.pop(buffer)[0])
        waiting = self._unsealed.pop(buffer, None)
        if waiting is not None:
            waiting.unsealed.discard(buffer)

    def commit(self, plan: SavePlan) -> tuple["Named", WideColumn]:
        """Close the plan: (buffers, staging offsets) of what is still its own."""
        named = Named.of({buffer: generation for buffer, (_, generation) in plan.places.items()})
        offsets = _wide([offset for offset, _ in plan.places.values()])
        for buffer, (offset, _) in plan.places.items():
            del self._open[buffer]
            self._copying[buffer] = (plan.group, offset)
            self._unsealed[buffer] = plan
            plan.unsealed.add(buffer)
        plan.open = False
        plan.places.clear()
        return named, offsets

    def abort(self, plan: SavePlan) -> "Named":
        """Close the plan and free its slots: the buffers that the manager should give up."""
        named = Named.of({buffer: generation for buffer, (_, generation) in plan.places.items()})
        for buffer, (offset, _) in plan.places.items():
            del self._open[buffer]
            self.window.give_back(plan.group, offset)
        plan.open = False
        plan.places.clear()
        return named

    def rejected(self, buffers: Sequence[int]) -> None:
        """The manager will not copy these committed buffers."""
        for buffer in buffers:
            self._free(buffer)
            self._forget_unsealed(buffer)

    def copied(self, notice: SlicesCopied) -> None:
        for buffer, outcome in zip(_numbers(notice.buffers), notice.outcomes, strict=False):
            self._free(buffer)
            if outcome:
                self._forget_unsealed(buffer)

    def sealed(self, notice: PagesSealed) -> None:
        for buffer in _numbers(notice.buffers):
            self._forget_unsealed(buffer)

    def _free(self, buffer: int) -> None:
        place = self._copying.pop(buffer, None)
        if place is not None:
            self.window.give_back(*place)

    def _forget_unsealed(self, buffer: int) -> None:
        plan = self._unsealed.pop(buffer, None)
        if plan is not None:
            plan.unsealed.discard(buffer)

    def __repr__(self) -> str:
        return f"SaveTable({len(self._open)} open, {len(self._copying)} being copied, {self.window!r})"


@attrs.frozen(slots=True)
class Named:
    """Buffers as the manager knows them: number and generation, in parallel columns."""

    buffers: Column
    generations: WideColumn

    @classmethod
    def of(cls, generations: Mapping[int, int]) -> "Named":
        """From buffer to generation."""
        return cls(column(list(generations)), _wide(list(generations.values())))

    def pieces(self, pages: int) -> Iterator["Named"]:
        """At most `pages` of them at a time."""
        for first in range(0, len(self), pages):
            end = first + pages
            yield Named(self.buffers[4 * first : 4 * end], self.generations[8 * first : 8 * end])

    def __len__(self) -> int:
        return len(self.buffers) // 4


def column(numbers: Sequence[int]) -> Column:
    return np.array(numbers, _U32).tobytes()


def _wide(numbers: Sequence[int]) -> WideColumn:
    return np.array(numbers, _U64).tobytes()


def _numbers(packed: Column) -> list[int]:
    numbers: list[int] = np.frombuffer(packed, _U32).tolist()
    return numbers
