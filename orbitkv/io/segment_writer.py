"""Writes one log segment. Blocking, for one thread; knows nothing of records, queues or other segments.

A segment appears under its name with header and snapshot complete and durable, or not at all.
A write is whole or not there: what a failing device took of it is cut off again, so that frames
can be offered a second time without a torn one between them.

After a failed fdatasync the kernel has dropped the pages it could not write and calls them clean, so
another fdatasync on that file proves nothing. The file is given up: `rescue` copies what was durable
(verified by its checksums) and what was not yet (kept in memory for this) into a new file under the
same name. Nothing is lost, no reader sees a gap, and the state is not needed for it.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import attrs

from orbitkv.events.frame import Chain, LogError, SegmentHeader, SegmentName, encode_header
from orbitkv.events.scan import Scan

TEMPORARY_SUFFIX = ".writing"
_BUFFERS_PER_CALL = 512
"""Half of what the kernel takes in one pwritev."""


class FileCalls:
    """The system calls that can fail on a sick device. Tests put failing ones in their place."""

    def pwritev(self, fd: int, buffers: Sequence[bytes], offset: int) -> int:
        return os.pwritev(fd, buffers, offset)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def ftruncate(self, fd: int, length: int) -> None:
        os.ftruncate(fd, length)

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def explain(error: OSError, path: Path) -> str:
    """A device's refusal in words: what happened, why, what mends it."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            remedy = "free space on its filesystem, or set a smaller log_bytes_max or another log_path"
        case errno.EACCES | errno.EPERM:
            remedy = "give the manager's user write access to it, or set another log_path"
        case errno.EROFS:
            remedy = "remount its filesystem for writing, or set another log_path"
        case errno.EIO:
            remedy = "look at the kernel's messages (dmesg) and replace the device, or set another log_path"
        case _:
            remedy = "look at the path and its filesystem, or set another log_path"
    return f"{path}: {error.strerror or error}; {remedy}"


@attrs.frozen(slots=True)
class PendingFrame:
    """Records that wait to be written."""

    first_seq: int
    last_seq: int
    payload: bytes


class SegmentWriter:
    """The segment that is being appended to."""

    def __init__(
        self, path: Path, fd: int, end_offset: int, chain: Chain, synced_seq: int, calls: FileCalls
    ) -> None:
        """All bytes before `end_offset` must be durable, and those behind it worthless."""
        self.path = path
        self.written_seq = chain.next_seq - 1
        self.synced_seq = synced_seq
        """Every record up to here is on the medium, as far as the device tells the truth."""
        self.sealed = False
        self._fd = fd
        self._end_offset = end_offset
        self._chain = chain
        self._calls = calls
        self._synced_offset = end_offset
        self._unsynced: list[bytes] = []
        """The bytes from `_synced_offset` to `_end_offset`."""
        self._given_up = False
        """A sync of this file failed; only `rescue` goes on."""

    @classmethod
    def create(
        cls, directory: Path, header: SegmentHeader, snapshot: bytes, calls: FileCalls
    ) -> "SegmentWriter":
        """Raises OSError; it may then be called again."""
        path = directory / str(SegmentName(header.incarnation, header.number))
        head = encode_header(header)
        chain = Chain.after_header(head, header.first_seq)
        synced_seq = header.first_seq - 1
        buffers = [head, chain.snapshot_head(snapshot, synced_seq=synced_seq), snapshot]
        fd = write_file(path, buffers, calls)
        return cls(path, fd, sum(map(len, buffers)), chain, synced_seq, calls)

    @property
    def unsynced_bytes(self) -> int:
        return self._end_offset - self._synced_offset

    @property
    def checksum(self) -> int:
        """Of the last frame: what the next segment's header names."""
        return self._chain.checksum

    def write(self, frames: Sequence[PendingFrame]) -> None:
        """Append all of them, or none and raise OSError."""
        chain = Chain(self._chain.checksum, self._chain.next_seq)
        buffers: list[bytes] = []
        for frame in frames:
            buffers.append(chain.records_head(frame.last_seq, frame.payload, synced_seq=self.synced_seq))
            buffers.append(frame.payload)
        self._append(buffers)
        self._chain = chain
        self.written_seq = chain.next_seq - 1

    def seal(self) -> None:
        """Append the closing frame and sync. May be called again after an OSError."""
        self.sync()
        if not self.sealed:
            chain = Chain(self._chain.checksum, self._chain.next_seq)
            self._append([chain.closing_head(synced_seq=self.synced_seq)])
            self._chain = chain
            self.sealed = True
            self.sync()

    def sync(self) -> None:
        """Make everything written durable. Raises OSError, and LogError when a rescue finds rot."""
        if self._given_up:
            self._rescue()
        elif self._unsynced:
            try:
                self._calls.fdatasync(self._fd)
            except OSError:
                self._given_up = True
                raise
        self._mark_synced()

    def close(self) -> None:
        os.close(self._fd)

    def _append(self, buffers: list[bytes]) -> None:
        if self._given_up:
            self._rescue()
            self._mark_synced()
        try:
            written_bytes = _write_all(self._fd, buffers, self._end_offset, self._calls)
        except OSError:
            self._cut_partial_frame()
            raise
        self._end_offset += written_bytes
        self._unsynced += buffers

    def _cut_partial_frame(self) -> None:
        try:
            self._calls.ftruncate(self._fd, self._end_offset)
        except OSError:
            # What stands behind the last whole frame can no longer be controlled.
            self._given_up = True

    def _mark_synced(self) -> None:
        self._synced_offset = self._end_offset
        self._unsynced.clear()
        self.synced_seq = self.written_seq

    def _rescue(self) -> None:
        durable = os.pread(self._fd, self._synced_offset, 0) if self._synced_offset else b""
        scan = Scan(durable)
        for _ in scan:
            pass
        if scan.ending.offset != self._synced_offset or scan.ending.lost_bytes:
            raise LogError(
                f"{self.path}: a sync failed, and bytes that had been durable cannot be read back"
                f" ({scan.ending.reason or 'cut'}); the device is failing: set another log_path and restart"
            )
        fd = write_file(self.path, [durable, *self._unsynced], self._calls)
        os.close(self._fd)
        self._fd = fd
        self._given_up = False


def write_file(path: Path, buffers: list[bytes], calls: FileCalls) -> int:
    """Put a durable file at `path` in one step; gives the descriptor it was written by. Raises OSError."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        _write_all(fd, buffers, 0, calls)
        calls.fdatasync(fd)
        os.replace(temporary, path)
        calls.sync_directory(path.parent)
    except BaseException:
        os.close(fd)
        temporary.unlink(missing_ok=True)
        raise
    return fd


def _write_all(fd: int, buffers: list[bytes], offset: int, calls: FileCalls) -> int:
    """Write the buffers one after the other at `offset`; gives their length. Raises OSError part-way."""
    start = offset
    for first in range(0, len(buffers), _BUFFERS_PER_CALL):
        pending: list[bytes] = [piece for piece in buffers[first : first + _BUFFERS_PER_CALL] if piece]
        while pending:
            taken = calls.pwritev(fd, pending, offset)
            if taken == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            offset += taken
            while pending and taken >= len(pending[0]):
                taken -= len(pending.pop(0))
            if taken:
                pending[0] = pending[0][taken:]
    return offset - start
