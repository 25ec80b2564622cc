"""Stories to tell lies in: the records of one incarnation, true until a lie changes them.

A lie changes facts only, and gives the seq of the record that a judge must name. It may not find what it
needs in a story (StopIteration); it is then told in another one.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias, TypeVar

import attrs
import msgspec

from orbitkv.events import commands, facts
from orbitkv.events.facts import Event
from orbitkv.events.record import Record
from tests.log.hinting import Hinting
from tests.log.simulated import simulated_records
from tests.models.columns import column, numbers

Kind = TypeVar("Kind", bound=Any)
Find: TypeAlias = tuple[Record, Kind]


@attrs.define
class Story:
    """One incarnation's records, to be changed record by record. Record `seq` is `records[seq - 1]`."""

    records: list[Record]

    def all(self, kind: type[Kind]) -> Iterator[Find[Kind]]:
        for record in self.records:
            for event in record.events:
                if isinstance(event, kind):
                    yield record, event

    def first(self, kind: type[Kind], wanted: Callable[[Kind], bool] = lambda _: True) -> Find[Kind]:
        return next((record, event) for record, event in self.all(kind) if wanted(event))

    def caused_by(self, kind: type[commands.Command]) -> Iterator[Record]:
        return (record for record in self.records if isinstance(record.cause, kind))

    def replace(self, record: Record, old: Event, *new: Event) -> int:
        """Put others in the place of one fact; gives the record's seq."""
        told = self.records[record.seq - 1]
        place = next(index for index, event in enumerate(told.events) if event is old)
        events = (*told.events[:place], *new, *told.events[place + 1 :])
        self.records[record.seq - 1] = msgspec.structs.replace(told, events=events)
        return record.seq

    def alter(self, record: Record, old: Event, **changes: object) -> int:
        return self.replace(record, old, msgspec.structs.replace(old, **changes))

    def add(self, seq: int, *events: Event) -> int:
        """At the end of a record."""
        record = self.records[seq - 1]
        self.records[seq - 1] = msgspec.structs.replace(record, events=(*record.events, *events))
        return seq


Lie: TypeAlias = Callable[[Story], int]
"""Tells the lie and gives the seq that a judge must name first."""


def without(packed: bytes, *gone: int) -> bytes:
    return column(number for number in numbers(packed) if number not in gone)


def with_first(packed: bytes, number: int) -> bytes:
    """The column with another first value."""
    return column([number]) + packed[4:]


def of_incarnation(records: Sequence[Record], number: int) -> list[Record]:
    """The same story as that of another incarnation; what says otherwise stays a lie."""
    first = records[0]
    assert isinstance(first.cause, commands.Start)
    events = tuple(
        msgspec.structs.replace(event, incarnation=number)
        if isinstance(event, facts.IncarnationStarted) and event.incarnation == first.cause.incarnation
        else event
        for event in first.events
    )
    cause = msgspec.structs.replace(first.cause, incarnation=number)
    return [msgspec.structs.replace(first, cause=cause, events=events), *records[1:]]


@cache
def hinted_story(seed: int, steps: int = 1200) -> tuple[Record, ...]:
    """An incarnation of two engines that hint, which ends by the death of its manager."""
    records: list[Record] = []
    hinting = Hinting(seed, records.append, crashes=False)
    hinting.run(steps)
    hinting.crash()
    return tuple(records[: [record.seq for record in records].index(1, 1)])


@cache
def simulated_stories(seed: int, steps: int = 1200) -> tuple[tuple[Record, ...], ...]:
    """The incarnations of a simulated run, longest first, as far as the log has their beginning."""
    incarnations = (tuple(records) for records in simulated_records(seed, steps) if records)
    return tuple(sorted(incarnations, key=len, reverse=True))
