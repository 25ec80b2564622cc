"""What the observer writes down: plain tables of plain rows (`rows`), filled from facts alone.

Nothing is summed up in advance, but what is over and gone; every total is counted again when a rule asks
for it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from orbitkv.events.config import KernelConfig
from orbitkv.events.outcomes import Unused
from orbitkv.events.record import Record
from tests.models.rows import Buffer, Instance, Lease, Operation, Read, Save, Segment, Session, Slot


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
    prepared_bytes: int = 0
    restored_bytes: int = 0
    unused_bytes: dict[Unused, int] = attrs.Factory(dict)
    restored_wait_kib_us: int = 0
    """Footprint in KiB x microseconds from landing to outcome, summed over pages."""
    unused_wait_kib_us: int = 0
    prepared_now: set[int] = attrs.Factory(set)
    """Of the record under way: buffers that landed for a hint and are still to be told as prepared."""
    restored_now: set[int] = attrs.Factory(set)
    """Of the record under way: prepared buffers that a sync named, still to be told as restored."""

    lines: dict[tuple[int, bool], dict[int, list[int]]] = attrs.Factory(dict)
    """With charge = shared: (instance, hints) -> page -> operations in line for it; the first pays."""

    # --- questions that rules ask ---------------------------------------------------------------------

    def reads_in_flight(self) -> Iterator[Read]:
        return (read for read in self.reads.values() if read.submitted)

    def reads_queued(self) -> Iterator[Read]:
        return (read for read in self.reads.values() if not read.submitted)

    def reads_of_page(self, page: int) -> list[Read]:
        return [read for read in self.reads.values() if read.page == page]

    def live_operations(self) -> Iterator[Operation]:
        return (operation for operation in self.operations.values() if operation.end is None)

    def live_demands(self) -> Iterator[Operation]:
        return (operation for operation in self.live_operations() if not operation.warm)

    def live_hints(self) -> Iterator[Operation]:
        return (operation for operation in self.live_operations() if operation.warm)

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

    def demanded(self, read: Read) -> bool:
        """Whether a demand is interested in it."""
        return any(not operation.warm for operation in self.interested(read))

    def awaits(self, operation: Operation) -> list[int]:
        """Reads whose end it still waits for."""
        return [
            read.number
            for read in self.reads.values()
            for number, page in read.owners
            if number == operation.number and operation.wants(page)
        ]

    def reserved_bytes(self, instance: int | None = None, *, warm: bool | None = None) -> int:
        """What is charged now: in all or to an instance; for hints alone, for demands alone, or for both."""
        return sum(
            operation.charge_bytes
            for operation in self.operations.values()
            if (instance is None or operation.instance == instance)
            and (warm is None or operation.warm == warm)
        )

    def pending_bytes(self) -> int:
        return sum(buffer.footprint_bytes for buffer in self.buffers.values() if buffer.prepared)

    def owners(self, buffer: int) -> list[str]:
        """Queries, leases and copies that have a buffer, in words. Devices are none."""
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
        return found

    def holders(self, buffer: int) -> list[str]:
        """Everybody for whom the memory of a buffer must stay as it is, in words."""
        found = self.owners(buffer)
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
