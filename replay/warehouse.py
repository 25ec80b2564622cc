"""A log as tables in DuckDB: its facts as they are, and tables derived from them.

Exists so that questions about a log are SQL. Must not know the kernel: what the tables say comes from the
log alone, so that SQL can contradict the kernel. Reading never changes a log. However long it is, loading
keeps one batch of facts in memory; DuckDB puts on disk what exceeds its own share.
"""

import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import attrs
import numpy as np

from orbitkv.events.facts import Event
from orbitkv.events.frame import LogError, SegmentHeader
from orbitkv.events.record import Record
from replay.log import Log, LogFrame, LogSegment, Trouble
from replay.sinks import Rows, Sink, word_types
from replay.tables import RECORDS, TABLES

Progress: TypeAlias = Callable[[int], None]
"""Is told how many of the log's bytes on disk have been dealt with."""

BATCH_BYTES = 8 << 20
"""Encoded records that are collected before their facts are handed to DuckDB; in memory they take some
five times as much."""
DUCKDB_MEMORY = "768MiB"
"""Its tables beyond that go to a temporary folder; the whole process then stays below 1 GiB."""

DERIVED = ("operations", "reads", "generation_facts", "generations", "query_pages", "cohorts")
"""Tables that `replay/sql/derived` makes of the facts, each of those before it."""


class WarehouseError(LogError):
    """The log may be as it should; it cannot be loaded. The message says what mends that."""


@attrs.define(slots=True)
class Warehouse:
    connection: Any
    """Of DuckDB, to this log's tables."""
    log: Log
    """Troubles and notes are complete."""
    records: int


def sql_text(name: str) -> str:
    """The text of the file `replay/sql/<name>.sql`."""
    return (files("replay") / "sql" / f"{name}.sql").read_text(encoding="utf-8")


@contextmanager
def load_log(
    path: Path, database: Path | None = None, progress: Progress | None = None
) -> Iterator[Warehouse]:
    """The log at `path`, in any state, loaded into the new file `database`; without one, for this time only.

    Raises LogError: it is no log, DuckDB is not installed, `database` exists, there is no room.
    """
    duckdb = _duckdb()
    log = Log.open(path)
    if database is not None and database.exists():
        raise WarehouseError(
            f"{database} exists already, and a log is loaded into a new file; name another one or remove it"
        )
    records: int | None = None
    with tempfile.TemporaryDirectory(prefix="orbitkv-replay-") as spill:
        settings = {
            "memory_limit": DUCKDB_MEMORY,
            "temp_directory": spill,
            "autoinstall_known_extensions": False,
        }
        try:
            with duckdb.connect(str(database or ":memory:"), config=settings) as connection:
                records = _fill(connection, log, progress)
                yield Warehouse(connection, log, records)
        except duckdb.Error as error:
            raise WarehouseError(
                f"DuckDB gave up: {error}; if it lacks room, set TMPDIR to a folder that has more"
            ) from error
        finally:
            if database is not None and records is None:
                database.unlink(missing_ok=True)


def _duckdb() -> ModuleType:
    try:
        import duckdb
    except ImportError as error:
        raise WarehouseError(
            "this needs DuckDB, which is not installed; it comes with an extra: pip install 'orbitkv[replay]'"
        ) from error
    module: ModuleType = duckdb
    return module


