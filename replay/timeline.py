"""A log as lines for people: one for each record, or for those that concern one request.

`python -m replay timeline LOG [--request ID] [--full]`. Tells what the records say and judges nothing.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import attrs

from orbitkv.events.config import SECOND_NS
from orbitkv.events.facts import Event, GpuSynced, LeaseEnded, LeaseReleased, ShareEnded
from orbitkv.events.frame import SegmentHeader
from orbitkv.events.record import Record
from replay.log import Log
from replay.trail import RequestTrail
from replay.wording.phrases import name_of, phrase
from replay.wording.sentences import sentence


@attrs.frozen(slots=True)
class Line:
    incarnation: int
    seq: int
    since_s: float
    """Since the first record that is told of this incarnation."""
    wall_time: datetime
    record: Record
    facts: tuple[Event, ...]
    """Those that concern the request, or its part of them; all of them where none was asked for."""
    followed: bool
    """Whether only one request is told of."""

    @property
    def cause_phrase(self) -> str:
        """With its fields, unless the facts that are told say as much."""
        cause = self.record.cause
        return name_of(cause) if self.followed and self.facts else phrase(cause, self.record.at_ns)

    @property
    def facts_phrase(self) -> str:
        return "; ".join(sentence(fact, self.record.at_ns) for fact in self.facts)


def lines(log: Log, request: str | None = None) -> Iterator[Line]:
    """The log's records in order, or those that concern the request. Raises LogError."""
    incarnation = -1
    begun_ns: int | None = None
    trail: RequestTrail | None = None
    for segment in log.segments():
        header = segment.header
        if header.incarnation != incarnation:
            incarnation, begun_ns = header.incarnation, None
            trail = RequestTrail(request) if request is not None else None
        for frame in segment.frames():
            for record in frame.records:
                told = _telling(trail.facts_of(record)) if trail else record.events
                if trail is None or told or trail.asked_by(record):
                    begun_ns = record.at_ns if begun_ns is None else begun_ns
                    since_s = (record.at_ns - begun_ns) / SECOND_NS
                    wall = wall_time(header, record.at_ns)
                    yield Line(incarnation, record.seq, since_s, wall, record, told, trail is not None)


def _telling(told: tuple[Event, ...]) -> tuple[Event, ...]:
    """Without what others of the same record imply."""
    synced = {(fact.lease, fact.rank) for fact in told if isinstance(fact, GpuSynced)}
    ended = {fact.lease for fact in told if isinstance(fact, LeaseEnded)}
    return tuple(
        fact
        for fact in told
        if not (isinstance(fact, ShareEnded) and (fact.lease, fact.rank) in synced)
        and not (isinstance(fact, LeaseReleased) and fact.lease in ended)
    )


def open_lines(path: Path, request: str | None = None) -> tuple[Log, Iterator[Line]]:
    """Raises LogError, also while iterating. The log's troubles are complete after the last line."""
    log = Log.open(path)
    return log, lines(log, request)


def wall_time(header: SegmentHeader, at_ns: int) -> datetime:
    return datetime.fromtimestamp((header.wall_offset_ns + at_ns) / SECOND_NS, UTC)
