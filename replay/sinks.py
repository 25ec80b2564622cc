"""Turns the facts of a batch into rows of their tables and hands those to DuckDB.

There is no Python loop over pages: packed columns are joined as they are and read as numpy columns. Only
here is it known how a table of `replay.tables` is created and filled.
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from replay.tables import Number, Table

_PLACE = ("stretch", "seq", "fact")
_U32_BYTES = 4

_Array: TypeAlias = npt.NDArray[Any]


@attrs.frozen
class Places:
    """Where the facts of a batch stand: arrays with one entry for each of its records."""

    stretches: _Array
    seqs: _Array
    last_facts: _Array
    """Number of the record's last fact; where it has none, that of a record before."""

    def of(self, facts: _Array) -> dict[str, _Array]:
        record = np.searchsorted(self.last_facts, facts)
        return {"stretch": self.stretches[record], "seq": self.seqs[record], "fact": facts}


class Misshapen(ValueError):
    """A fact that no table can take."""


class Sink:
    """Fills one table, which it creates in `connection`."""

    def __init__(self, connection: Any, table: Table) -> None:
        self._table = table
        self._connection = connection
        connection.execute(f"CREATE TABLE {table.name} ({', '.join(_columns(table))})")
        self._insert = f"INSERT INTO {table.name} SELECT {', '.join(_selected(table))} FROM batch"

    def fill(self, places: Places, facts: Sequence[int], events: Sequence[Any]) -> dict[int, str]:
        """Insert the rows of these events, whose numbers are `facts`. Gives those left out, and why."""
        items = events
        numbers = np.array(facts, np.int64)
        if self._table.split is not None:
            parts = [list(self._table.split(event)) for event in events]
            items = [item for part in parts for item in part]
            numbers = np.repeat(numbers, [len(part) for part in parts])
        misshapen: dict[int, str] = {}
        try:
            batch = self._batch(places.of(numbers), items)
        except Misshapen:
            misshapen = self._misshapen(places, numbers, items)
            kept = [index for index, number in enumerate(numbers.tolist()) if number not in misshapen]
            batch = self._batch(places.of(numbers[kept]), [items[index] for index in kept])
        if len(batch["fact"]):
            self._connection.register("batch", batch)
            self._connection.execute(self._insert)
            self._connection.unregister("batch")
        return misshapen

    def _misshapen(self, places: Places, numbers: _Array, items: Sequence[Any]) -> dict[int, str]:
        """One item at a time: slow, and only for batches that hold such a fact."""
        found = {}
        for index, item in enumerate(items):
            try:
                self._batch(places.of(numbers[index : index + 1]), [item])
            except Misshapen as error:
                found[int(numbers[index])] = str(error)
        return found

    def _batch(self, rows: dict[str, _Array], items: Sequence[Any]) -> dict[str, _Array]:
        """The items' columns beside `rows`. Raises Misshapen if one of them cannot stand in the table."""
        table = self._table
        for number in table.numbers:
            try:
                rows[number.name] = np.fromiter(map(number.of, items), np.int64, len(items))
            except OverflowError as error:
                raise Misshapen(f"{number.name} of {table.fact.__name__} has more than 63 bits") from error
        for text in table.texts:
            rows[text] = np.array(list(map(attrgetter(text), items)), dtype=object)
        return self._unpacked(rows, items) if table.packed else rows

    def _unpacked(self, rows: dict[str, _Array], items: Sequence[Any]) -> dict[str, _Array]:
        """One row for each value of the packed columns: the rest is repeated, or runs on."""
        columns = {
            name: [getattr(item, attribute) for item in items] for name, attribute in self._table.packed
        }
        sizes = [np.fromiter(map(len, column), np.int64, len(items)) for column in columns.values()]
        if any((size != sizes[0]).any() for size in sizes) or (sizes[0] % _U32_BYTES).any():
            raise Misshapen(f"the columns of {self._table.fact.__name__} do not fit each other")
        counts = sizes[0] // _U32_BYTES
        rows = {name: np.repeat(values, counts) for name, values in rows.items()}
        counted = [number.name for number in self._table.numbers if number.counted]
        if counted:
            nth = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            rows |= {name: rows[name] + nth for name in counted}
        return rows | {name: np.frombuffer(b"".join(column), "<u4") for name, column in columns.items()}


def word_types(tables: Iterable[Table]) -> list[str]:
    """The statements that create the SQL types of the tables' words."""
    kinds = {number.words.name: number.words for table in tables for number in table.numbers if number.words}
    return [
        f"CREATE TYPE {kind.name} AS ENUM ({', '.join(map(_quoted, kind.by_number.values()))})"
        for kind in kinds.values()
    ]


def _columns(table: Table) -> list[str]:
    return [
        "stretch INTEGER",
        "seq BIGINT",
        "fact BIGINT",
        *(f"{number.name} {number.words.name if number.words else 'BIGINT'}" for number in table.numbers),
        *(f"{name} VARCHAR" for name in table.texts),
        *(f"{name} UINTEGER" for name, _ in table.packed),
    ]


def _selected(table: Table) -> list[str]:
    return [*_PLACE, *map(_worded, table.numbers), *table.texts, *(name for name, _ in table.packed)]


def _worded(number: Number) -> str:
    """The number as it is, or looked up in the list of its words, which begins at 1 in SQL."""
    if number.words is None:
        return number.name
    words = number.words.by_number
    lowest = min(words)
    listed = (words.get(value) for value in range(lowest, max(words) + 1))
    literals = ", ".join("NULL" if word is None else _quoted(word) for word in listed)
    return f"([{literals}])[{number.name} - {lowest - 1}]::{number.words.name}"


def _quoted(word: str) -> str:
    return f"'{word}'"
