"""Turns facts, as they stand in the log, into columns and hands those to DuckDB.

There is no Python loop over pages: packed columns are joined as they are and read as numpy columns. Only
here is it known how a table of `replay.warehouse.tables` is created and filled.

Facts come in lots, because decoded ones are large and soon drop out of the processor's cache; of a lot only
packed bytes are kept. DuckDB gets many lots at once, because a statement costs as much as ten thousand rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, starmap
from math import gcd
from struct import Struct
from struct import error as StructError
from typing import Any, TypeAlias

import attrs
import msgspec
import numpy as np
import numpy.typing as npt

from replay.warehouse.tables import CAUSES, TABLES, Column, Row, Shape, Table
from replay.warehouse.words import Words

Array: TypeAlias = npt.NDArray[Any]
Piece: TypeAlias = Any
"""A column of a lot: packed bytes, or a list where its values are objects."""

_FORMATS = {Shape.HASH: "Q", Shape.FLAG: "?"}
_DTYPES = {Shape.HASH: "<u8", Shape.FLAG: "?", Shape.U32S: "<u4", Shape.U64S: "<i8", Shape.WORDS: "u1"}
_OBJECTS = {Shape.TEXT: str, Shape.BYTES: bytes, Shape.KEYS: bytes}
_WIDTHS = {Shape.U32S: 4, Shape.U64S: 8, Shape.WORDS: 1, Shape.KEYS: 1}
_PLACE = ("stretch", "seq", "fact")
_MISFITS = (TypeError, ValueError, OverflowError, StructError, IndexError, KeyError, msgspec.MsgspecError)
"""What Python says of a fact that does not have the fields of its kind."""


class Misshapen(ValueError):
    """A fact that no table can take."""


@attrs.frozen(slots=True)
class Lot:
    """Facts as columns, in which nothing is repeated yet."""

    places: Array
    """Of each row its fact, counted from the last flush."""
    singles: Sequence[Piece]
    sizes: Sequence[int]
    """Of each row, how many values its columns of many hold, or bytes of them; empty where there are none."""
    manys: Sequence[Piece]


@attrs.frozen(slots=True)
class Places:
    """Where facts stand, by their number since the last flush."""

    stretches: Array
    seqs: Array
    facts: Array


class Sink:
    """Fills one table, which must be there."""

    def __init__(self, connection: Any, table: Table) -> None:
        self.table = table
        self._connection = connection
        self._lots: list[Lot] = []
        self._insert = f"INSERT INTO {table.name} SELECT {', '.join(_selected(table))} FROM batch"
        self._singles = [column for column in table.columns if not column.shape.many]
        self._manys = [column for column in table.columns if column.shape.many]
        self._formats = [_FORMATS.get(column.shape, "q") for column in self._singles]
        self._width = _WIDTHS[self._manys[0].shape] if self._manys else 0
        self._columns_max = 1 + max((column.place for column in table.columns), default=0)
        self._pack_row = Struct(f"<q{''.join(self._formats)}").pack if table.plain else None

    def lot(self, places: Array, rows: Sequence[Row]) -> Lot:
        """The rows of these facts; nothing is kept yet. Raises Misshapen if one cannot stand in the table."""
        try:
            if self._pack_row is not None:
                return Lot(places, [b"".join(starmap(self._pack_row, rows))], (), ())
            return self._lot(places, rows)
        except Misshapen:
            raise
        except _MISFITS as error:
            raise Misshapen(f"{self.table.kind.__name__} has other fields than its kind: {error}") from error

    def keep(self, lot: Lot) -> None:
        self._lots.append(lot)

    def _lot(self, places: Array, rows: Sequence[Row]) -> Lot:
        if self.table.split is not None:
            parts = list(map(tuple, map(self.table.split, rows)))
            places = np.repeat(places, list(map(len, parts)))
            rows = list(chain.from_iterable(parts))
        given = list(zip(*rows, strict=True)) or [()] * self._columns_max
        singles = [self._single(number, given[c.place]) for number, c in enumerate(self._singles)]
        if not self._manys:
            return Lot(places, singles, (), ())
        sizes = list(map(len, given[self._manys[0].place]))
        if gcd(*sizes) % self._width:
            raise Misshapen(f"{self._manys[0].name} of {self.table.kind.__name__} ends within a value")
        for column in self._manys[1:]:
            others = list(map(len, given[column.place]))
            width = _WIDTHS[column.shape]
            if width != self._width:
                others = [
                    size * self._width if size % width else size * self._width // width for size in others
                ]
            if others != sizes:
                raise Misshapen(f"the columns of {self.table.kind.__name__} do not fit each other")
        return Lot(places, singles, sizes, [self._many(c, given[c.place]) for c in self._manys])

    def _single(self, number: int, values: Sequence[Any]) -> Piece:
        column = self._singles[number]
        kind = _OBJECTS.get(column.shape)
        if kind is not None:
            return _all_of(kind, values)
        return Struct(f"<{len(values)}{self._formats[number]}").pack(*values)

    def _many(self, column: Column, values: Sequence[Any]) -> Piece:
        if column.shape is Shape.KEYS:
            return _all_of(bytes, list(chain.from_iterable(values)))
        joined = b"".join(values)
        if column.shape is Shape.U64S and joined and max(joined[7::8]) > 127:
            raise Misshapen(f"{column.name} of {self.table.kind.__name__} has more than 63 bits")
        if column.words is not None and not set(joined) <= set(column.words.by_number):
            raise Misshapen(_no_word(column, self.table))
        return joined

    # --- handing over -----------------------------------------------------------------------------------

    def flush(self, places: Places) -> dict[int, str]:
        """Insert all that was kept. Gives the facts that had to be left out after all."""
        lots, self._lots = self._lots, []
        if not lots:
            return {}
        where = np.concatenate([lot.places for lot in lots])
        columns = self._packed_rows(lots) if self._pack_row is not None else self._columns(lots)
        left_out = self._unknown_words(columns, where)
        if self._manys:
            sizes = np.fromiter(chain.from_iterable(lot.sizes for lot in lots), np.int64) // self._width
            where = self._explode(columns, where, sizes)
            for number, column in enumerate(self._manys):
                columns[column.name] = _column(column, [lot.manys[number] for lot in lots])
        if left_out:
            kept = ~np.isin(where, list(left_out))
            where, columns = where[kept], {name: values[kept] for name, values in columns.items()}
        if len(where):
            batch = {
                "stretch": places.stretches[where],
                "seq": places.seqs[where],
                "fact": places.facts[where],
                **columns,
            }
            self._connection.register("batch", batch)
            self._connection.execute(self._insert)
        return left_out

    def _packed_rows(self, lots: list[Lot]) -> dict[str, Array]:
        dtype = np.dtype([("", "<q"), *((c.name, _DTYPES.get(c.shape, "<i8")) for c in self._singles)])
        table = np.frombuffer(b"".join(lot.singles[0] for lot in lots), dtype)
        return {column.name: table[column.name] for column in self._singles}

    def _columns(self, lots: list[Lot]) -> dict[str, Array]:
        return {
            column.name: _column(column, [lot.singles[number] for lot in lots])
            for number, column in enumerate(self._singles)
        }

    def _unknown_words(self, columns: dict[str, Array], where: Array) -> dict[int, str]:
        """Facts with numbers that stand for no word."""
        found: dict[int, str] = {}
        for column in self._singles:
            if column.words is not None:
                known = np.isin(columns[column.name], list(column.words.by_number))
                if not known.all():
                    found |= dict.fromkeys(where[~known].tolist(), _no_word(column, self.table))
        return found

    def _explode(self, columns: dict[str, Array], where: Array, sizes: Array) -> Array:
        """One row for each value of the columns of many: the rest is repeated, or runs on."""
        for column in self._singles:
            columns[column.name] = np.repeat(columns[column.name], sizes)
            if column.counted:
                nth = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
                columns[column.name] = columns[column.name] + nth
        return np.repeat(where, sizes)


def _column(column: Column, pieces: list[Piece]) -> Array:
    if column.shape not in _OBJECTS:
        return np.frombuffer(b"".join(pieces), _DTYPES.get(column.shape, "<i8"))
    values = list(chain.from_iterable(pieces))
    made = np.empty(len(values), object)
    made[:] = values
    return made


def _all_of(kind: type, values: Sequence[Any]) -> Sequence[Any]:
    if not {kind}.issuperset(map(type, values)):
        raise TypeError(f"a {kind.__name__} is needed")
    return values


def _no_word(column: Column, table: Table) -> str:
    return f"{column.name} of {table.kind.__name__} is no word that this OrbitKV knows"


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
