"""Turns facts, as they stand in the log, into numpy columns and hands those to DuckDB.

There is no Python loop over pages: packed columns are joined as they are and read as numpy columns. Only
here is it known how a table of `replay.tables` is created and filled.

Facts come in small lots, because decoded ones are large and soon drop out of the processor's cache; what
is kept of a lot is packed. DuckDB gets many lots at once, because a statement costs as much as thousands
of rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, starmap
from struct import Struct
from struct import error as StructError
from typing import Any, TypeAlias

import attrs
import msgspec
import numpy as np
import numpy.typing as npt

from replay.tables import CAUSES, TABLES, Column, Row, Shape, Table
from replay.words import Words

Array: TypeAlias = npt.NDArray[Any]

_PACKED = {Shape.U32S: "<u4", Shape.U64S: "<i8", Shape.WORDS: "u1"}
_FORMATS = {Shape.HASH: "Q", Shape.FLAG: "?"}
_DTYPES = {Shape.HASH: np.dtype("<u8"), Shape.FLAG: np.dtype("?")}
_PLACE = ("stretch", "seq", "fact")
_MISFITS = (TypeError, ValueError, OverflowError, StructError, IndexError, KeyError, msgspec.MsgspecError)
"""What Python says of a fact that does not have the fields of its kind."""


class Misshapen(ValueError):
    """A fact that no table can take."""


@attrs.frozen(slots=True)
class Places:
    """Where facts stand: one for each."""

    stretch: int
    seqs: Array
    facts: Array

    def pick(self, which: Array) -> "Places":
        return Places(self.stretch, self.seqs[which], self.facts[which])


@attrs.frozen(slots=True)
class Lot:
    """Columns of equal length, and where their rows stand."""

    places: Places
    columns: dict[str, Array]


class Sink:
    """Fills one table, which must be there."""

    def __init__(self, connection: Any, table: Table) -> None:
        self.table = table
        self._connection = connection
        self._lots: list[Lot] = []
        self._insert = f"INSERT INTO {table.name} SELECT {', '.join(_selected(table))} FROM batch"
        self._valid = {c.name: _valid(c.words) for c in table.columns if c.words}
        self._packed: np.dtype[Any] | None = None
        if table.plain:
            formats = "".join(_FORMATS.get(c.shape, "q") for c in table.columns)
            self._pack_row = Struct(f"<q{formats}").pack
            self._packed = np.dtype(
                [("tag", "<i8"), *((c.name, _DTYPES.get(c.shape, np.dtype("<i8"))) for c in table.columns)]
            )

    def lot(self, places: Places, rows: Sequence[Row]) -> Lot:
        """The rows of these facts; nothing is kept yet. Raises Misshapen if one cannot stand in the table."""
        try:
            lot = self._lot(places, rows)
        except Misshapen:
            raise
        except _MISFITS as error:
            raise Misshapen(f"{self.table.kind.__name__} has other fields than its kind: {error}") from error
        for name, valid in self._valid.items():
            column = lot.columns[name]
            if len(column) and (column.min() < 0 or column.max() >= len(valid) or not valid[column].all()):
                raise Misshapen(f"{name} of {self.table.kind.__name__} is no word that this OrbitKV knows")
        return lot

    def keep(self, lot: Lot) -> None:
        if len(lot.places.facts):
            self._lots.append(lot)

    def flush(self) -> int:
        """Insert all that was kept; gives the number of rows."""
        lots, self._lots = self._lots, []
        if not lots:
            return 0
        counts = [len(lot.places.facts) for lot in lots]
        batch: dict[str, Array] = {
            "stretch": np.repeat(np.array([lot.places.stretch for lot in lots], np.int32), counts),
            "seq": np.concatenate([lot.places.seqs for lot in lots]),
            "fact": np.concatenate([lot.places.facts for lot in lots]),
        }
        for column in self.table.columns:
            batch[column.name] = np.concatenate([lot.columns[column.name] for lot in lots])
        self._connection.register("batch", batch)
        self._connection.execute(self._insert)
        self._connection.unregister("batch")
        return sum(counts)

    def _lot(self, places: Places, rows: Sequence[Row]) -> Lot:
        if self._packed is not None:
            data = b"".join(starmap(self._pack_row, rows))
            table = np.frombuffer(data, self._packed)
            return Lot(places, {column.name: table[column.name] for column in self.table.columns})
        if self.table.split is not None:
            parts = [list(self.table.split(row)) for row in rows]
            places = _repeated(places, [len(part) for part in parts])
            rows = list(chain.from_iterable(parts))
        given = list(zip(*rows, strict=True)) or [()] * (1 + max(c.place for c in self.table.columns))
        single = {c.name: _single(c, given[c.place]) for c in self.table.columns if not c.shape.many}
        many = [column for column in self.table.columns if column.shape.many]
        return self._exploded(places, single, many, given) if many else Lot(places, single)

    def _exploded(
        self, places: Places, single: dict[str, Array], many: list[Column], given: Sequence[Sequence[Any]]
    ) -> Lot:
        """One row for each value of the columns that hold many: the rest is repeated, or runs on."""
        counts = _counts(many[0], given[many[0].place])
        columns: dict[str, Array] = {}
        for column in many:
            if (_counts(column, given[column.place]) != counts).any():
                raise Misshapen(f"the columns of {self.table.kind.__name__} do not fit each other")
            columns[column.name] = _values(column, given[column.place])
        columns |= {name: np.repeat(values, counts) for name, values in single.items()}
        counted = [column.name for column in self.table.columns if column.counted]
        if counted:
            nth = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            columns |= {name: columns[name] + nth for name in counted}
        return Lot(_repeated(places, counts), columns)


def _single(column: Column, values: Sequence[Any]) -> Array:
    """One value for each fact."""
    if column.shape is Shape.TEXT:
        return _objects(values, str)
    if column.shape is Shape.BYTES:
        return _objects(values, bytes)
    dtype = _DTYPES.get(column.shape, np.dtype("<i8"))
    return np.frombuffer(Struct(f"<{len(values)}{_FORMATS.get(column.shape, 'q')}").pack(*values), dtype)


def _counts(column: Column, values: Sequence[Any]) -> Array:
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    if column.shape is Shape.KEYS:
        return sizes
    width = np.dtype(_PACKED[column.shape]).itemsize
    if (sizes % width).any():
        raise Misshapen(f"{column.name} ends within a value")
    return sizes // width


def _values(column: Column, values: Sequence[Any]) -> Array:
    if column.shape is Shape.KEYS:
        return _objects(list(chain.from_iterable(values)), bytes)
    array = np.frombuffer(b"".join(values), _PACKED[column.shape])
    if column.shape is Shape.U64S and len(array) and array.min() < 0:
        raise Misshapen(f"{column.name} holds a number of more than 63 bits")
    return array


def _objects(values: Sequence[Any], kind: type) -> Array:
    if any(type(value) is not kind for value in values):
        raise TypeError(f"a {kind.__name__} is needed")
    made = np.empty(len(values), object)
    made[:] = values
    return made


def _repeated(places: Places, counts: list[int] | Array) -> Places:
    return Places(places.stretch, np.repeat(places.seqs, counts), np.repeat(places.facts, counts))


def _valid(words: Words) -> Array:
    """By number: whether there is such a word."""
    return np.array([number in words.by_number for number in range(max(words.by_number) + 1)])


# --- SQL ----------------------------------------------------------------------------------------------


def statements(tables: Iterable[Table] = TABLES) -> Iterator[str]:
    """That create the SQL types of the tables' words, and the tables."""
    words = {c.words.name: c.words for table in tables for c in table.columns if c.words}
    for each in (CAUSES, *words.values()):
        listed = ", ".join(_quoted(word) for word in each.listed if word is not None)
        yield f"CREATE TYPE {each.name} AS ENUM ({listed})"
    yield "CREATE TABLE records (stretch INTEGER, seq BIGINT, at_ns BIGINT, cause cause, fact BIGINT)"
    for table in tables:
        yield f"CREATE TABLE {table.name} ({', '.join(_columns(table))})"


def _columns(table: Table) -> list[str]:
    return [
        *("stretch INTEGER", "seq BIGINT", "fact BIGINT"),
        *(f"{named(column.name)} {column.sql_type}" for column in table.columns),
    ]


def _selected(table: Table) -> list[str]:
    return [*_PLACE, *map(_read, table.columns)]


def _read(column: Column) -> str:
    if column.words is not None:
        return worded(named(column.name), column.words)
    if column.none is not None:
        return f"nullif({named(column.name)}, {column.none})"
    return named(column.name)


def worded(number: str, words: Words) -> str:
    """The number's word, looked up in a list, which begins at 1 in SQL."""
    literals = ", ".join("NULL" if word is None else _quoted(word) for word in words.listed)
    return f"([{literals}]::{words.name}[])[{number}::BIGINT + {1 - words.lowest}]"


def named(column: str) -> str:
    """Some fields have names that SQL uses for clauses."""
    return f'"{column}"'


def _quoted(word: str) -> str:
    return f"'{word}'"
