"""Sorts facts by their kind and gives each kind to the tables that take it.

A fact that does not fit is left out of all tables, and told with its place. Facts of an older OrbitKV that
lack new fields are completed with the defaults.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import attrs
import msgspec
import numpy as np

from orbitkv.events.frame import Frame, SegmentHeader
from replay.log import LogSegment, Trouble
from replay.warehouse.records import BareRecords
from replay.warehouse.sinks import Array, Misshapen, Places, Sink, worded
from replay.warehouse.tables import CAUSES, TABLES, Row, fields_of, kinds

_NO_TAG = -1
_tag = itemgetter(0)


class Kind:
    """One kind of fact and the sinks that take it."""

    def __init__(self, kind: type[msgspec.Struct], sinks: list[Sink]) -> None:
        fields = fields_of(kind)
        self.name = kind.__name__
        self.sinks = sinks
        self._length = 1 + len(fields)
        self._needed = 1 + sum(field.required for field in fields)
        self._defaults = [None if field.required else field.default for field in fields]

    def take(self, places: Array, rows: Sequence[Row]) -> dict[int, str]:
        """Keep these facts in all tables of their kind. Gives those that are left out, and why."""
        try:
            lots = [sink.lot(places, rows) for sink in self.sinks]
        except Misshapen:
            return self._take_what_fits(places, rows)
        for sink, lot in zip(self.sinks, lots, strict=True):
            sink.keep(lot)
        return {}

    def _take_what_fits(self, places: Array, rows: Sequence[Row]) -> dict[int, str]:
        left_out: dict[int, str] = {}
        for index, row in enumerate(map(self._completed, rows)):
            try:
                lots = [sink.lot(places[index : index + 1], [row]) for sink in self.sinks]
            except Misshapen as error:
                left_out[int(places[index])] = str(error)
                continue
            for sink, lot in zip(self.sinks, lots, strict=True):
                sink.keep(lot)
        return left_out

    def _completed(self, row: Row) -> Row:
        if len(row) < self._needed:
            return row
        return [*row[: self._length], *self._defaults[len(row) - 1 :]]


@attrs.frozen(slots=True)
class _From:
    """A frame whose records were read; `index` is the number of the first since the last flush."""

    path: Path
    header: SegmentHeader
    offset: int
    stretch: int
    first_seq: int
    index: int


class Facts:
    """Collects records and gives their facts to the tables. `base` is the number of facts before them."""

    def __init__(self, connection: Any, base: int = 0) -> None:
        self._connection = connection
        self._base = base
        self._sinks = [Sink(connection, table) for table in TABLES]
        self._kinds = {
            kind.__struct_config__.tag: Kind(kind, [s for s in self._sinks if s.table.kind is kind])
            for kind in kinds()
        }
        self._insert_records = (
            f"INSERT INTO records SELECT stretch, seq, at_ns, {worded('cause', CAUSES)}, fact FROM batch"
        )
        self._lists: list[list[list[Any]]] = []
        """Facts that wait for `settle`, by record."""
        self._begin()

    def _begin(self) -> None:
        self._froms: list[_From] = []
        self._times: list[int] = []
        self._causes: list[int] = []
        self._counts: list[int] = []
        """Of facts, by record."""
        self._facts = 0
        self._left_out: dict[int, str] = {}

    @property
    def waiting(self) -> int:
        """Records that wait for `settle`."""
        return len(self._lists)

    @property
    def settled(self) -> int:
        """Facts that wait for `flush`."""
        return self._facts

    @property
    def base(self) -> int:
        """Facts in the tables, and those that were left out of them."""
        return self._base

    def skip(self, facts: int) -> None:
        """So many have come into the tables in another way. None may wait."""
        assert not self._times, "facts are counted in the order of the log"
        self._base += facts

    def add(self, segment: LogSegment, frame: Frame, stretch: int, records: BareRecords) -> None:
        self._froms.append(
            _From(segment.path, segment.header, frame.offset, stretch, frame.first_seq, len(self._times))
        )
        self._times += records.times
        self._causes += records.causes
        self._lists += records.facts

    def settle(self) -> None:
        """Turn what was added into columns."""
        lists, self._lists = self._lists, []
        self._counts += map(len, lists)
        events = list(chain.from_iterable(lists))
        for tag, which, rows in _by_tag(events):
            kind = self._kinds.get(tag)
            places = which + self._facts
            if kind is not None:
                self._left_out |= kind.take(places, rows)
            else:
                what = f"a fact of kind {tag} is none that this OrbitKV knows; use the OrbitKV that wrote it"
                self._left_out |= dict.fromkeys(places.tolist(), what)
        self._facts += len(events)

    def flush(self) -> list[Trouble]:
        """Insert what is settled. Gives the facts that had to be left out."""
        if not self._times:
            return []
        starts = np.array([*(each.index for each in self._froms), len(self._times)])
        sizes = np.diff(starts)
        stretches = np.repeat(np.array([each.stretch for each in self._froms], np.int32), sizes)
        ahead = np.array([each.first_seq - each.index for each in self._froms])
        seqs = np.arange(len(self._times)) + np.repeat(ahead, sizes)
        counts = np.array(self._counts)
        last_facts = self._base + np.cumsum(counts)
        batch = {
            "stretch": stretches,
            "seq": seqs,
            "at_ns": np.array(self._times, np.int64),
            "cause": np.array(self._causes, np.int64),
            "fact": last_facts,
        }
        self._connection.register("batch", batch)
        self._connection.execute(self._insert_records)
        numbers = np.arange(self._base + 1, self._base + 1 + self._facts)
        places = Places(np.repeat(stretches, counts), np.repeat(seqs, counts), numbers)
        for sink in self._sinks:
            self._left_out |= sink.flush(places)
        troubles = [
            self._trouble(fact, what, last_facts, seqs) for fact, what in sorted(self._left_out.items())
        ]
        self._base += self._facts
        self._begin()
        return troubles

    def _trouble(self, fact: int, what: str, last_facts: Array, seqs: Array) -> Trouble:
        record = int(np.searchsorted(last_facts, self._base + fact + 1))
        came = self._froms[bisect_right(self._froms, record, key=attrgetter("index")) - 1]
        return Trouble(came.path, came.offset, came.header.incarnation, int(seqs[record]), what)


def _by_tag(events: Sequence[Row]) -> Iterator[tuple[int, Array, Sequence[Row]]]:
    """Per kind: its tag, where its facts stand among all, and the facts, in the order of the log."""
    if not events:
        return
    try:
        tags = np.fromiter(map(_tag, events), np.int32, len(events))
    except (TypeError, ValueError, OverflowError, IndexError):
        tags = np.array([_tag_or_none(event) for event in events], np.int32)
    order = np.argsort(tags, kind="stable")
    rows = itemgetter(*order.tolist())(events) if len(events) > 1 else (events[0],)
    ordered = tags[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1)).tolist()
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        yield int(ordered[start]), order[start:end], rows[start:end]


def _tag_or_none(event: Row) -> int:
    tag = event[0] if event else None
    return tag if isinstance(tag, int) and 0 <= tag < 1 << 31 else _NO_TAG
