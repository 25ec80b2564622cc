"""A pool in ordinary memory whose superblocks can stall or fail while they are prepared."""

import os

import trio


class PlainPool:
    """Implements `ports.Pool`."""

    def __init__(self, pool_bytes: int) -> None:
        self._bytes = bytearray(pool_bytes)
        self.view = memoryview(self._bytes)
        self.prepared: list[int] = []
        """Superblocks in the order in which they became ready."""
        self.preparing: list[int] = []
        """Superblocks that wait because of `stall()`."""
        self.failures: dict[int, OSError] = {}
        """Superblock to the error that its next preparation raises."""
        self.closed = False
        self._go = trio.Event()
        self._go.set()

    @property
    def pool_bytes(self) -> int:
        return len(self._bytes)

    def stall(self) -> None:
        self._go = trio.Event()

    def release(self) -> None:
        self._go.set()

    def reader_fd(self) -> int:
        """A read-only descriptor of a copy of what the pool holds now."""
        writer = os.memfd_create("pool-double", os.MFD_CLOEXEC)
        try:
            os.write(writer, self._bytes)
            return os.open(f"/proc/self/fd/{writer}", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(writer)

    async def prepare_superblock(self, superblock: int) -> None:
        self.preparing.append(superblock)
        try:
            await self._go.wait()
        finally:
            self.preparing.remove(superblock)
        failure = self.failures.pop(superblock, None)
        if failure is not None:
            raise failure
        if superblock not in self.prepared:
            self.prepared.append(superblock)

    def close(self) -> None:
        self.closed = True
