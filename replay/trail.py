"""Follows one request through the records of one incarnation: hints, queries, reads, leases, and what became
of the pages that were prepared for it. Where a fact concerns others too, only the request's part is told.
"""

from collections.abc import Container
from typing import TypeVar

import msgspec
import numpy as np

from orbitkv.events import facts
from orbitkv.events.facts import Event
from orbitkv.events.record import Record

Fact = TypeVar("Fact", bound=msgspec.Struct)

_PARALLEL = {"reads": 4, "buffers": 4, "slots": 4, "read_bytes": 4, "elapsed_us": 4, "outcomes": 1}
"""Columns of a fact about reads or their pages that run in parallel, and the bytes of one entry."""


class RequestTrail:
    def __init__(self, request: str) -> None:
        self._request = request
        self._operations: set[int] = set()
        """Queries and hints."""
        self._tickets: set[tuple[int, int]] = set()
        """(session, ticket) of its hints, admitted or not."""
        self._leases: set[int] = set()
        self._reads: set[int] = set()
        self._in_flight: dict[int, int] = {}
        """Read -> buffer, also of others: the request may join them."""
        self._landed: set[int] = set()
        """Buffers of its reads that landed in this record."""
        self._prepared: set[int] = set()
        """Those of them that were prepared and whose outcome is open."""

    def facts_of(self, record: Record) -> tuple[Event, ...]:
        """The facts of the record that concern the request, or its part of them. Records come in order."""
        self._landed.clear()
        mine = (self._mine(event) for event in record.events)
        return tuple(event for event in mine if event is not None)

    def asked_by(self, record: Record) -> bool:
        """Whether the record's cause names the request, whatever came of it."""
        cause = record.cause
        return (
            getattr(cause, "request", None) == self._request
            or getattr(cause, "operation", None) in self._operations
            or getattr(cause, "lease", None) in self._leases
            or (getattr(cause, "session", 0), getattr(cause, "ticket", 0)) in self._tickets
        )

    def _mine(self, event: Event) -> Event | None:
        match event:
            case facts.QueryOpened() | facts.HintAdmitted() if event.request == self._request:
                self._operations.add(event.operation)
                self._tickets.add((event.session, event.operation & 0xFFFF_FFFF))
                return event
            case facts.HintSkipped() | facts.HintNotNeeded() if event.request == self._request:
                self._tickets.add((event.session, event.ticket))
                return event
            case facts.StageReported() | facts.WarmProbed() if event.request == self._request:
                return event
            case facts.LeaseGranted() if event.operation in self._operations:
                self._leases.add(event.lease)
                return event
            case facts.ReadsQueued() if event.operation in self._operations:
                self._reads.update(range(event.read, event.read + len(event.pages) // 4))
                return event
            case facts.ReadsJoined():
                # Others who join its reads are not its story; that it joins theirs is.
                if event.operation not in self._operations:
                    return None
                self._reads.update(_numbers(event.reads))
                return event
            case facts.ReadsSubmitted():
                buffers = _numbers(event.buffers)
                self._in_flight.update(zip(_numbers(event.reads), buffers, strict=True))
                return _part(event, "reads", self._reads)
            case facts.ReadsLanded() | facts.ReadsFailed():
                for read in _numbers(event.reads):
                    buffer = self._in_flight.pop(read, -1)
                    if read in self._reads:
                        self._landed.add(buffer)
                return _part(event, "reads", self._reads)
            case facts.ReadsDropped():
                return _part(event, "reads", self._reads)
            case facts.PagesPrepared():
                prepared = _part(event, "buffers", self._landed)
                self._prepared.update(_numbers(prepared.buffers) if prepared is not None else ())
                return prepared
            case facts.PagesRestored() | facts.PagesUnused():
                resolved = _part(event, "buffers", self._prepared)
                self._prepared.difference_update(_numbers(event.buffers))
                return resolved
            case _:
                concerned = (
                    getattr(event, "operation", None) in self._operations
                    or getattr(event, "lease", None) in self._leases
                )
                return event if concerned else None


def _part(fact: Fact, by: str, wanted: Container[int]) -> Fact | None:
    """The fact's entries whose number in the column `by` is wanted; None where there are none."""
    numbers = _numbers(getattr(fact, by))
    kept = [place for place, number in enumerate(numbers) if number in wanted]
    if len(kept) == len(numbers):
        return fact
    columns = {
        name: b"".join(column[place * width : (place + 1) * width] for place in kept)
        for name, width in _PARALLEL.items()
        if (column := getattr(fact, name, None)) is not None
    }
    return msgspec.structs.replace(fact, **columns) if kept else None


def _numbers(column: bytes) -> list[int]:
    numbers: list[int] = np.frombuffer(column, "<u4").tolist()
    return numbers
