"""Keeps a log directory small: compresses segments that are finished, drops the oldest beyond the limit.

Runs beside the journal's thread, never in it: compressing 64 MiB takes longer than the log may wait.
Touches no segment at or behind the current one.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import zstandard

from orbitkv.events.frame import SEGMENT_BYTES_MAX, LogError, SegmentName
from orbitkv.io.segment_writer import TEMPORARY_SUFFIX, FileCalls, explain, write_file
from orbitkv.io.segments import segment_files

_LEVEL = 3


class Housekeeper:
    """At most one thread at a time, started when there is something to do."""

    def __init__(self, directory: Path, log_bytes_max: int, calls: FileCalls) -> None:
        self.trouble = ""
        """Why the last round was not finished, in words; it is tried again at the next one."""
        self._directory = directory
        self._log_bytes_max = log_bytes_max
        self._calls = calls
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def tidy_before(self, current: SegmentName) -> None:
        """Begin a round, unless one is running: what it misses is done in the next."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._round, args=(current,), name="orbitkv-log-housekeeping", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Ends the round between two segments."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _round(self, current: SegmentName) -> None:
        try:
            compress_finished(self._directory, current, self._calls, self._stopping.is_set)
            drop_oldest(self._directory, current, self._log_bytes_max)
        except OSError as error:
            self.trouble = f"old log segments cannot be tidied: {explain(error, self._directory)}"
        except LogError as error:
            self.trouble = str(error)
        else:
            self.trouble = ""


def compress_finished(
    directory: Path, current: SegmentName, calls: FileCalls, stopping: Callable[[], bool]
) -> None:
    """Replace every plain segment before `current` by a compressed one. Raises OSError."""
    for name, path in segment_files(directory):
        if stopping() or (name.incarnation, name.number) >= (current.incarnation, current.number):
            return
        if not name.compressed:
            _compress(path, path.with_name(path.name + ".zst"), calls)


def drop_oldest(directory: Path, current: SegmentName, log_bytes_max: int) -> list[Path]:
    """Remove whole segments, oldest first, until the directory is within the limit. Gives what it removed."""
    sizes = {entry: entry.stat().st_size for entry in directory.iterdir() if not _is_temporary(entry)}
    excess_bytes = sum(sizes.values()) - log_bytes_max
    removed: list[Path] = []
    for name, path in segment_files(directory):
        if excess_bytes <= 0 or (name.incarnation, name.number) >= (current.incarnation, current.number):
            break
        stem = path.name.partition(".")[0]
        for entry in [entry for entry in sizes if entry.name.startswith(f"{stem}.")]:
            entry.unlink(missing_ok=True)
            excess_bytes -= sizes[entry]
            removed.append(entry)
    return removed


def _compress(plain: Path, compressed: Path, calls: FileCalls) -> None:
    data = plain.read_bytes()
    if len(data) > SEGMENT_BYTES_MAX:
        raise LogError(f"{plain} has {len(data)} bytes, more than a log segment may have; move it away")
    packed = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(data)
    os.close(write_file(compressed, [packed], calls))
    plain.unlink()


def _is_temporary(entry: Path) -> bool:
    return entry.name.endswith(TEMPORARY_SUFFIX)
