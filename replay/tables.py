"""Which facts stand in which table of the warehouse, column by column.

Exists so that SQL over a log needs no knowledge of msgpack or packed columns: a fact that names pages is
one row for each page. Says only how facts are laid out; what they add up to is SQL's business.

Every row begins with `stretch`, `seq` and `fact`: the run of records without a gap that it stands in,
its record, and its place among all facts of the warehouse. Words stand instead of the numbers of closed
sets. Rows keep the order of the log and, within one fact, that of its columns.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from operator import attrgetter
from typing import Any, TypeAlias, get_args

import attrs
import numpy as np

from orbitkv.events import facts
from orbitkv.events.commands import Command
from orbitkv.events.facts import HintAdmitted, QueryCut, QueryGranted, QueryOpened
from orbitkv.events.ids import Column
from orbitkv.events.outcomes import EvictionReason, HintEnd, HintSkip, Origin, PageClass, QueryEnd, Unused
from orbitkv.events.record import Record


@attrs.frozen
class Words:
    """A closed set: `name` is that of its SQL type."""

    name: str
    by_number: dict[int, str]

    @classmethod
    def of(cls, kind: type[IntEnum]) -> "Words":
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
        return cls(snake, {int(member): member.name.lower() for member in kind})


_COUNTING = np.arange(4096, dtype="<u4").tobytes()
"""0, 1, 2 ... as a packed column, as long as most queries need."""

_CAUSES: dict[type, int] = {kind: number for number, kind in enumerate(get_args(Command))}

Split: TypeAlias = Callable[[Any], Iterable[Any]]
"""Takes a fact with nested tuples apart into things that have the table's columns as attributes."""


@attrs.frozen
class Number:
    """A column with one value for each fact: a number, or a word where `words` names a closed set."""

    name: str
    words: Words | None = None
    counted: bool = False
    """The fact gives the value of its first page; those of the next ones run on."""
    of: Callable[[Any], int] = attrs.field()
    """The value of a fact; its attribute of that name, if nothing else is said."""

    @of.default
    def _attribute(self) -> Callable[[Any], int]:
        return attrgetter(self.name)


@attrs.frozen
class Table:
    name: str
    fact: type
    numbers: tuple[Number, ...] = ()
    texts: tuple[str, ...] = ()
    """Columns with one string for each fact; not beside packed columns."""
    packed: tuple[tuple[str, str], ...] = ()
    """(column, attribute) of the packed u32 columns: one row for each of their values."""
    split: Split | None = None


def _numbers(*given: str | Number) -> tuple[Number, ...]:
    return tuple(Number(each) if isinstance(each, str) else each for each in given)


def _word(name: str, kind: type[IntEnum], attribute: str = "") -> Number:
    return Number(name, Words.of(kind), of=attrgetter(attribute or name))


@attrs.frozen(slots=True)
class _Part:
    operation: int
    part: int
    page_tokens: int
    trailing_pages: int
    asked_pages: int


@attrs.frozen(slots=True)
class _Reach:
    operation: int
    part: int
    reach: int


@attrs.frozen(slots=True)
class _PartPages:
    operation: int
    part: int
    page_index: int
    pages: Column


@attrs.frozen(slots=True)
class _Range:
    lease: int
    rank: int
    first_position: int
    end_position: int


@attrs.frozen(slots=True)
class _Hits:
    operation: int
    positions: Column
    buffers: Column


def _parts(event: QueryOpened | HintAdmitted) -> Iterator[_Part]:
    for part, (_, page_tokens, trailing, asked) in enumerate(event.parts):
        yield _Part(event.operation, part, page_tokens, trailing, asked)


def _reaches(event: QueryGranted | QueryCut) -> Iterator[_Reach]:
    for part, reach in enumerate(event.reach):
        yield _Reach(event.operation, part, reach)


def _part_pages(event: HintAdmitted) -> Iterator[_PartPages]:
    for part, pages in enumerate(event.pages):
        yield _PartPages(event.operation, part, 0, pages)


def _ranges(event: facts.GpuSynced) -> Iterator[_Range]:
    for first, end in event.ranges:
        yield _Range(event.lease, event.rank, first, end)


def _hits(event: QueryGranted) -> Iterator[_Hits]:
    yield _Hits(event.operation, event.positions or _counting(len(event.buffers)), event.buffers)


