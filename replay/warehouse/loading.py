"""Loads logs into a warehouse: all that is new in them, in transactions that leave it right at any instant.

A log may grow, be compressed and lose its oldest segments between two loads; what was loaded stays.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import attrs

from replay.log import Log, LogSegment, Progress, Trouble
from replay.warehouse.book import Book, SegmentRow, stem
from replay.warehouse.database import DUCKDB_THREADS, opened
from replay.warehouse.derived import derive
from replay.warehouse.facts import Facts
from replay.warehouse.records import bare_records
from replay.warehouse.sealed import SealedFolder, default_folder, quoted

LOT_RECORDS = 1024
"""Decoded records that become columns together. More of them drop out of the processor's cache."""
FLUSH_FACTS = 1_000_000
FLUSH_BYTES = 64 << 20
"""Facts that are collected as columns before DuckDB gets them and they are committed, or their bytes."""
LARGE_BYTES = 128 << 20
"""Tables of a longer log, and what is derived from them, do not stand in DuckDB's share of memory."""
SEALED_FACTS_MIN = 100_000
"""Smaller segments are sooner decoded than read from some sixty files."""


@attrs.define(slots=True)
class Warehouse:
    connection: Any
    """Of DuckDB, to the tables."""
    log: Log
    """Troubles and notes are complete."""
    records: int
    """Of this log, in the warehouse."""


@contextmanager
def load_log(
    path: Path, database: Path | None = None, progress: Progress | None = None
) -> Iterator[Warehouse]:
    """The log at `path`, in any state, loaded into the file `database`; without one, for this time only.

    Raises LogError: it is no log, DuckDB is not installed, `database` holds something else, there is no room.
    """
    log = Log.open(path)
    with opened(database, large=log.size_bytes >= LARGE_BYTES) as connection:
        loader = Loader(connection)
        loader.load(log, progress)
        derive(connection)
        yield Warehouse(connection, log, loader.records)


@attrs.frozen(slots=True)
class Loaded:
    """What `load_logs` found in one log."""

    log: Log
    records: int
    new_records: int


def load_logs(
    paths: Sequence[Path],
    database: Path,
    progress: Callable[[Log], AbstractContextManager[Progress | None]],
    *,
    sealed: SealedFolder | None = None,
) -> list[Loaded]:
    """Load what is new in these logs into `database`, side by side. Raises LogError as `load_log` does.

    `sealed`: where sealed segments are looked for; else beside each log.
    """
    logs = [Log.open(path) for path in paths]
    found = []
    with opened(database) as connection:
        loader = Loader(connection, sealed)
        for log in logs:
            with progress(log) as told:
                new_records = loader.load(log, told)
            found.append(Loaded(log, loader.records, new_records))
        derive(connection)
    return found


