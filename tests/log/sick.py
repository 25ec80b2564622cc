"""A device that is full, fails or forgets, for the log's writers. Real files, failing calls."""

import errno
import os
from collections.abc import Sequence

from orbitkv.io.segment_writer import FileCalls


class SickCalls(FileCalls):
    """Does what the device would, until told to be sick. All knobs may be turned from another thread."""

    def __init__(self) -> None:
        self.room_bytes = 1 << 40
        """What still fits; a write that needs more is cut short, the next one gets ENOSPC."""
        self.write_error = 0
        """errno of every write; 0: none."""
        self.sync_error = 0
        self.truncate_error = 0
        self.bytes_per_write = 1 << 40
        """A write takes at most so many bytes at once."""
        self.syncs = 0
        self.writes = 0
        self.unsynced: dict[int, list[tuple[int, int]]] = {}
        """Per inode: (offset, length) of what was written since its last sync."""

    def pwritev(self, fd: int, buffers: Sequence[bytes], offset: int) -> int:
        self.writes += 1
        if self.write_error:
            raise OSError(self.write_error, os.strerror(self.write_error))
        if self.room_bytes <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = b"".join(buffers)[: min(self.room_bytes, self.bytes_per_write)]
        os.pwrite(fd, taken, offset)
        self.room_bytes -= len(taken)
        self.unsynced.setdefault(os.fstat(fd).st_ino, []).append((offset, len(taken)))
        return len(taken)

    def fdatasync(self, fd: int) -> None:
        self.syncs += 1
        if self.sync_error:
            # What the kernel does: the failed pages are clean now, and lost.
            self.forget(fd)
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        self.unsynced.pop(os.fstat(fd).st_ino, None)

    def ftruncate(self, fd: int, length: int) -> None:
        if self.truncate_error:
            raise OSError(self.truncate_error, os.strerror(self.truncate_error))
        self.room_bytes += os.fstat(fd).st_size - length
        os.ftruncate(fd, length)

    def forget(self, fd: int) -> None:
        for offset, length in self.unsynced.pop(os.fstat(fd).st_ino, ()):
            os.pwrite(fd, bytes(length), offset)
