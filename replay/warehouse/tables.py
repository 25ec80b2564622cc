"""Which facts stand in which table of the warehouse, column by column.

Exists so that SQL over a log needs no knowledge of msgpack or packed columns. Tables follow from the
vocabulary: each kind of fact is a table under its own name (`QueryOpened` is `query_opened`), each of its
fields a column, and a fact that lists pages is one row for each. What does not follow is declared here.
Says only how facts are laid out; what they add up to is SQL's business.

Every row begins with `stretch`, `seq` and `fact`: the run of records without a gap that it stands in,
its record, and its place among all facts of the warehouse. Words stand instead of the numbers of closed
sets. Rows keep the order of the log and, within one fact, that of its columns.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, IntEnum
from typing import Any, TypeAlias, get_args

import attrs
import msgspec

from orbitkv.events import facts
from orbitkv.events.commands import Command
from orbitkv.events.config import KernelConfig
from orbitkv.events.facts import Event
from orbitkv.events.outcomes import ReadOutcome, SaveDrop, WriteOutcome
from replay.warehouse import lists
from replay.warehouse.words import Words, snake

Row: TypeAlias = Sequence[Any]
"""A fact as it stands in the log, its tag first; or a part of one, as `Table.split` gives it."""


class Shape(Enum):
    """What a field holds, and what becomes of it in SQL: the blanks only tell values of one type apart."""

    NUMBER = "BIGINT"
    HASH = "UBIGINT"
    """A number that uses all of its 64 bits."""
    WORD = "ENUM"
    FLAG = "BOOLEAN"
    TEXT = "VARCHAR"
    BYTES = "BLOB"
    U32S = "BIGINT "
    """A packed column: one row for each of its values."""
    U64S = "BIGINT  "
    WORDS = "ENUM "
    """The same, of words with one byte each."""
    KEYS = "BLOB "
    """Several byte strings, one row for each."""

    @property
    def many(self) -> bool:
        """One row for each value in it."""
        return self in (Shape.U32S, Shape.U64S, Shape.WORDS, Shape.KEYS)


@attrs.frozen
class Column:
    name: str
    shape: Shape
    place: int
    """In the row that it is read from."""
    words: Words | None = None
    counted: bool = False
    """The fact gives the value of its first page; those of the next ones run on."""
    none: int | None = None
    """This number says that there is no value: NULL."""

    @property
    def sql_type(self) -> str:
        return self.words.name if self.words else self.shape.value.strip()


@attrs.frozen
class Table:
    name: str
    kind: type[msgspec.Struct]
    """The kind of fact that it holds."""
    columns: tuple[Column, ...]
    split: Callable[[Row], Iterable[Row]] | None = None
    """Takes a fact with lists in it apart into rows that `columns` are read from."""

    @property
    def plain(self) -> bool:
        """Its rows are its facts, which are numbers and nothing else."""
        numbers = all(column.shape in _NUMBERS for column in self.columns)
        return self.split is None and numbers and len(self.columns) == len(fields_of(self.kind))


_NUMBERS = (Shape.NUMBER, Shape.HASH, Shape.WORD, Shape.FLAG)


# --- what the vocabulary does not say -------------------------------------------------------------------

_RENAMED = {
    "buffers": "buffer",
    "pages": "page",
    "reads": "read",
    "slots": "slot",
    "positions": "position",
    "generations": "generation",
    "incarnations": "incarnation",
    "keys": "key",
    "outcomes": "outcome",
    "offsets": "offset_bytes",
    "staging_offsets": "staging_offset_bytes",
    "footprints": "footprint_blocks",
    "group": "group_id",
}
"""Columns in the singular, and none that SQL would take for a clause of its own."""

_BYTES = {"namespace_digest"}
"""Byte strings that are one value; all others are packed columns."""
_HASHES = {"body"}
_U64S = {"offsets", "staging_offsets", "generations"}
_OUTCOMES: dict[type, type[IntEnum]] = {facts.ReadsFailed: ReadOutcome, facts.WritesFailed: WriteOutcome}
"""Kinds whose `outcomes` hold one of these words a byte."""
_COUNTED = {(facts.BuffersAllocated, "generation"), (facts.ReadsQueued, "read")}

_LISTS: dict[type, tuple[str, ...]] = {
    facts.IncarnationStarted: ("config",),
    facts.RankRegistered: ("groups",),
    facts.InstanceSealed: ("groups",),
    facts.QueryOpened: ("parts",),
    facts.QueryWaiting: ("pages", "unknown"),
    facts.QueryGranted: ("reach", "positions", "buffers"),
    facts.QueryCut: ("reach",),
    facts.GpuSynced: ("ranges",),
    facts.SavesDropped: ("buffers",),
    facts.HintAdmitted: ("parts", "pages"),
}
"""Facts that mean something without their lists: these fields stand in tables of their own."""


def fields_of(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def kinds() -> tuple[type[msgspec.Struct], ...]:
    """All kinds of facts."""
    return get_args(Event)


def _main_table(kind: type[msgspec.Struct]) -> Table:
    left_out = _LISTS.get(kind, ())
    columns = (
        _column(kind, field, place)
        for place, field in enumerate(fields_of(kind), 1)
        if field.name not in left_out
    )
    return Table(snake(kind.__name__), kind, tuple(columns))


def _column(kind: type[msgspec.Struct], field: msgspec.structs.FieldInfo, place: int) -> Column:
    shape, words = _shape(kind, field)
    name = _RENAMED.get(field.name, field.name)
    return Column(name, shape, place, words, counted=(kind, field.name) in _COUNTED)


def _shape(kind: type[msgspec.Struct], field: msgspec.structs.FieldInfo) -> tuple[Shape, Words | None]:
    if field.type is bytes:
        return _bytes_shape(kind, field.name)
    if field.type == tuple[bytes, ...]:
        return Shape.KEYS, None
    return _scalar_shape(field.type, field.name)


def _bytes_shape(kind: type[msgspec.Struct], name: str) -> tuple[Shape, Words | None]:
    if name == "outcomes":
        return Shape.WORDS, Words.of(_OUTCOMES[kind])
    if name in _BYTES:
        return Shape.BYTES, None
    return (Shape.U64S if name in _U64S else Shape.U32S), None


def _scalar_shape(given: Any, name: str) -> tuple[Shape, Words | None]:
    """Of a field that holds one value. Raises TypeError for one that must be declared."""
    if given is bool:
        return Shape.FLAG, None
    if given is int:
        return (Shape.HASH if name in _HASHES else Shape.NUMBER), None
    if given is str:
        return Shape.TEXT, None
    if isinstance(given, type) and issubclass(given, IntEnum):
        return Shape.WORD, Words.of(given)
    raise TypeError(f"{name} holds {given}, which is no column; declare it in replay/warehouse/tables.py")


# --- lists --------------------------------------------------------------------------------------------


def _list_table(
    name: str, kind: type[msgspec.Struct], split: Callable[[Row], Iterable[Row]], *columns: Column | str
) -> Table:
    """Rows of `split` hold the columns in this order."""
    made = (
        attrs.evolve(column, place=place)
        if isinstance(column, Column)
        else Column(column, Shape.NUMBER, place)
        for place, column in enumerate(columns)
    )
    return Table(f"{snake(kind.__name__)}_{name}", kind, tuple(made), split)


def _of(name: str, shape: Shape, **more: Any) -> Column:
    return Column(name, shape, 0, **more)


_PART = ("operation", "part", "group_id", "page_tokens", "trailing_pages", "asked_pages")
_REACH = ("operation", "part", "reach")
_PAGE_INDEX = _of("page_index", Shape.NUMBER, counted=True)

_CONFIG = Table(
    "config",
    facts.IncarnationStarted,
    (
        Column("incarnation", Shape.NUMBER, 0),
        *(
            Column(field.name, _scalar_shape(field.type, field.name)[0], place)
            for place, field in enumerate(fields_of(KernelConfig), 1)
        ),
    ),
    lists.config,
)
"""One row for each incarnation: the settings that its decisions depend on."""

LISTS: tuple[Table, ...] = (
    _CONFIG,
    _list_table(
        "groups",
        facts.RankRegistered,
        lists.rank_groups,
        *("session", "instance", "rank", "group_id", "page_tokens"),
    ),
    _list_table(
        "slices",
        facts.RankRegistered,
        lists.rank_slices,
        *("session", "instance", "rank", "group_id"),
        _of("slice", Shape.TEXT),
        "payload_bytes",
        _of("replicated", Shape.FLAG),
    ),
    _list_table(
        "groups",
        facts.InstanceSealed,
        lists.instance_groups,
        *("instance", "group_id", "space", "page_tokens", "footprint_bytes"),
    ),
    _list_table("parts", facts.QueryOpened, lists.parts, *_PART),
    _list_table(
        "pages",
        facts.QueryWaiting,
        lists.waiting_pages,
        *("operation", "part", _PAGE_INDEX, _of("page", Shape.U32S, none=0xFFFF_FFFF)),
    ),
    _list_table(
        "unknown",
        facts.QueryWaiting,
        lists.waiting_unknown,
        *("operation", "part", _of("nth", Shape.NUMBER, counted=True), _of("key", Shape.KEYS)),
    ),
    _list_table("reach", facts.QueryGranted, lists.granted_reach, *_REACH),
    _list_table(
        "hits",
        facts.QueryGranted,
        lists.granted_hits,
        *("operation", _of("position", Shape.U32S), _of("buffer", Shape.U32S)),
    ),
    _list_table("reach", facts.QueryCut, lists.cut_reach, *_REACH),
    _list_table(
        "ranges", facts.GpuSynced, lists.synced_ranges, *("lease", "rank", "first_position", "end_position")
    ),
    _list_table(
        "buffers",
        facts.SavesDropped,
        lists.dropped_buffers,
        *(_of("reason", Shape.WORD, words=Words.of(SaveDrop)), _of("buffer", Shape.U32S)),
    ),
    _list_table("parts", facts.HintAdmitted, lists.hint_parts, *_PART),
    _list_table(
        "pages",
        facts.HintAdmitted,
        lists.hint_pages,
        *("operation", "part", _PAGE_INDEX, _of("page", Shape.U32S)),
    ),
)

TABLES: tuple[Table, ...] = (*map(_main_table, kinds()), *LISTS)
"""All tables of facts: one for each kind, then those of their lists."""

CAUSES = Words("cause", {kind.__struct_config__.tag: kind.__name__ for kind in get_args(Command)})
"""The names of commands by their tags in the log."""