class Loader:
    """Loads one log after the other. A warehouse has one at a time."""

    def __init__(self, connection: Any, sealed: SealedFolder | None = None) -> None:
        """`sealed`: where sealed segments of the logs are looked for; else beside each log."""
        self._connection = connection
        self._sealed = sealed
        self._book = Book(connection)
        (last_fact,) = connection.execute("SELECT coalesce(max(fact), 0) FROM records").fetchone()
        self._facts = Facts(connection, last_fact)
        self._collected_bytes = 0
        self._name = ""
        """Of the log that is being loaded."""
        self._new_records = 0
        self._names: set[str] = set()
        """It and others that stand in the same directory."""

    def load(self, log: Log, progress: Progress | None = None) -> int:
        """Load what is new, and give the number of records. The log's troubles are then those of earlier
        loads, too."""
        self._name = path = str(log.path.resolve())
        self._names = set()
        self._new_records = 0
        sealed = self._sealed or SealedFolder(default_folder(log.path))
        seen: list[str] = []
        done_bytes = 0
        with _without_collector(), self._one_thread():
            for segment in log.segments_but(self._book.known):
                if not seen:
                    self._name = self._book.name(segment.header.log_id, path)
                self._names.add(self._book.name(segment.header.log_id, path))
                if isinstance(segment, LogSegment) and not self._load_sealed(segment, path, sealed):
                    log.troubles += self._load_segment(segment, path, _part(progress, done_bytes))
                done_bytes += segment.size_bytes
                if progress is not None:
                    progress(done_bytes)
                seen.append(stem(segment.path))
            self._facts.settle()
            self._commit()
        self._book.tell_segments(self._name, seen, log.troubles)
        log.troubles = self._book.troubles(self._name)
        return self._new_records

    @property
    def records(self) -> int:
        """How many records of the log that was loaded last are in the warehouse."""
        (count,) = self._connection.execute(
            "SELECT coalesce(sum(next_seq - first_seq), 0)::BIGINT FROM stretches"
            " WHERE list_contains(?, log)",
            [sorted(self._names)],
        ).fetchone()
        return int(count)

    def load_alone(self, segment: LogSegment) -> SegmentRow:
        """Load this segment and nothing else; what was left out is in the table `troubles`."""
        with _without_collector():
            self._load_segment(segment, str(segment.path), _part(None, 0))
            self._facts.settle()
            self._commit()
        row = self._book.row(segment.header)
        assert row is not None
        return row

    def _load_sealed(self, segment: LogSegment, path: str, sealed: SealedFolder) -> bool:
        """Take the segment's rows from Parquet files, if those are of these very bytes."""
        if self._book.row(segment.header) is not None:
            return False
        manifest = sealed.fits(segment)
        if manifest is None or manifest.facts < SEALED_FACTS_MIN:
            return False
        segment.trust(manifest.ending, manifest.last_at_ns)
        self._facts.settle()
        self._commit()
        row = self._book.open(segment, path)
        row.next_seq, row.last_at_ns = manifest.next_seq, manifest.last_at_ns
        row.end_offset, row.checksum = manifest.end_offset, manifest.checksum
        self._book.ended(row, segment, changed=False)
        self._connection.execute("BEGIN")
        columns = f"{row.stretch} AS stretch, * REPLACE (fact + {self._facts.base} AS fact)"
        for table in manifest.files:
            file = quoted(sealed.file_path(segment.header, table))
            self._connection.execute(
                f"INSERT INTO {table} BY NAME"
                f" SELECT {columns} FROM read_parquet('{file}', hive_partitioning = false)"
            )
        self._book.write()
        self._connection.execute("COMMIT")
        self._facts.skip(manifest.facts)
        self._new_records += manifest.next_seq - manifest.first_seq
        return True

    def _load_segment(
        self,
        segment: LogSegment,
        path: str,
        progress: Callable[[float], None],
    ) -> list[Trouble]:
        row = self._book.row(segment.header) or self._book.open(segment, path)
        loaded_offset = row.end_offset
        found_end = not loaded_offset
        if loaded_offset:
            segment.last_at_ns = row.last_at_ns
        for frame in segment.record_frames():
            if frame.offset < loaded_offset:
                found_end = frame.end_offset == loaded_offset and frame.checksum == row.checksum
                continue
            if not found_end:
                break
            records = bare_records(frame, segment.last_at_ns)
            if isinstance(records, str):
                segment.refuse(frame, records)
                break
            segment.last_at_ns = records.times[-1]
            self._facts.add(segment, frame, row.stretch, records)
            self._new_records += len(records.times)
            self._book.read(row, frame, segment.last_at_ns)
            self._collected_bytes += len(frame.payload)
            if self._facts.waiting >= LOT_RECORDS:
                self._settle()
                progress(segment.size_bytes * frame.end_offset / len(segment.data))
        self._book.ended(row, segment, changed=not found_end)
        if found_end:
            return []
        what = "what was loaded from it is no longer there: it was cut or replaced; load it into a new file"
        return [Trouble(segment.path, loaded_offset, row.incarnation, row.next_seq, what)]

    @contextmanager
    def _one_thread(self) -> Iterator[None]:
        """One inserts numpy columns; a second would wait for it, not idly. An error ends the connection."""
        self._connection.execute("SET threads = 1")
        yield
        self._connection.execute(f"SET threads = {DUCKDB_THREADS}")

    def _settle(self) -> None:
        self._facts.settle()
        if self._facts.settled >= FLUSH_FACTS or self._collected_bytes >= FLUSH_BYTES:
            self._commit()

    def _commit(self) -> None:
        self._connection.execute("BEGIN")
        self._book.tell_facts(self._name, self._facts.flush())
        self._book.write()
        self._connection.execute("COMMIT")
        self._connection.unregister("batch")
        self._collected_bytes = 0


def _part(progress: Progress | None, done_bytes: int) -> Callable[[float], None]:
    if progress is None:
        return lambda _: None
    return lambda more_bytes: progress(done_bytes + int(more_bytes))


@contextmanager
def _without_collector() -> Iterator[None]:
    """Facts hold no cycles, and looking for them again and again takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
