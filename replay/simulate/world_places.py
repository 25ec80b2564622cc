"""Where things lie in the simulated world: what buffers, slots and pages stand for.

One incarnation's knowledge; a crash ends it. It also keeps what stands in memory, because a freed buffer's
content goes with it. It believes the facts and asks nobody.
"""

import struct
from collections.abc import Callable
from typing import Any

import attrs

from orbitkv.events import facts
from orbitkv.events.record import Record
from replay.simulate.world_ssd import Identity, SimulatedSsd


@attrs.define
class Place:
    """Where a buffer lies and whose page it is for."""

    page: int
    offset: int
    footprint_bytes: int
    generation: int


def numbers(column: bytes) -> tuple[int, ...]:
    """A packed u32 column as integers."""
    return struct.unpack(f"<{len(column) // 4}I", column)


class Places:
    """Give it every record of an incarnation, in order."""

    def __init__(self, ssd: SimulatedSsd) -> None:
        self.incarnation = 0
        self.memory: dict[int, Identity | None] = {}
        """Pool offset to what stands there; None while a read is under way."""
        self.places: dict[int, Place] = {}
        """Of buffers."""
        self.slot_identities: dict[int, Identity] = {}
        """What was, or is being, written to a slot."""
        self.gone_sessions: set[int] = set()
        self._spaces: dict[int, tuple[bytes, int]] = {}
        self._pages: dict[int, tuple[int, bytes]] = {}
        self._ssd = ssd

    def follow(self, record: Record) -> None:
        """Learn places from the facts of a record, before its effects are carried out."""
        for event in record.events:
            learn = _LEARNERS.get(type(event))
            if learn is not None:
                learn(self, event)

    def _incarnation_started(self, event: facts.IncarnationStarted) -> None:
        self.incarnation = event.incarnation

    def _space_opened(self, event: facts.SpaceOpened) -> None:
        self._spaces[event.space] = (event.namespace_digest, event.group)

    def _pages_bound(self, event: facts.PagesBound) -> None:
        for page, key in zip(numbers(event.pages), event.keys, strict=True):
            self._pages[page] = (event.space, key)

    def _allocated(self, event: facts.BuffersAllocated) -> None:
        offsets = struct.unpack(f"<{len(event.offsets) // 8}Q", event.offsets)
        columns = zip(numbers(event.buffers), numbers(event.pages), offsets, strict=True)
        for index, (buffer, page, offset) in enumerate(columns):
            self.places[buffer] = Place(page, offset, event.footprint_bytes, event.generation + index)

    def _freed(self, event: facts.BuffersFreed) -> None:
        for buffer in numbers(event.buffers):
            self.memory.pop(self.places.pop(buffer).offset, None)

    def _writes_submitted(self, event: facts.WritesSubmitted) -> None:
        for slot, buffer in zip(numbers(event.slots), numbers(event.buffers), strict=True):
            self.slot_identities[slot] = self.identity_of(buffer)

    def _session_closed(self, event: facts.SessionClosed) -> None:
        self.gone_sessions.add(event.session)

    def _recovered(self, event: facts.SlotsRecovered) -> None:
        for slot in numbers(event.slots):
            self.slot_identities[slot] = self._ssd.disk[slot].entry

    def identity_of(self, buffer: int) -> Identity:
        place = self.places[buffer]
        space, key = self._pages[place.page]
        digest, group = self._spaces[space]
        return Identity(digest, group, key, self.incarnation, place.generation)


_LEARNERS: dict[type, Callable[[Places, Any], None]] = {
    facts.IncarnationStarted: Places._incarnation_started,
    facts.SpaceOpened: Places._space_opened,
    facts.PagesBound: Places._pages_bound,
    facts.BuffersAllocated: Places._allocated,
    facts.BuffersFreed: Places._freed,
    facts.WritesSubmitted: Places._writes_submitted,
    facts.SessionClosed: Places._session_closed,
    facts.SlotsRecovered: Places._recovered,
}
"""By the fact's type: what it says of where things lie."""
