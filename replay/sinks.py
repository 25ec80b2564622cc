"""Turns the facts of a batch into rows of their tables and hands those to DuckDB.

There is no Python loop over pages: packed columns are joined as they are and read as numpy columns. Only
here is it known how a table of `replay.tables` is created and filled.
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from replay.tables import Number, Table

_PLACE = ("stretch", "seq", "fact")
_U32_BYTES = 4

Rows: TypeAlias = dict[str, npt.NDArray[Any]]
"""Columns of equal length by name. `stretch`, `seq` and `fact` are the place of a row."""


class Misshapen(ValueError):
    """A fact that no table can take."""


class Sink:
    """Fills one table, which it creates in `connection`."""

    def __init__(self, connection: Any, table: Table) -> None:
        self._table = table
        self._connection = connection
        connection.execute(f"CREATE TABLE {table.name} ({', '.join(_columns(table))})")
        self._insert = f"INSERT INTO {table.name} SELECT {', '.join(_selected(table))} FROM batch"

    def fill(self, places: Rows, events: Sequence[Any]) -> dict[int, str]:
        """Insert the rows of these events, which stand at `places`. Gives the facts left out, and why."""
        if not events:
            return {}
        items = events
        if self._table.split is not None:
            parts = [list(self._table.split(event)) for event in events]
            items = [item for part in parts for item in part]
            places = _repeated(places, [len(part) for part in parts])
        misshapen: dict[int, str] = {}
        try:
            batch = self._batch(places, items)
        except Misshapen:
            misshapen = self._misshapen(places, items)
            kept = np.flatnonzero(~np.isin(places["fact"], list(misshapen)))
            batch = self._batch(_picked(places, kept), [items[index] for index in kept.tolist()])
        if len(batch["fact"]):
            self._connection.register("batch", batch)
            self._connection.execute(self._insert)
            self._connection.unregister("batch")
        return misshapen

    def _misshapen(self, places: Rows, items: Sequence[Any]) -> dict[int, str]:
        """One item at a time: slow, and only for batches that hold such a fact."""
        found = {}
        for index, item in enumerate(items):
            try:
                self._batch(_picked(places, np.array([index])), [item])
            except Misshapen as error:
                found[int(places["fact"][index])] = str(error)
        return found

    def _batch(self, places: Rows, items: Sequence[Any]) -> Rows:
        """The items' columns beside their places. Raises Misshapen if one cannot stand in the table."""
        table, rows = self._table, dict(places)
        for number in table.numbers:
            try:
                rows[number.name] = np.fromiter(map(number.of, items), np.int64, len(items))
            except OverflowError as error:
                raise Misshapen(f"{number.name} of {table.fact.__name__} has more than 63 bits") from error
        for text in table.texts:
            rows[text] = np.array(list(map(attrgetter(text), items)), dtype=object)
        return self._unpacked(rows, items) if table.packed else rows

    def _unpacked(self, rows: Rows, items: Sequence[Any]) -> Rows:
        """One row for each value of the packed columns: the rest is repeated, or runs on."""
        packed = self._table.packed
        columns = {name: list(map(attrgetter(attribute), items)) for name, attribute in packed}
        sizes = [np.fromiter(map(len, column), np.int64, len(items)) for column in columns.values()]
        if any((size != sizes[0]).any() for size in sizes) or (sizes[0] % _U32_BYTES).any():
            raise Misshapen(f"the columns of {self._table.fact.__name__} do not fit each other")
        counts = sizes[0] // _U32_BYTES
        rows = _repeated(rows, counts)
        counted = [number.name for number in self._table.numbers if number.counted]
        if counted:
            nth = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            rows |= {name: rows[name] + nth for name in counted}
        return rows | {name: np.frombuffer(b"".join(column), "<u4") for name, column in columns.items()}


def _repeated(rows: Rows, counts: list[int] | npt.NDArray[np.int64]) -> Rows:
    return {name: np.repeat(values, counts) for name, values in rows.items()}


def _picked(rows: Rows, kept: npt.NDArray[Any]) -> Rows:
    return {name: values[kept] for name, values in rows.items()}


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
