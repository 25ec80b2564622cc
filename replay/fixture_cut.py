"""Which commands of a log make a script: those of a request or a session, and what these depend on.

    nearest    the requests' own commands, the sessions and instances of all who name their pages, what
               saves, completions and recovery say of these pages, and what concerns all (start, clock ...)
    shared     and other requests that name one of these pages
    all        everything up to the last record that names them

The smallest is taken in which each of the requests comes to the same ends as in the log; the last always
does, as the kernel is deterministic. So a cut never tells another story of its request.
"""

from collections.abc import Callable, Iterable, Sequence

import attrs

from orbitkv.events import commands, facts
from orbitkv.events.frame import LogError
from orbitkv.events.record import Record
from replay.fixture_names import Names, operation_name
from replay.fixture_story import tell
from replay.fixture_wishes import Wish, only_of, wish_of

_ENDS = (
    facts.DecisionSettled,
    facts.QueryEnded,
    facts.HintSkipped,
    facts.HintNotNeeded,
    facts.HintEnded,
    facts.QueryCut,
)
"""Facts that say what became of a request."""
_QUERIES = ("SubmitQuery", "WarmPrefix")


class NotInLog(LogError):
    """The log has nothing of that name, or not from its beginning."""


@attrs.frozen
class Cut:
    """The wishes that were taken, and how wide the cut had to be."""

    wishes: tuple[Wish, ...]
    width: str
    of: int
    """Commands of the incarnation up to there."""


@attrs.frozen
class _Row:
    """A record with what it is about."""

    record: Record
    wish: Wish
    operation: str
    """The operation that its command names, if it names one."""


class Chain:
    """One incarnation from its first record on, with its commands as wishes."""

    def __init__(self, records: Sequence[Record]) -> None:
        """Raises NotInLog when the first record is missing: there is no fresh state to tell it on."""
        if not records or records[0].seq != 1:
            raise NotInLog(
                "the incarnation's beginning is not in the log, so its commands cannot be told from a fresh "
                "state; cut a piece of the log instead (without --script)"
            )
        names = Names()
        start_ns = records[0].at_ns
        self.rows: list[_Row] = []
        self.instance_of: dict[int, str] = {}
        """Session to the instance that it registered for."""
        for record in records:
            wish = wish_of(record, names, start_ns)
            names.learn(record)
            self.rows.append(_Row(record, wish, _operation(wish)))
            if isinstance(record.cause, commands.RegisterRank):
                self.instance_of[record.cause.session] = record.cause.instance

    def operations(self, chosen: Callable[[commands.SubmitQuery | commands.WarmPrefix], bool]) -> set[str]:
        """By name, of the queries and hints that are chosen."""
        return {
            row.operation
            for row in self.rows
            if isinstance(row.record.cause, commands.SubmitQuery | commands.WarmPrefix)
            and chosen(row.record.cause)
        }

    def cut(self, operations: set[str]) -> Cut:
        """The smallest part in which these operations end as they did."""
        last = max(index for index, row in enumerate(self.rows) if self._touches(row, operations))
        rows = self.rows[: last + 1]
        ends = ends_of((row.record for row in rows), operations)
        for width, choose in (("nearest", self._nearest), ("shared", self._shared)):
            wishes = choose(rows, operations)
            telling = tell(wishes)
            if not telling.broken and ends_of(telling.records, operations) == ends:
                return Cut(wishes, width, len(rows))
        return Cut(tuple(row.wish for row in rows), "all", len(rows))

    def until(self, seq: int) -> Cut:
        """Everything up to a record."""
        wishes = tuple(row.wish for row in self.rows if row.record.seq <= seq)
        return Cut(wishes, "all", len(wishes))

    def _touches(self, row: _Row, operations: set[str]) -> bool:
        if row.operation in operations:
            return True
        return any(
            operation_name(getattr(event, "operation", 0)) in operations for event in row.record.events
        )

    def _nearest(self, rows: Sequence[_Row], operations: set[str]) -> tuple[Wish, ...]:
        keys = _keys_of(rows, operations)
        chosen = [row for row in rows if row.operation in operations or self._moves(row, keys)]
        taken = self._with_sessions(rows, chosen)
        return tuple(only_of(row.wish, keys) for row in taken)

    def _shared(self, rows: Sequence[_Row], operations: set[str]) -> tuple[Wish, ...]:
        keys = _keys_of(rows, operations)
        others = {row.operation for row in rows if row.wish.kind in _QUERIES and row.wish.keys & keys}
        return self._nearest(rows, operations | others)

    def _moves(self, row: _Row, keys: set[str]) -> bool:
        """Whether a save or a completion concerns one of these pages."""
        return row.wish.kind not in _QUERIES and not row.operation and bool(row.wish.keys & keys)

    def _with_sessions(self, rows: Sequence[_Row], chosen: Sequence[_Row]) -> list[_Row]:
        """And all sessions of the instances that these commands are of, and what concerns everybody."""
        sessions = {session for row in chosen if (session := row.wish.fields.get("session")) is not None}
        instances = {self.instance_of[session] for session in sessions if session in self.instance_of}
        sessions |= {session for session, instance in self.instance_of.items() if instance in instances}
        processes = {
            row.wish.fields["process"]
            for row in rows
            if row.wish.kind == "OpenSession" and row.wish.fields["session"] in sessions
        }
        taken = {id(row) for row in chosen}
        return [row for row in rows if id(row) in taken or _for_all(row.wish, sessions, processes)]


def _keys_of(rows: Iterable[_Row], operations: set[str]) -> set[str]:
    """Keys that these operations name."""
    return {key for row in rows if row.operation in operations for key in row.wish.keys}


def _for_all(wish: Wish, sessions: set[int], processes: set[int]) -> bool:
    match wish.kind:
        case "OpenSession" | "RegisterRank" | "CloseSession":
            return wish.fields["session"] in sessions
        case "ReleaseProcess":
            return wish.fields["process"] in processes
        case _:
            return wish.kind in ("Start", "RecoverSegment", "Tick", "DropDram", "SetStore", "BeginShutdown")


def _operation(wish: Wish) -> str:
    fields = wish.fields
    if wish.kind in _QUERIES or wish.kind == "CancelHint":
        return f"{fields['session']}.{fields['ticket']}"
    named: str = fields.get("operation") or fields.get("lease") or ""
    return named


def ends_of(records: Iterable[Record], operations: set[str]) -> list[str]:
    """What became of these operations, in words and in order; bytes and deadlines left out."""
    return [
        f"{type(event).__name__} {_named(event)} {_how(event)}"
        for record in records
        for event in record.events
        if isinstance(event, _ENDS) and _named(event) in operations
    ]


def _named(event: facts.Event) -> str:
    if isinstance(event, facts.HintSkipped | facts.HintNotNeeded):
        return f"{event.session}.{event.ticket}"
    return operation_name(getattr(event, "operation", 0))


def _how(event: facts.Event) -> str:
    match event:
        case facts.DecisionSettled():
            return f"dram {event.dram} ssd {event.ssd} miss {event.miss}"
        case facts.QueryEnded() | facts.HintEnded():
            return event.end.name.lower()
        case facts.HintSkipped():
            return event.reason.name.lower()
        case _:
            return ""
