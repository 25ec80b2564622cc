"""The page file: fixed segments, allocated whole when they are formatted, never beyond the capacity.

The cap is on the file's length, and so on its data. What a file system notes about where the data lies
(ext4: a block per 340 fragments) and the directory come on top: some hundredths of a percent.
"""

import errno
import os
from pathlib import Path

from orbitkv.io.store_geometry import StoreGeometry


class PageFile:
    """Owns the file (0600). Raises OSError."""

    def __init__(self, path: Path, geometry: StoreGeometry, *, direct: bool, keep: bool) -> None:
        """`keep` is False when the directory took nothing over: the file then starts empty."""
        self._path = path
        self._geometry = geometry
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)
        self.descriptor = os.open(path, flags, 0o600)
        # Where a file system cannot allocate, libc writes single bytes instead: not through O_DIRECT.
        self._plain_descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        kept_bytes = min(self.size_bytes, geometry.page_file_bytes) if keep else 0
        os.ftruncate(self.descriptor, kept_bytes)

    @property
    def size_bytes(self) -> int:
        return os.fstat(self.descriptor).st_size

    def allocate_segment(self, segment: int) -> None:
        """Give the segment its disk blocks, so that a write into it never lacks space.

        Raises OSError, ENOSPC with what mends it; the file is then as long as before.
        """
        segment_bytes = self._geometry.segment_bytes
        size_before_bytes = self.size_bytes
        try:
            self._expect_free(segment_bytes)
            os.posix_fallocate(self._plain_descriptor, segment * segment_bytes, segment_bytes)
        except OSError as refused:
            os.ftruncate(self.descriptor, size_before_bytes)
            if refused.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self._no_space(refused.errno, segment) from None
            raise

    def sync(self) -> None:
        os.fdatasync(self.descriptor)

    def close(self) -> None:
        os.close(self._plain_descriptor)
        os.close(self.descriptor)

    def _expect_free(self, needed_bytes: int) -> None:
        """Ask first: a failed allocation can take the disk's last blocks for as long as it runs."""
        disk = os.fstatvfs(self.descriptor)
        if disk.f_bavail * disk.f_frsize < needed_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _no_space(self, number: int, segment: int) -> OSError:
        return OSError(
            number,
            f"no space for SSD segment {segment} ({self._geometry.segment_bytes} bytes): the disk is fuller "
            f"than ssd_bytes = {self._geometry.capacity_bytes} needs; free space, lower ssd_bytes, or "
            f"set ssd_path to another disk",
            str(self._path),
        )
