"""The rows of the observer's books: plain objects with what the facts said of one thing each.

They follow the words of the contract, not the kernel's state: a buffer knows who may still touch it, an
operation knows what it asked and what became of it.
"""

import attrs

from orbitkv.events.ids import TRAILER_BYTES
from orbitkv.events.outcomes import (
    EvictionReason,
    HintEnd,
    LeaseEnd,
    Origin,
    PageClass,
    QueryEnd,
    SessionEnd,
    Share,
)


@attrs.define
class Session:
    number: int
    process: int
    end_observable: bool
    instance: int | None = None
    rank: int | None = None
    closed: SessionEnd | None = None
    closed_seq: int = 0
    last_ticket: int = 0


@attrs.define
class Instance:
    number: int
    name: str
    world_size: int
    ranks: dict[int, int] = attrs.Factory(dict)
    """Rank to session."""
    sessions: set[int] = attrs.Factory(set)
    sealed: bool = False
    closed: bool = False
    footprints: dict[int, int] = attrs.Factory(dict)
    """Group to footprint bytes."""
    spaces: dict[int, int] = attrs.Factory(dict)
    page_tokens: dict[int, int] = attrs.Factory(dict)
    geometry: dict[int, dict[int, dict[str, tuple[int, bool]]]] = attrs.Factory(dict)
    """Rank, group, slice name: padded bytes, and whether the slice is replicated."""


@attrs.define
class Buffer:
    number: int
    page: int
    offset: int
    slot_bytes: int
    footprint_bytes: int
    generation: int
    since_seq: int
    """The record that allocated it: until its end it needs no holder yet."""
    verified: bool = False
    """It holds a whole, checked page: a read landed in it or it was sealed."""
    indexed: bool = False
    page_class: PageClass | None = None
    left: EvictionReason | None = None
    """Why lookups do not find it any more."""
    prepared: bool = False
    """It joined the cohort and its outcome is open."""
    landed_ns: int = 0
    recency: tuple[int, int, int] = (0, 0, 0)
    """(record, event in the record, minus the position in the event): lower is older."""

    @property
    def image_bytes(self) -> int:
        return self.footprint_bytes + TRAILER_BYTES


@attrs.define
class Read:
    number: int
    page: int
    origin: Origin
    owners: list[tuple[int, int]]
    """(operation, which of the pages it asked for), earliest first."""
    buffer: int | None = None
    slot: int | None = None
    submitter: int | None = None
    """The operation that was the earliest interested owner when it was handed to the device."""
    submitted: bool = False
    foreground: bool = True
    """Once submitted: whether a demand waited for it then."""


@attrs.define
class Operation:
    number: int
    instance: int
    session: int
    request: str
    attempt: int
    revision: int
    asked_pages: int
    asked_charge_bytes: int
    deadline_ns: int
    opened_seq: int
    part_sizes: list[int]
    part_trailing: list[int]
    part_tokens: list[int]
    part_groups: list[int]
    keys: list[tuple[int, bytes]]
    """(space, key) of every page asked for, parts one after another: its n-th is called page n below."""
    granted: bool = False
    waiting: bool = False
    charge_bytes: int = 0
    """What it holds reserved now; a lease carries it on."""
    charge_over: bool = False
    reach: list[int] = attrs.Factory(list)
    owned: dict[int, int] = attrs.Factory(dict)
    """Page asked for to the buffer that holds it."""
    from_ssd: set[int] = attrs.Factory(set)
    """Pages asked for that came by a read."""
    failed: set[int] = attrs.Factory(set)
    """Pages asked for whose read failed or found no room."""
    settled: bool = False
    lease: int | None = None
    end: QueryEnd | HintEnd | None = None
    warm: bool = False
    """A hint: it owns no page, is never answered and gets no lease."""
    body: int = 0
    claims: dict[int, int] = attrs.Factory(dict)
    """With charge = shared: page to footprint of those that it stands in line for."""

    @property
    def answered(self) -> bool:
        return self.lease is not None or self.end is not None

    @property
    def layout(self) -> list[int]:
        """The pages that it goes on with; a fact's position n is the n-th of them.

        Part by part up to the boundary; of a part with a trailing rule only its last pages.
        """
        if not self.granted:
            return []
        pages: list[int] = []
        start = 0
        for size, trailing, reach in zip(self.part_sizes, self.part_trailing, self.reach, strict=True):
            first = max(0, reach - trailing) if trailing else 0
            pages += range(start + first, start + reach)
            start += size
        return pages

    @property
    def one_prefix(self) -> bool:
        """One group that needs every page up to the boundary: the case the rules foretell exactly."""
        return self.part_trailing == [0]

    @property
    def named(self) -> list[tuple[int, int, bytes]]:
        """(group, space, key) of every page that its charge is for, in the order of asking."""
        groups = [
            group for group, size in zip(self.part_groups, self.part_sizes, strict=True) for _ in range(size)
        ]
        return [(group, *key) for group, key in zip(groups, self.keys, strict=True)]

    def spans(self, page: int) -> bool:
        """Whether this page of those asked for lies before the boundary, needed there or not."""
        start = 0
        for size, reach in zip(self.part_sizes, self.reach, strict=True):
            if start <= page < start + reach:
                return True
            start += size
        return False

    def wants(self, page: int) -> bool:
        """Whether it is still interested in this page of those it asked for."""
        return self.granted and not self.answered and page in self.layout


@attrs.define
class Lease:
    number: int
    operation: int
    instance: int
    pages: list[int]
    """Buffers in the order of the operation's page list."""
    deadline_ns: int
    granted_seq: int
    shares: dict[int, Share]
    processes: dict[int, int] = attrs.Factory(dict)
    """Rank to the process that copies for it."""
    synced: set[int] = attrs.Factory(set)
    end: LeaseEnd | None = None
    released: bool = False

    @property
    def copying(self) -> list[int]:
        return [rank for rank, share in self.shares.items() if share in (Share.RESTORING, Share.STRANDED)]


@attrs.define
class Save:
    buffer: int
    instance: int
    group: int
    deadline_ns: int
    ranks: dict[int, str]
    """Rank to begun, copying, filled or lost."""
    sealing: bool = False
    given_up: bool = False
    """Dropped; it keeps its memory until its last copy or seal has ended."""


@attrs.define
class Segment:
    number: int
    slot_bytes: int
    draining: bool = False


@attrs.define
class Slot:
    number: int
    page: int
    state: str
    """writing, written or quarantined."""
    failures: int = 0
