"""The board: a page of memory where a client sees that its waiting operation has moved on.

The manager owns it and writes one aligned u64 per waiting operation; clients map it read-only. A poll
of an operation that still waits is then a memory read; only when the word differs from the one in the
answer does the client ask. The board never says *what* happened, so nothing here needs to be true for
longer than a glance: a stale "unchanged" costs the client one refresh interval, no more.

Word: operation's low 32 bits | 24 bits of version, different at each write of a cell | 8 bits of state.
"""

import fcntl
import mmap
import os
from typing import Final

from orbitkv.io.mapping import F_SEAL_FUTURE_WRITE
from orbitkv.io.wire import NO_CELL

WAITING: Final = 1
MOVED: Final = 2

_VERSION_MASK: Final = 0xFF_FFFF


class Board:
    def __init__(self, cells: int) -> None:
        """`cells`: as many as operations may wait at once. Raises OSError."""
        if cells < 1:
            raise ValueError("a board has at least one cell")
        self.cells = cells
        self._fd = os.memfd_create("orbitkv-board", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._fd, cells * 8)
        self._memory = mmap.mmap(self._fd, cells * 8, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        _seal(self._fd)
        self._words = memoryview(self._memory).cast("Q")
        self._free = list(range(cells - 1, -1, -1))
        self._cell_of: dict[int, int] = {}
        self._version = 0

    def reader_fd(self) -> int:
        """A descriptor that can be mapped for reading only. Owned by the board."""
        return self._fd

    def watch(self, operation: int) -> tuple[int, int]:
        """(cell, word) for the answer that says "loading". (NO_CELL, 0) when all cells are taken."""
        cell = self._cell_of.get(operation)
        if cell is None:
            if not self._free:
                return NO_CELL, 0
            cell = self._free.pop()
            self._cell_of[operation] = cell
            self._write(cell, operation, WAITING)
        return cell, self._words[cell]

    def moved(self, operation: int) -> None:
        """The operation no longer waits, however that came: whoever looks will ask. Idempotent."""
        cell = self._cell_of.pop(operation, None)
        if cell is not None:
            self._write(cell, operation, MOVED)
            self._free.append(cell)

    def _write(self, cell: int, operation: int, state: int) -> None:
        self._version = (self._version + 1) & _VERSION_MASK
        self._words[cell] = (operation & 0xFFFF_FFFF) << 32 | self._version << 8 | state

    def close(self) -> None:
        self._words.release()
        self._memory.close()
        os.close(self._fd)

    def __repr__(self) -> str:
        return f"Board({len(self._cell_of)} of {self.cells} cells watched)"


def _seal(fd: int) -> None:
    """Nobody may resize it or write it through a new mapping; on an old kernel at least not resize it."""
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    try:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals | F_SEAL_FUTURE_WRITE)
    except OSError:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
