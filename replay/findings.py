"""What walking through a log finds: per incarnation, and the first place where kernel and log disagree."""

from pathlib import Path
from typing import Any

import attrs

from orbitkv.events.commands import Start
from orbitkv.events.facts import IncarnationClosed
from orbitkv.events.frame import SegmentHeader
from orbitkv.events.record import Record
from replay.log import Log
from replay.totals import store_of


@attrs.frozen(slots=True, kw_only=True)
class Difference:
    path: Path
    """The segment in which it was found."""
    incarnation: int
    seq: int
    cause: str
    """The command of the record, in words; empty where a snapshot is meant."""
    what: str
    expected: str
    """What stands in the log."""
    got: str
    """What the kernel makes of it."""

    def __str__(self) -> str:
        lines = [f"incarnation {self.incarnation} seq {self.seq} ({self.path.name}): {self.what}"]
        if self.cause:
            lines.append(f"  cause     {self.cause}")
        return "\n".join([*lines, f"  expected  {self.expected}", f"  got       {self.got}"])


@attrs.define(slots=True, kw_only=True)
class Incarnation:
    incarnation: int
    kernel_revision: int
    first_seq: int
    """Of the first record that the log still has."""
    next_seq: int
    records: int = 0
    segments: int = 0
    snapshots_compared: int = 0
    decided: bool = False
    """Its causes were stepped again, not only its facts applied."""
    closed: bool = False
    lost_tail: bool = False
    state: str = ""
    """The state at its end, in one line."""
    digest: str = ""
    totals: dict[str, Any] = attrs.field(factory=dict)
    """What its facts add up to (`replay.totals`)."""
    store: dict[str, Any] = attrs.field(factory=dict)
    """What drove the SSD, as its first record says; empty when that is no longer in the log."""

    @classmethod
    def of(cls, header: SegmentHeader, *, decided: bool) -> "Incarnation":
        return cls(
            incarnation=header.incarnation,
            kernel_revision=header.kernel_revision,
            first_seq=header.first_seq,
            next_seq=header.first_seq,
            decided=decided,
        )

    def saw(self, records: list[Record]) -> None:
        if isinstance(records[0].cause, Start):
            self.store = store_of(records[0].cause)
        self.records += len(records)
        self.next_seq = records[-1].seq + 1
        for event in records[-1].events:
            if isinstance(event, IncarnationClosed):
                self.closed, self.lost_tail = True, event.lost_tail


@attrs.define(slots=True)
class Report:
    log: Log
    incarnations: list[Incarnation] = attrs.field(factory=list)
    difference: Difference | None = None

    @property
    def ok(self) -> bool:
        return self.difference is None and not self.log.troubles

    @property
    def records(self) -> int:
        return sum(incarnation.records for incarnation in self.incarnations)

    def as_json(self) -> dict[str, Any]:
        return {
            "log": str(self.log.path),
            "ok": self.ok,
            "records": self.records,
            "incarnations": [attrs.asdict(each) for each in self.incarnations],
            "difference": self.difference and _plain(self.difference),
            "troubles": [_plain(trouble) for trouble in self.log.troubles],
            "notes": self.log.notes,
        }


def _plain(found: Any) -> dict[str, Any]:
    return attrs.asdict(found) | {"path": str(found.path)}