def _counting(size_bytes: int) -> Column:
    if size_bytes <= len(_COUNTING):
        return _COUNTING[:size_bytes]
    return np.arange(size_bytes // 4, dtype="<u4").tobytes()


_PART_NUMBERS = _numbers("operation", "part", "page_tokens", "trailing_pages", "asked_pages")
_REACH_NUMBERS = _numbers("operation", "part", "reach")
_TIER_NUMBERS = _numbers("asked", "dram", "peer", "ssd", "miss")
_BUFFER = (("buffer", "buffers"),)
_READ = (("read", "reads"),)

RECORDS = Table(
    "records",
    Record,
    (
        Number("at_ns"),
        Number(
            "cause",
            Words("cause", {number: kind.__name__ for kind, number in _CAUSES.items()}),
            of=lambda record: _CAUSES[type(record.cause)],
        ),
    ),
)
"""One row for each record; `fact` is its last one, or that of a record before where it has none."""

TABLES: tuple[Table, ...] = (
    # Pages in DRAM. A buffer's number is used again, its generation never is.
    Table(
        "buffers_allocated",
        facts.BuffersAllocated,
        _numbers(Number("generation", counted=True), "footprint_bytes"),
        packed=(("buffer", "buffers"), ("page", "pages")),
    ),
    Table(
        "pages_inserted",
        facts.PagesInserted,
        _numbers(_word("page_class", PageClass), _word("origin", Origin)),
        packed=_BUFFER,
    ),
    Table(
        "pages_evicted",
        facts.PagesEvicted,
        _numbers(_word("page_class", PageClass), _word("reason", EvictionReason)),
        packed=_BUFFER,
    ),
    Table("pages_prepared", facts.PagesPrepared, packed=_BUFFER),
    Table("pages_restored", facts.PagesRestored, packed=_BUFFER),
    Table("pages_unused", facts.PagesUnused, _numbers(_word("cause", Unused)), packed=_BUFFER),
    # Demands. `query_reaches` says how far each part goes on; a cut shortens it.
    Table(
        "queries_opened",
        QueryOpened,
        _numbers("operation", "instance", "attempt", "revision", "asked_pages"),
        ("request",),
    ),
    Table("query_parts", QueryOpened, _PART_NUMBERS, split=_parts),
    Table("queries_granted", QueryGranted, _numbers("operation")),
    Table("granted_reaches", QueryGranted, _REACH_NUMBERS, split=_reaches),
    Table(
        "query_hits",
        QueryGranted,
        _numbers("operation"),
        packed=(("position", "positions"), ("buffer", "buffers")),
        split=_hits,
    ),
    Table("cut_reaches", QueryCut, _REACH_NUMBERS, split=_reaches),
    Table("decisions_settled", facts.DecisionSettled, _numbers("operation") + _TIER_NUMBERS),
    Table("queries_ended", facts.QueryEnded, _numbers("operation", _word("outcome", QueryEnd, "end"))),
    # Reads from the SSD, shared by any number of demands and hints.
    Table(
        "reads_queued",
        facts.ReadsQueued,
        _numbers("operation", Number("read", counted=True), _word("origin", Origin)),
        packed=(("page", "pages"), ("position", "positions")),
    ),
    Table(
        "reads_joined",
        facts.ReadsJoined,
        _numbers("operation"),
        packed=(("read", "reads"), ("position", "positions")),
    ),
    Table(
        "reads_submitted",
        facts.ReadsSubmitted,
        _numbers(_word("origin", Origin)),
        packed=(("read", "reads"), ("buffer", "buffers")),
    ),
    Table("reads_dropped", facts.ReadsDropped, packed=_READ),
    Table("reads_landed", facts.ReadsLanded, packed=_READ),
    Table("reads_failed", facts.ReadsFailed, packed=_READ),
    # Leases and what ranks made of them.
    Table("leases_granted", facts.LeaseGranted, _numbers("lease", "operation")),
    Table("leases_released", facts.LeaseReleased, _numbers("lease")),
    Table("gpu_syncs", facts.GpuSynced, _numbers("lease", "rank")),
    Table(
        "gpu_sync_ranges",
        facts.GpuSynced,
        _numbers("lease", "rank", "first_position", "end_position"),
        split=_ranges,
    ),
    # Hints.
    Table(
        "hints_admitted",
        HintAdmitted,
        _numbers("operation", "instance", "attempt", "asked_pages"),
        ("request",),
    ),
    Table("hint_parts", HintAdmitted, _PART_NUMBERS, split=_parts),
    Table(
        "hint_pages",
        HintAdmitted,
        _numbers("operation", "part", Number("page_index", counted=True)),
        packed=(("page", "pages"),),
        split=_part_pages,
    ),
    Table(
        "hints_skipped",
        facts.HintSkipped,
        _numbers("instance", "attempt", _word("reason", HintSkip), "asked_pages"),
        ("request",),
    ),
    Table(
        "hints_not_needed", facts.HintNotNeeded, _numbers("instance", "attempt", "asked_pages"), ("request",)
    ),
    Table("hints_ended", facts.HintEnded, _numbers("operation", _word("outcome", HintEnd, "end"))),
    Table("warm_probes", facts.WarmProbed, _numbers("instance", "attempt") + _TIER_NUMBERS, ("request",)),
    # The end of a chain.
    Table("incarnations_closed", facts.IncarnationClosed),
)
