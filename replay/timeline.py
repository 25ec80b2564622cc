"""A log as lines for people: one for each record, or for those that concern one request.

`python -m replay timeline LOG [--request ID] [--full]`. Tells what the records say and judges nothing.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import attrs
import numpy as np

from orbitkv.events.facts import (
    Event,
    LeaseGranted,
    QueryOpened,
    ReadsJoined,
    ReadsQueued,
    StageReported,
)
from orbitkv.events.frame import SegmentHeader
from orbitkv.events.record import Record
from replay.log import Log
from replay.phrases import phrase

SECOND_NS = 1_000_000_000


@attrs.frozen(slots=True)
class Line:
    incarnation: int
    seq: int
    since_s: float
    """Since the first record of the incarnation that the log still has."""
    wall_time: datetime
    record: Record
    facts: tuple[Event, ...]
    """Those that concern the request; all of them where none was asked for."""

    @property
    def cause_phrase(self) -> str:
        return phrase(self.record.cause, self.record.at_ns)

    @property
    def facts_phrase(self) -> str:
        told = [phrase(fact, self.record.at_ns) for fact in self.facts]
        others = len(self.record.events) - len(self.facts)
        return "; ".join([*told, f"and {others} facts about others"] if others else told)


class RequestTrail:
    """Follows one request through one incarnation: its operations, their leases and reads."""

    def __init__(self, request: str) -> None:
        self._request = request
        self._operations: set[int] = set()
        self._leases: set[int] = set()
        self._reads: set[int] = set()

    def facts_of(self, record: Record) -> tuple[Event, ...]:
        """The facts of the record that concern the request. Records must come in order."""
        return tuple(event for event in record.events if self._concerns(event))

    def asked_by(self, record: Record) -> bool:
        """Whether the record's cause names the request, whatever came of it."""
        cause = record.cause
        return (
            getattr(cause, "request", None) == self._request
            or getattr(cause, "operation", None) in self._operations
            or getattr(cause, "lease", None) in self._leases
        )

    def _concerns(self, event: Event) -> bool:
        match event:
            case QueryOpened() if event.request == self._request:
                self._operations.add(event.operation)
                return True
            case StageReported():
                return event.request == self._request
            case LeaseGranted() if event.operation in self._operations:
                self._leases.add(event.lease)
                return True
            case ReadsQueued() if event.operation in self._operations:
                self._reads.update(range(event.read, event.read + len(event.pages) // 4))
                return True
            case ReadsJoined():
                # Others who join its reads are not its story; that it joins theirs is.
                mine = event.operation in self._operations
                self._reads.update(_numbers(event.reads) if mine else ())
                return mine
            case _:
                return (
                    getattr(event, "operation", None) in self._operations
                    or getattr(event, "lease", None) in self._leases
                    or not self._reads.isdisjoint(_numbers(getattr(event, "reads", b"")))
                )


def lines(log: Log, request: str | None = None) -> Iterator[Line]:
    """The log's records in order, or those that concern the request. Raises LogError."""
    incarnation, begun_ns = -1, 0
    trail: RequestTrail | None = None
    for segment in log.segments():
        header = segment.header
        for frame in segment.frames():
            if header.incarnation != incarnation:
                incarnation, begun_ns = header.incarnation, frame.records[0].at_ns
                trail = RequestTrail(request) if request is not None else None
            for record in frame.records:
                facts = trail.facts_of(record) if trail else record.events
                if trail is None or facts or trail.asked_by(record):
                    yield Line(
                        incarnation,
                        record.seq,
                        (record.at_ns - begun_ns) / SECOND_NS,
                        wall_time(header, record.at_ns),
                        record,
                        facts,
                    )


def open_lines(path: Path, request: str | None = None) -> tuple[Log, Iterator[Line]]:
    """Raises LogError, also while iterating. The log's troubles are complete after the last line."""
    log = Log.open(path)
    return log, lines(log, request)


def wall_time(header: SegmentHeader, at_ns: int) -> datetime:
    return datetime.fromtimestamp((header.wall_offset_ns + at_ns) / SECOND_NS, UTC)


def _numbers(column: bytes) -> list[int]:
    numbers: list[int] = np.frombuffer(column, "<u4").tolist()
    return numbers
