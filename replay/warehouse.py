"""A log as tables in DuckDB: its facts as they are, and tables derived from them.

Exists so that questions about a log are SQL. Must not know the kernel: what the tables say comes from the
log alone, so that SQL can contradict the kernel. Reading never changes a log. However long it is, loading
keeps one batch of facts in memory; DuckDB puts on disk what exceeds its own share.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import attrs

from orbitkv.events.frame import LogError, SegmentHeader
from orbitkv.events.record import Record
from replay.log import Log, LogFrame, LogSegment, Trouble
from replay.sinks import Misshapen, Sink, word_types
from replay.tables import RECORDS, TABLES

Progress: TypeAlias = Callable[[int], None]
"""Is told how many of the log's bytes on disk have been dealt with."""

BATCH_RECORDS = 65536
"""Records whose facts are collected before they are handed to DuckDB."""
BATCH_PACKED_BYTES = 32 << 20
"""The same for the bytes of packed columns, whichever comes first."""
DUCKDB_MEMORY = "1GiB"

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
    with tempfile.TemporaryDirectory(prefix="orbitkv-replay-") as spill:
        settings = {
            "memory_limit": DUCKDB_MEMORY,
            "temp_directory": spill,
            "autoinstall_known_extensions": False,
        }
        try:
            with duckdb.connect(str(database or ":memory:"), config=settings) as connection:
                yield Warehouse(connection, log, _fill(connection, log, progress))
        except duckdb.Error as error:
            raise WarehouseError(
                f"DuckDB gave up: {error}; if it lacks room, set TMPDIR to a folder that has more"
            ) from error


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
        self._sinks = [Sink(connection, table) for table in TABLES]
        self._by_kind: dict[type, list[Sink]] = {}
        for sink in self._sinks:
            self._by_kind.setdefault(sink.table.fact, []).append(sink)
        self._fact = 0
        self._waiting = 0

    def begin(self, header: SegmentHeader) -> None:
        self._stretches.begin(header)

    def take(self, segment: LogSegment, frame: LogFrame) -> None:
        stretch, fact, by_kind = self._stretches.number, self._fact, self._by_kind
        for record in frame.records:
            for event in record.events:
                fact += 1
                for sink in by_kind.get(type(event), ()):
                    try:
                        sink.add(stretch, record.seq, fact, event)
                    except Misshapen as error:
                        incarnation = segment.header.incarnation
                        trouble = Trouble(segment.path, frame.offset, incarnation, record.seq, str(error))
                        self.troubles.append(trouble)
            self._record_sink.add(stretch, record.seq, fact, record)
        self._fact = fact
        self._stretches.saw(frame.records)
        self.records += len(frame.records)
        self._waiting += len(frame.records)
        packed_bytes = sum(sink.packed_bytes for sink in self._sinks)
        if self._waiting >= BATCH_RECORDS or packed_bytes >= BATCH_PACKED_BYTES:
            self._flush()

    def end(self, segment: LogSegment) -> None:
        self._stretches.end(segment)

    def finish(self) -> None:
        self._flush()
        self._stretches.write()

    def _flush(self) -> None:
        self._waiting = 0
        for sink in (self._record_sink, *self._sinks):
            sink.flush()


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
