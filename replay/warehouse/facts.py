"""Sorts facts by their kind and gives each kind to the tables that take it.

A fact that does not fit is left out of all tables, and told with its place. Facts of an older OrbitKV that
lack new fields are completed with the defaults.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import attrs
import msgspec
import numpy as np

from orbitkv.events.frame import SegmentHeader
from replay.log import Trouble
from replay.sinks import Array, Misshapen, Places, Sink, worded
from replay.tables import CAUSES, TABLES, Row, fields_of, kinds
from replay.warehouse.records import BareRecord

_NO_TAG = -1
_tag = itemgetter(0)
_events = attrgetter("events")


class Kind:
    """One kind of fact and the sinks that take it."""

    def __init__(self, kind: type[msgspec.Struct], sinks: list[Sink]) -> None:
        fields = fields_of(kind)
        self.name = kind.__name__
        self.sinks = sinks
        self._length = 1 + len(fields)
        self._needed = 1 + sum(field.required for field in fields)
        self._defaults = [None if field.required else field.default for field in fields]

    def take(self, places: Places, rows: Sequence[Row]) -> dict[int, str]:
        """Keep these facts in all tables of their kind. Gives those that are left out, and why."""
        try:
            lots = [sink.lot(places, rows) for sink in self.sinks]
        except Misshapen:
            return self._take_what_fits(places, rows)
        for sink, lot in zip(self.sinks, lots, strict=True):
            sink.keep(lot)
        return {}

    def _take_what_fits(self, places: Places, rows: Sequence[Row]) -> dict[int, str]:
        rows = [self._completed(row) for row in rows]
        left_out: dict[int, str] = {}
        fitting = []
        for index, row in enumerate(rows):
            try:
                for sink in self.sinks:
                    sink.lot(places.pick(np.array([index])), [row])
                fitting.append(index)
            except Misshapen as error:
                left_out[int(places.facts[index])] = str(error)
        if fitting:
            picked = places.pick(np.array(fitting))
            for sink in self.sinks:
                sink.keep(sink.lot(picked, [rows[index] for index in fitting]))
        return left_out

    def _completed(self, row: Row) -> Row:
        if len(row) < self._needed:
            return row
        return [*row[: self._length], *self._defaults[len(row) - 1 :]]


@attrs.frozen(slots=True)
class _From:
    """Where records were read."""

    path: Path
    header: SegmentHeader
    offset: int
    first_seq: int


class Facts:
    """Collects records and gives their facts to the tables. `base` is the number of facts before them."""

    def __init__(self, connection: Any, base: int = 0) -> None:
        self.number = base
        """Of the last fact that was dealt with."""
        self.troubles: list[Trouble] = []
        """Facts that were left out."""
        self._connection = connection
        self._sinks = [Sink(connection, table) for table in TABLES]
        self._kinds = {
            kind.__struct_config__.tag: Kind(kind, [s for s in self._sinks if s.table.kind is kind])
            for kind in kinds()
        }
        self._records: list[BareRecord] = []
        self._froms: list[_From] = []
        self._record_lots: list[tuple[int, Array, Array, Array, Array]] = []
        self._insert_records = (
            f"INSERT INTO records SELECT stretch, seq, at_ns, {worded('cause', CAUSES)}, fact FROM batch"
        )

    def add(self, path: Path, header: SegmentHeader, offset: int, records: list[BareRecord]) -> None:
        self._records += records
        self._froms.append(_From(path, header, offset, records[0].seq))

    @property
    def collected(self) -> int:
        """Records that wait for `settle`."""
        return len(self._records)

    def settle(self, stretch: int) -> None:
        """Turn what was added, all of one stretch, into columns."""
        records, self._records = self._records, []
        froms, self._froms = self._froms, []
        if not records:
            return
        seqs = np.arange(records[0].seq, records[0].seq + len(records))
        lists = list(map(_events, records))
        counts = np.fromiter(map(len, lists), np.int64, len(lists))
        events = list(chain.from_iterable(lists))
        last_facts = self.number + np.cumsum(counts)
        times = np.fromiter((record.at_ns for record in records), np.int64, len(records))
        causes = np.fromiter((record.cause.tag for record in records), np.int64, len(records))
        self._record_lots.append((stretch, seqs, times, causes, last_facts))
        places = Places(stretch, np.repeat(seqs, counts), np.arange(self.number + 1, last_facts[-1] + 1))
        self.number = int(last_facts[-1])
        for tag, which, rows in _by_tag(events):
            for fact, what in self._take(tag, places.pick(which), rows).items():
                seq = int(seqs[np.searchsorted(last_facts, fact)])
                came = next(each for each in reversed(froms) if each.first_seq <= seq)
                self.troubles.append(Trouble(came.path, came.offset, came.header.incarnation, seq, what))

    def _take(self, tag: int, places: Places, rows: Sequence[Row]) -> dict[int, str]:
        kind = self._kinds.get(tag)
        if kind is not None:
            return kind.take(places, rows)
        what = f"a fact of kind {tag} is none that this OrbitKV knows; use the OrbitKV that wrote it"
        return dict.fromkeys(places.facts.tolist(), what)

    def flush(self) -> int:
        """Insert what is settled; gives the number of rows."""
        rows = 0
        if self._record_lots:
            stretches, *columns = zip(*self._record_lots, strict=True)
            names = ("seq", "at_ns", "cause", "fact")
            batch = {name: np.concatenate(parts) for name, parts in zip(names, columns, strict=True)}
            batch["stretch"] = np.repeat(np.array(stretches, np.int32), list(map(len, columns[0])))
            self._record_lots = []
            self._connection.register("batch", batch)
            self._connection.execute(self._insert_records)
            self._connection.unregister("batch")
            rows += len(batch["seq"])
        return rows + sum(sink.flush() for sink in self._sinks)


def _by_tag(events: list[Row]) -> Iterator[tuple[int, Array, Sequence[Row]]]:
    """Per kind: its tag, where its facts stand among all, and the facts, in the order of the log."""
    if not events:
        return
    try:
        tags = np.fromiter(map(_tag, events), np.int32, len(events))
    except (TypeError, ValueError, OverflowError, IndexError):
        tags = np.array([_tag_or_none(event) for event in events], np.int32)
    order = np.argsort(tags, kind="stable")
    which = order.tolist()
    rows = itemgetter(*which)(events) if len(which) > 1 else (events[0],)
    ordered = tags[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1)).tolist()
    for start, end in zip(starts, [*starts[1:], len(which)], strict=True):
        yield int(ordered[start]), order[start:end], rows[start:end]


def _tag_or_none(event: Row) -> int:
    tag = event[0] if event else None
    return tag if isinstance(tag, int) and 0 <= tag < 1 << 31 else _NO_TAG