def _fill(connection: Any, log: Log, progress: Progress | None) -> int:
    """Load everything; gives the number of records. Misshapen facts become troubles of the log."""
    for statement in word_types((RECORDS, *TABLES)):
        connection.execute(statement)
    loader = _Loader(connection)
    done_bytes = 0
    for segment in log.segments():
        loader.begin(segment.header)
        for frame in segment.frames():
            loader.take(segment, frame)
            if progress is not None:
                progress(done_bytes + segment.size_bytes * frame.offset // segment.expanded_bytes)
        loader.end(segment)
        done_bytes += segment.size_bytes
    loader.finish()
    log.troubles += loader.troubles
    for name in DERIVED:
        connection.execute(sql_text(f"derived/{name}"))
    return loader.records


class _Loader:
    """Walks through the records and gives each fact to the tables that take its kind."""

    def __init__(self, connection: Any) -> None:
        self.records = 0
        self.troubles: list[Trouble] = []
        self._stretches = _Stretches(connection)
        self._record_sink = Sink(connection, RECORDS)
        self._sinks = [(table.fact, Sink(connection, table)) for table in TABLES]
        self._collected: dict[type, tuple[list[int], list[Event]]] = {
            kind: ([], []) for kind, _ in self._sinks
        }
        """By kind: numbers of facts, and the facts."""
        self._batch = _Batch()
        self._fact = 0

    def begin(self, header: SegmentHeader) -> None:
        self._stretches.begin(header)

    def take(self, segment: LogSegment, frame: LogFrame) -> None:
        self._batch.add(segment, frame, self._fact + 1, self._stretches.number)
        fact, collected, last_facts = self._fact, self._collected, self._batch.last_facts
        for record in frame.records:
            for event in record.events:
                fact += 1
                wanted = collected.get(type(event))
                if wanted is not None:
                    wanted[0].append(fact)
                    wanted[1].append(event)
            last_facts.append(fact)
        self._fact = fact
        self._stretches.saw(frame.records)
        self.records += len(frame.records)
        if self._batch.size_bytes >= BATCH_BYTES:
            self._flush()

    def end(self, segment: LogSegment) -> None:
        self._stretches.end(segment)

    def finish(self) -> None:
        self._flush()
        self._stretches.write()

    def _flush(self) -> None:
        batch, self._batch = self._batch, _Batch()
        if not batch.records:
            return
        places = batch.places()
        self._record_sink.fill(places, batch.records)
        for kind, sink in self._sinks:
            facts, events = self._collected[kind]
            for fact, what in sink.fill(_places_of(facts, places), events).items():
                self.troubles.append(batch.trouble(fact, what))
        for facts, events in self._collected.values():
            facts.clear()
            events.clear()


class _Batch:
    """Records that are read and not yet in their tables, and where they were read."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.last_facts: list[int] = []
        """Of each record."""
        self.size_bytes = 0
        """As the records are encoded."""
        self._frames: list[tuple[int, int, int, LogSegment, int]] = []
        """Per frame: first fact, stretch, number of records, segment and offset."""

    def add(self, segment: LogSegment, frame: LogFrame, first_fact: int, stretch: int) -> None:
        self.records += frame.records
        self.size_bytes += len(frame.payload)
        self._frames.append((first_fact, stretch, len(frame.records), segment, frame.offset))

    def places(self) -> Rows:
        """Of the records."""
        stretches, counts = zip(*(frame[1:3] for frame in self._frames), strict=True)
        return {
            "stretch": np.repeat(np.array(stretches, np.int32), counts),
            "seq": np.fromiter((record.seq for record in self.records), np.int64, len(self.records)),
            "fact": np.array(self.last_facts, np.int64),
        }

    def trouble(self, fact: int, what: str) -> Trouble:
        seq = self.records[bisect_left(self.last_facts, fact)].seq
        *_, segment, offset = next(frame for frame in reversed(self._frames) if frame[0] <= fact)
        return Trouble(segment.path, offset, segment.header.incarnation, seq, what)


def _places_of(facts: list[int], records: Rows) -> Rows:
    """Where these facts stand, from where the records do. A record's facts end with its own `fact`."""
    numbers = np.array(facts, np.int64)
    found = np.searchsorted(records["fact"], numbers)
    return {"stretch": records["stretch"][found], "seq": records["seq"][found], "fact": numbers}


class _Stretches:
    """The table `stretches`: runs of records without a gap. Nothing is concluded from one to another."""

    def __init__(self, connection: Any) -> None:
        self.number = 0
        """Of the stretch that the records now belong to."""
        self._connection = connection
        self._rows: list[tuple[int, int, int]] = []
        """Incarnation, first seq, and the seq behind the last."""
        self._log_id = b""
        self._whole = False
        """The segment before ended with a whole frame."""
        connection.execute(
            "CREATE TABLE stretches"
            " (stretch INTEGER, incarnation BIGINT, first_seq BIGINT, next_seq BIGINT, whole BOOLEAN)"
        )

    def begin(self, header: SegmentHeader) -> None:
        goes_on = (
            self._whole
            and self._log_id == header.log_id
            and (self._rows[-1][0], self._rows[-1][2]) == (header.incarnation, header.first_seq)
        )
        self._log_id = header.log_id
        if not goes_on:
            self.number += 1
            self._rows.append((header.incarnation, header.first_seq, header.first_seq))

    def saw(self, records: Sequence[Record]) -> None:
        incarnation, first_seq, _ = self._rows[-1]
        self._rows[-1] = incarnation, first_seq, records[-1].seq + 1

    def end(self, segment: LogSegment) -> None:
        self._whole = segment.whole

    def write(self) -> None:
        """`whole`: it begins with the incarnation, so nothing that it speaks of is older than it."""
        for number, (incarnation, first_seq, next_seq) in enumerate(self._rows, 1):
            self._connection.execute(
                "INSERT INTO stretches VALUES (?, ?, ?, ?, ?)",
                [number, incarnation, first_seq, next_seq, first_seq == 1],
            )
