"""What the observer writes down: plain tables of plain objects, filled from facts alone.

The tables follow the words of the contract, not the kernel's state: a buffer knows who may still touch
it, an operation knows what it asked and what became of it. Nothing is summed up in advance; every total
is counted again when a rule asks for it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from orbitkv.events.config import KernelConfig
from orbitkv.events.ids import TRAILER_BYTES
from orbitkv.events.outcomes import LeaseEnd, Origin, PageClass, QueryEnd, SessionEnd, Share
from orbitkv.events.record import Record


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
    end: QueryEnd | None = None

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


@attrs.define
class Books:
    """Everything the observer knows. Of things that are over, only their numbers stay (`past_*`)."""

    config: KernelConfig | None = None
    seq: int = 0
    at_ns: int = 0
    event_index: int = 0
    shutting_down: bool = False
    closed: bool = False
    store_writable: bool = True
    store_reason: str = ""

    sessions: dict[int, Session] = attrs.Factory(dict)
    processes_gone: set[int] = attrs.Factory(set)
    """Known to have ended: said by the record's cause or by a fact."""
    processes_released: set[int] = attrs.Factory(set)
    instances: dict[int, Instance] = attrs.Factory(dict)
    spaces: dict[int, tuple[bytes, int]] = attrs.Factory(dict)
    space_identity: dict[int, tuple[bytes, int, int, str]] = attrs.Factory(dict)
    """Space -> (namespace digest, group, page tokens, layout over the ranks) of the first instance in it."""
    pages: dict[int, tuple[int, bytes]] = attrs.Factory(dict)
    page_of_key: dict[tuple[int, bytes], int] = attrs.Factory(dict)

    superblocks: dict[int, int] = attrs.Factory(dict)
    """Carved superblock to slot bytes."""
    buffers: dict[int, Buffer] = attrs.Factory(dict)
    resident: dict[int, int] = attrs.Factory(dict)
    """Page to the buffer that lookups find."""
    last_generation: int = -1

    operations: dict[int, Operation] = attrs.Factory(dict)
    leases: dict[int, Lease] = attrs.Factory(dict)
    reads: dict[int, Read] = attrs.Factory(dict)

    past_operations: set[int] = attrs.Factory(set)
    past_leases: set[int] = attrs.Factory(set)
    past_reads: set[int] = attrs.Factory(set)
    slot_of_failed_read: dict[int, int] = attrs.Factory(dict)
    """Of the record under way."""

    saves: dict[int, Save] = attrs.Factory(dict)
    """By buffer."""
    copies_in_flight: set[tuple[int, int]] = attrs.Factory(set)
    """(session, buffer): the manager reads a staging window into the pool."""
    seals_in_flight: set[int] = attrs.Factory(set)
    write_queue: list[int] = attrs.Factory(list)
    writes_in_flight: dict[int, int] = attrs.Factory(dict)
    """Slot to the buffer that the device is reading from."""
    segments: dict[int, Segment] = attrs.Factory(dict)
    slots: dict[int, Slot] = attrs.Factory(dict)
    on_ssd: dict[int, int] = attrs.Factory(dict)
    """Page to the slot where it can be found."""

    saves_begun: int = 0
    saves_sealed: int = 0
    saves_given_up: int = 0
    settled: dict[str, int] = attrs.Factory(
        lambda: dict.fromkeys(("asked", "dram", "peer", "ssd", "miss"), 0)
    )
    restored_generations: set[int] = attrs.Factory(set)

    # --- questions that rules ask ---------------------------------------------------------------------

    def reads_in_flight(self) -> Iterator[Read]:
        return (read for read in self.reads.values() if read.submitted)

    def reads_queued(self) -> Iterator[Read]:
        return (read for read in self.reads.values() if not read.submitted)

    def reads_of_page(self, page: int) -> list[Read]:
        return [read for read in self.reads.values() if read.page == page]

    def live_operations(self) -> Iterator[Operation]:
        return (operation for operation in self.operations.values() if operation.end is None)

    def waiting_operations(self) -> list[Operation]:
        """Those that wait for budget, in the order in which they asked."""
        waiting = [operation for operation in self.live_operations() if operation.waiting]
        return sorted(waiting, key=lambda operation: operation.opened_seq)

    def interested(self, read: Read) -> list[Operation]:
        return [
            self.operations[number]
            for number, page in read.owners
            if number in self.operations and self.operations[number].wants(page)
        ]

    def reserved_bytes(self, instance: int | None = None) -> int:
        return sum(
            operation.charge_bytes
            for operation in self.operations.values()
            if instance is None or operation.instance == instance
        )

    def holders(self, buffer: int) -> list[str]:
        """Everybody for whom the memory of a buffer must stay as it is, in words."""
        found = [
            f"operation {operation.number}"
            for operation in self.live_operations()
            if operation.lease is None and buffer in operation.owned.values()
        ]
        for lease in self.leases.values():
            if not lease.released and buffer in lease.pages:
                if lease.end is None:
                    found.append(f"lease {lease.number}")
                found += [f"the copy of rank {rank} under lease {lease.number}" for rank in lease.copying]
        found += [f"read {read.number}" for read in self.reads_in_flight() if read.buffer == buffer]
        found += [f"the copy of session {by}" for by, target in self.copies_in_flight if target == buffer]
        found += [f"the write of slot {slot}" for slot, by in self.writes_in_flight.items() if by == buffer]
        if buffer in self.seals_in_flight:
            found.append("its sealing")
        if buffer in self.saves:
            found.append("its save")
        return found

    def own_reads_bytes(self, operation: int) -> int:
        """Footprints of submitted reads that this operation answers for."""
        return sum(
            self.buffers[read.buffer].footprint_bytes
            for read in self.reads_in_flight()
            if read.submitter == operation and read.buffer is not None
        )


Handler = Callable[[Books, Any, Record], None]
"""What one kind of fact does to the books; it raises when the fact breaks a rule."""
