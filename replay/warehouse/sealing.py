"""Seals the segments of a log that are closed and whole, one after the other."""

from collections.abc import Callable
from pathlib import Path

import attrs

from replay.log import Log, LogSegment
from replay.warehouse.database import WarehouseError, opened
from replay.warehouse.loading import Loader
from replay.warehouse.sealed import SealedFolder


@attrs.define(slots=True)
class Sealing:
    """What was done."""

    log: Log
    folder: Path
    sealed: int = 0
    """Segments that were sealed now."""
    before: int = 0
    """That were sealed already."""
    left: list[str] = attrs.field(factory=list)
    """That are not: still written to, or damaged."""
    bytes_read: int = 0
    bytes_written: int = 0


def seal_log(path: Path, folder: SealedFolder, progress: Callable[[int], None] | None = None) -> Sealing:
    """Raises LogError: it is no log, DuckDB is not installed, there is no room."""
    log = Log.open(path)
    found = Sealing(log, folder.path)
    done_bytes = 0
    try:
        with folder.locked():
            for segment in log.segments_but(folder.known):
                if not isinstance(segment, LogSegment):
                    found.before += 1
                elif not _seal(segment, folder, found):
                    found.left.append(segment.path.name)
                done_bytes += segment.size_bytes
                if progress is not None:
                    progress(done_bytes)
    except OSError as error:
        raise WarehouseError(
            f"{folder.path} cannot be written: {error.strerror}; name another folder with --out, or make room"
            " and run the same command again: what is sealed stays"
        ) from error
    return found


def _seal(segment: LogSegment, folder: SealedFolder, found: Sealing) -> bool:
    with opened(None) as connection:
        row = Loader(connection).load_alone(segment)
        left_out = connection.execute("SELECT count(*) FROM troubles").fetchone()
        if row.stop != "sealed" or left_out != (0,):
            return False
        manifest = folder.write(connection, segment, row)
    found.sealed += 1
    found.bytes_read += segment.size_bytes
    found.bytes_written += sum(file.size_bytes for file in manifest.files.values())
    return True
