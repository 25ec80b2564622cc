"""The DRAM pool: one sealed memory file that the manager writes and engines can only read.

Order matters. The file gets its size, then the manager's writable mapping, then its seals: after
F_SEAL_FUTURE_WRITE nobody, the manager included, can make another writable mapping or write through a
descriptor, while the mapping that exists goes on. The seals guard against bugs in an engine, not
against malice: a process of the same user can still reach the manager's memory through /proc.

Memory is taken superblock by superblock when one is first handed out, not at start. There is no name
in any filesystem, so nothing is left behind however the manager ends.
This module knows no page and no key; who owns which bytes is the kernel's business.
"""

import errno
import fcntl
import os
from functools import partial
from typing import Final

import trio

from orbitkv.io.mapping import (
    F_SEAL_FUTURE_WRITE,
    HUGE_PAGE_BYTES,
    MADV_COLLAPSE,
    MADV_DONTDUMP,
    MADV_HUGEPAGE,
    MADV_POPULATE_WRITE,
    AlignedMapping,
)
from orbitkv.io.memory_limit import memory_limit

MFD_NOEXEC_SEAL: Final = 0x8
"""Linux 6.3; older kernels refuse it as unknown."""
POOL_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL
PREPARING_MAX = 2
"""Superblocks populated at a time: one core's page clearing already takes most of a memory channel."""
_COLLAPSE_TRIES = 3


class MemoryPool:
    """Implements `ports.Pool`.

    Raises ValueError for sizes that cannot work, OSError for what the host refuses.
    """

    def __init__(self, pool_bytes: int, superblock_bytes: int) -> None:
        _check_sizes(pool_bytes, superblock_bytes)
        self._pool_bytes = pool_bytes
        self._superblock_bytes = superblock_bytes
        self._fd, self._mapping = _sealed_file(pool_bytes)
        self._prepared = bytearray(pool_bytes // superblock_bytes)
        self._preparing: dict[int, trio.Event] = {}
        self._limiter = trio.CapacityLimiter(PREPARING_MAX)
        self._small_pages_reason = ""

    @property
    def pool_bytes(self) -> int:
        return self._pool_bytes

    @property
    def view(self) -> memoryview:
        """The whole pool, writable. Views taken from it stay valid after `close()`."""
        return self._mapping.view

    @property
    def prepared_bytes(self) -> int:
        """Bytes of the superblocks that have their memory."""
        return sum(self._prepared) * self._superblock_bytes

    @property
    def small_pages_reason(self) -> str:
        """Why some prepared superblock is not made of 2 MiB pages, in words; empty when all are."""
        return self._small_pages_reason

    def huge_bytes(self) -> int:
        """Bytes that stand in 2 MiB pages now. Costs milliseconds: for start-up lines and benches."""
        return self._mapping.huge_bytes()

    def reader_fd(self) -> int:
        """A descriptor opened for reading only, of a file sealed against writing. The caller closes it."""
        return os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC)

    async def prepare_superblock(self, superblock: int) -> None:
        """Populate and collapse, in a thread, once; callers at the same time share the one run.

        Raises OSError when the host has no memory for it; a later call tries again.
        """
        while not self._prepared[superblock]:
            running = self._preparing.get(superblock)
            if running is not None:
                await running.wait()
                continue
            running = self._preparing[superblock] = trio.Event()
            try:
                await trio.to_thread.run_sync(partial(self._populate, superblock), limiter=self._limiter)
                self._prepared[superblock] = 1
            finally:
                del self._preparing[superblock]
                running.set()

    def close(self) -> None:
        """Give the file back. The memory itself goes when the last view or engine mapping has gone."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            del self._mapping

    def _populate(self, superblock: int) -> None:
        offset = superblock * self._superblock_bytes
        try:
            self._mapping.advise(MADV_POPULATE_WRITE, offset, self._superblock_bytes)
        except OSError as error:
            raise OSError(
                error.errno,
                f"the host has no memory for superblock {superblock} of the pool: {error.strerror}; "
                f"it holds {self.prepared_bytes} of pool_bytes = {self._pool_bytes}: "
                "make pool_bytes smaller or free memory",
            ) from error
        for attempt in range(_COLLAPSE_TRIES):
            try:
                self._mapping.advise(MADV_COLLAPSE, offset, self._superblock_bytes)
                return
            except OSError as error:
                if error.errno == errno.EAGAIN and attempt + 1 < _COLLAPSE_TRIES:
                    continue  # something held a page for a moment
                self._small_pages_reason = _why_not_huge(error)
                return


def _check_sizes(pool_bytes: int, superblock_bytes: int) -> None:
    if superblock_bytes <= 0 or superblock_bytes % HUGE_PAGE_BYTES:
        raise ValueError(
            f"superblock_bytes = {superblock_bytes} cannot be made of 2 MiB pages: "
            f"set superblock_bytes to a multiple of {HUGE_PAGE_BYTES}"
        )
    if pool_bytes < superblock_bytes:
        raise ValueError(
            f"pool_bytes = {pool_bytes} holds not one superblock of {superblock_bytes} bytes: "
            "set pool_bytes to at least superblock_bytes"
        )
    limit_bytes, whose = memory_limit()
    if pool_bytes > limit_bytes:
        raise ValueError(
            f"pool_bytes = {pool_bytes} is more than this process can have: {whose} is {limit_bytes} bytes; "
            "set pool_bytes below that, with room left for the engines"
        )


def _sealed_file(pool_bytes: int) -> tuple[int, AlignedMapping]:
    fd = _memory_file()
    try:
        os.ftruncate(fd, pool_bytes)
        mapping = AlignedMapping(fd, pool_bytes)
        mapping.advise(MADV_DONTDUMP, 0, pool_bytes)
        try:
            mapping.advise(MADV_HUGEPAGE, 0, pool_bytes)
        except OSError:
            pass  # a kernel without huge pages: collapsing will say so
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, POOL_SEALS)
    except OSError as error:
        os.close(fd)
        raise OSError(
            error.errno,
            f"the pool of pool_bytes = {pool_bytes} cannot be made: {error.strerror}; "
            "it needs Linux 5.14 or newer and address space for the pool (ulimit -v)",
        ) from error
    return fd, mapping


def _memory_file() -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create("orbitkv-pool", flags | MFD_NOEXEC_SEAL)
    except OSError:
        return os.memfd_create("orbitkv-pool", flags)


def _why_not_huge(error: OSError) -> str:
    reasons = {
        errno.EINVAL: "the kernel cannot collapse shared memory, which Linux 6.1 and newer can",
        errno.ENOMEM: "the host has no free 2 MiB page, or the memory group's limit is met",
        errno.EAGAIN: "pages were in use while they were to be collapsed",
    }
    return reasons.get(error.errno or 0, f"the kernel refused: {error.strerror}")
