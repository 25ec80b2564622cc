"""Collects facts of one table and hands them to DuckDB in batches, without a Python loop over pages.

One fact costs one `struct.pack`; its packed columns are joined as they are and become numpy columns. Only
here is it known how a table of `replay.tables` is created and filled.
"""

import struct
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from replay.tables import Number, Table

_PLACE = (("stretch", "<i4"), ("seq", "<i8"), ("fact", "<i8"))
_U32_BYTES = 4


class Misshapen(ValueError):
    """A fact that no table can take: its columns do not fit each other, or a number of it is too large."""


class Sink:
    """Fills the table `table`, which it creates in `connection`."""

    def __init__(self, connection: Any, table: Table) -> None:
        self.table = table
        self.packed_bytes = 0
        """Collected in packed columns and not handed over yet."""
        self._connection = connection
        self._dtype = np.dtype([*_PLACE, *((number.name, "<i8") for number in table.numbers)])
        self._pack = struct.Struct(f"<iqq{len(table.numbers)}q").pack
        self._numbers_of = _getter([number.attribute or number.name for number in table.numbers])
        self._texts_of = _getter(list(table.texts))
        self._columns_of = _getter([attribute for _, attribute in table.packed])
        self._heads: list[bytes] = []
        self._texts: list[list[Any]] = [[] for _ in table.texts]
        self._packed: list[list[Any]] = [[] for _ in table.packed]
        connection.execute(f"CREATE TABLE {table.name} ({', '.join(_columns(table))})")
        self._insert = f"INSERT INTO {table.name} SELECT {', '.join(_selected(table))} FROM batch"

    def add(self, stretch: int, seq: int, fact: int, event: Any) -> None:
        """Raises Misshapen."""
        for item in (event,) if self.table.split is None else self.table.split(event):
            try:
                head = self._pack(stretch, seq, fact, *self._numbers_of(item))
            except struct.error as error:
                raise Misshapen(f"a number of {type(event).__name__} has more than 63 bits") from error
            if self._packed:
                columns = self._columns_of(item)
                self._measure(columns)
                for packed, column in zip(self._packed, columns, strict=True):
                    packed.append(column)
            for texts, text in zip(self._texts, self._texts_of(item), strict=True):
                texts.append(text)
            self._heads.append(head)

    def flush(self) -> None:
        """Hand over what was collected."""
        if self._heads:
            self._connection.register("batch", self._batch())
            self._connection.execute(self._insert)
            self._connection.unregister("batch")
            self.packed_bytes = 0
            self._heads.clear()
            for collected in (*self._texts, *self._packed):
                collected.clear()

    def _measure(self, columns: tuple[bytes, ...]) -> None:
        size_bytes = len(columns[0])
        if size_bytes % _U32_BYTES or any(len(column) != size_bytes for column in columns):
            raise Misshapen(f"the columns of {self.table.fact.__name__} do not fit each other")
        self.packed_bytes += size_bytes * len(columns)

    def _batch(self) -> dict[str, npt.NDArray[Any]]:
        """The collected facts by column; a fact's numbers stand beside each value of its packed columns."""
        heads = np.frombuffer(b"".join(self._heads), self._dtype)
        names = self._dtype.names or ()
        texts = zip(self.table.texts, self._texts, strict=True)
        if not self._packed:
            return {name: heads[name] for name in names} | {
                name: np.array(values, dtype=object) for name, values in texts
            }
        counts = np.fromiter(map(len, self._packed[0]), np.int64, len(heads)) // _U32_BYTES
        heads = np.repeat(heads, counts)
        batch = {name: heads[name] for name in names}
        counted = [number.name for number in self.table.numbers if number.counted]
        if counted:
            nth = np.arange(len(heads)) - np.repeat(np.cumsum(counts) - counts, counts)
            batch |= {name: batch[name] + nth for name in counted}
        for (name, _), columns in zip(self.table.packed, self._packed, strict=True):
            batch[name] = np.frombuffer(b"".join(columns), "<u4")
        return batch


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
    return [
        *(name for name, _ in _PLACE),
        *map(_worded, table.numbers),
        *table.texts,
        *(name for name, _ in table.packed),
    ]


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


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The attributes as a tuple, however many there are."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda _: ()
    (name,) = names
    return lambda item: (getattr(item, name),)
