"""Sealed segments: what the warehouse makes of one whole log segment, as Parquet files that anyone can read.

Exists so that a long log is decoded once. Every file has the columns of its table, but for `stretch`, and its
facts are counted from 1 within the segment:

    OUT/<table>/log_id=<hex>/incarnation=<number>/segment=<number>/facts.parquet
    OUT/segments/<log id>-<incarnation>-<number>.json

The JSON file is written last: a segment without one is not sealed. It says which bytes of the log, and which
of the files, belong together, by digest; the digests tell accidents, not forgers. Never touches a log.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any

import attrs
import cattrs
from xxhash import xxh3_128_hexdigest

from orbitkv.events.frame import SegmentHeader
from orbitkv.events.scan import Ending, Stop
from replay.log import LogSegment
from replay.warehouse.book import SegmentRow
from replay.warehouse.database import WarehouseError
from replay.warehouse.sinks import statements
from replay.warehouse.tables import TABLES

SEALED_TABLES = ("records", *(table.name for table in TABLES))
SCHEMA = xxh3_128_hexdigest("".join(statements()).encode())
"""Tells these tables from those of another OrbitKV."""
_PARTIAL = ".partial"


@attrs.frozen(slots=True, kw_only=True)
class SealedFile:
    rows: int
    size_bytes: int
    digest: str


@attrs.frozen(slots=True, kw_only=True)
class Manifest:
    schema: str
    log_id: str
    incarnation: int
    number: int
    first_seq: int
    next_seq: int
    segment_bytes: int
    """Of the log's segment, expanded; `digest` is of those bytes."""
    digest: str
    last_at_ns: int
    end_offset: int
    checksum: int
    """Of the last frame with records."""
    end_checksum: int
    """Of the closing frame; the next segment's header names it."""
    facts: int
    files: dict[str, SealedFile]
    """By table. Tables without a row have none."""

    @property
    def ending(self) -> Ending:
        return Ending(Stop.SEALED, self.end_offset, self.next_seq, self.end_checksum, 0)


class SealedFolder:
    """The folder that sealed segments stand in. It need not be there for reading."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def manifest_path(self, header: SegmentHeader) -> Path:
        name = f"{header.log_id.hex()}-{header.incarnation:08d}-{header.number:08d}.json"
        return self.path / "segments" / name

    def file_path(self, header: SegmentHeader, table: str) -> Path:
        place = f"log_id={header.log_id.hex()}/incarnation={header.incarnation}/segment={header.number}"
        return self.path / table / place / "facts.parquet"

    def manifest(self, header: SegmentHeader) -> Manifest | None:
        """What is sealed of a segment; None if nothing is, or another OrbitKV has sealed it."""
        try:
            document = json.loads(self.manifest_path(header).read_bytes())
            found = cattrs.structure(document, Manifest)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, cattrs.BaseValidationError):
            return None
        return found if found.schema == SCHEMA else None

    def fits(self, segment: LogSegment) -> Manifest | None:
        """The manifest, if it and all of its files are of this very segment."""
        manifest = self.manifest(segment.header)
        if manifest is None or manifest.segment_bytes != len(segment.data):
            return None
        if manifest.digest != xxh3_128_hexdigest(segment.data):
            return None
        for table, file in manifest.files.items():
            try:
                data = self.file_path(segment.header, table).read_bytes()
            except OSError:
                return None
            if table not in SEALED_TABLES or (file.size_bytes, file.digest) != (
                len(data),
                xxh3_128_hexdigest(data),
            ):
                return None
        return manifest

    def known(self, header: SegmentHeader) -> tuple[Ending, int] | None:
        """For `Log.segments_but`: of a segment that is sealed, with all of its files."""
        manifest = self.manifest(header)
        if manifest is None or manifest.first_seq != header.first_seq:
            return None
        for table, file in manifest.files.items():
            path = self.file_path(header, table)
            if not path.is_file() or path.stat().st_size != file.size_bytes:
                return None
        return manifest.ending, manifest.last_at_ns

    # --- writing ----------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else seals into the folder meanwhile; what a killed one left half done is removed.

        A folder that nothing is sealed into is not left behind.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                raise WarehouseError(
                    f"another process seals into {self.path}; wait for it, or name another folder (--out)"
                ) from None
            shutil.rmtree(self.path / _PARTIAL, ignore_errors=True)
            try:
                yield
            finally:
                if not any(self.path.iterdir()):
                    self.path.rmdir()
        finally:
            os.close(descriptor)

    def write(self, connection: Any, segment: LogSegment, row: SegmentRow) -> Manifest:
        """Write the tables in `connection`, which hold this segment and nothing else."""
        header, partial = segment.header, self.path / _PARTIAL
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            files = {}
            for table in SEALED_TABLES:
                file = _copied(connection, table, partial / f"{table}.parquet")
                if file is not None:
                    files[table] = file
            (facts,) = connection.execute("SELECT coalesce(max(fact), 0) FROM records").fetchone()
            manifest = Manifest(
                schema=SCHEMA,
                log_id=header.log_id.hex(),
                incarnation=header.incarnation,
                number=header.number,
                first_seq=header.first_seq,
                segment_bytes=len(segment.data),
                digest=xxh3_128_hexdigest(segment.data),
                next_seq=row.next_seq,
                last_at_ns=row.last_at_ns,
                end_offset=row.end_offset,
                checksum=row.checksum,
                end_checksum=row.end_checksum,
                facts=facts,
                files=files,
            )
            (partial / "manifest.json").write_text(json.dumps(cattrs.unstructure(manifest), indent=1) + "\n")
            self._move(header, files, partial)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return manifest

    def _move(self, header: SegmentHeader, files: dict[str, SealedFile], partial: Path) -> None:
        for table in files:
            path = self.file_path(header, table)
            path.parent.mkdir(parents=True, exist_ok=True)
            (partial / f"{table}.parquet").replace(path)
        path = self.manifest_path(header)
        path.parent.mkdir(parents=True, exist_ok=True)
        (partial / "manifest.json").replace(path)


def _copied(connection: Any, table: str, path: Path) -> SealedFile | None:
    (rows,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    if not rows:
        return None
    rows_of_it = f"SELECT * EXCLUDE (stretch) FROM {table}"
    try:
        connection.execute(f"COPY ({rows_of_it}) TO '{quoted(path)}' (FORMAT parquet, COMPRESSION zstd)")
    except Exception as error:
        if "No space left on device" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        raise
    data = path.read_bytes()
    return SealedFile(rows=rows, size_bytes=len(data), digest=xxh3_128_hexdigest(data))


def quoted(path: Path) -> str:
    """For SQL between single quotes."""
    return str(path).replace("'", "''")


def default_folder(log: Path) -> Path:
    """Beside the log: a manager's own directory is nobody else's to write to."""
    log = Path(os.path.realpath(log))
    return log.with_name(f"{log.name}-sealed")
