"""The files of an exported log: written beside their place, which they take when all of them are there.

Whoever fails, or is interrupted, leaves no half log behind. Files are 0600 and the folder 0700, as a
manager's. Knows frames, not records.
"""

import errno
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

import zstandard

from orbitkv.events.frame import Chain, LogError, SegmentHeader, SegmentName, encode_header

_LEVEL = 3


class ExportedFiles:
    """A new log directory. Use it as a context; without `finish` nothing remains of it."""

    def __init__(self, target: Path) -> None:
        """Raises LogError: something stands there already, or nothing can be written there."""
        self.target = target
        self.size_bytes = 0
        if os.path.lexists(target) and not (target.is_dir() and not any(target.iterdir())):
            raise LogError(f"{target} exists already, and nothing is overwritten; name a new directory")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._directory = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        except OSError as error:
            raise _trouble(target, error) from error

    def __enter__(self) -> "ExportedFiles":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def add(self, name: SegmentName, data: bytes | bytearray) -> None:
        """One segment, compressed if its name says so. Raises LogError."""
        stored = zstandard.ZstdCompressor(level=_LEVEL).compress(data) if name.compressed else data
        try:
            fd = os.open(self._directory / str(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(stored)
                file.flush()
                os.fsync(fd)
        except OSError as error:
            raise _trouble(self.target, error) from error
        self.size_bytes += len(stored)

    def finish(self) -> None:
        """Put the log at its place. Raises LogError, also when something came to stand there meanwhile."""
        try:
            os.rename(self._directory, self.target)
        except OSError as error:
            raise _trouble(self.target, error) from error


class ExportedSegment:
    """The bytes of one segment, chained anew. Every record counts as durable: the files are synced."""

    def __init__(self, header: SegmentHeader, snapshot: bytes) -> None:
        head = encode_header(header)
        self._chain = Chain.after_header(head, header.first_seq)
        self.data = bytearray(head)
        self.data += self._chain.snapshot_head(snapshot, synced_seq=header.first_seq - 1)
        self.data += snapshot

    @property
    def checksum(self) -> int:
        """Of the last frame."""
        return self._chain.checksum

    @property
    def next_seq(self) -> int:
        return self._chain.next_seq

    def add(self, last_seq: int, payload: bytes | memoryview) -> None:
        """A frame of records. Raises ValueError when it is too long for one."""
        self.data += self._chain.records_head(last_seq, bytes(payload), synced_seq=self.next_seq - 1)
        self.data += payload

    def close(self) -> None:
        self.data += self._chain.closing_head(synced_seq=self.next_seq - 1)


def _trouble(target: Path, error: OSError) -> LogError:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            remedy = "free space there, or name a directory that has more"
        case errno.ENOTEMPTY | errno.EEXIST:
            remedy = "nothing is overwritten; name a new directory"
        case _:
            remedy = "name a directory that you may write"
    return LogError(f"no log can be exported to {target}: {error.strerror or error}; {remedy}")
