"""Which transfer goes to the device next, and how many bytes may be there at once.

Foreground reads first, then writes, then warm reads, each lane in order of arrival. Bytes in flight are
the knob: about 1 MiB saturates a disk, the rest only adds latency. Writes take at most half of them, so
that a burst of saves cannot fill the device in front of a demand.
"""

from collections import deque
from collections.abc import Sequence

from orbitkv.manager.ports import PageRead, PageWrite


class Lanes:
    def __init__(self, *, inflight_bytes_max: int, transfers_max: int) -> None:
        self._bytes_max = inflight_bytes_max
        self._write_bytes_max = inflight_bytes_max // 2
        self._transfers_max = transfers_max
        self._foreground: deque[PageRead] = deque()
        self._writes: deque[PageWrite] = deque()
        self._background: deque[PageRead] = deque()
        self._bytes = 0
        self._write_bytes = 0
        self._transfers = 0

    @property
    def waiting(self) -> int:
        return len(self._foreground) + len(self._writes) + len(self._background)

    def add_reads(self, reads: Sequence[PageRead]) -> None:
        for read in reads:
            (self._foreground if read.foreground else self._background).append(read)

    def add_writes(self, writes: Sequence[PageWrite]) -> None:
        self._writes.extend(writes)

    def take(self) -> tuple[list[PageRead], list[PageWrite]]:
        """What may go to the device now; it counts as there until `landed`."""
        reads = self._take(self._foreground)
        writes = [] if self._foreground else self._take_writes()
        if not self._foreground and not self._writes_want_room():
            reads += self._take(self._background)
        return reads, writes

    def landed(self, transfer: PageRead | PageWrite) -> None:
        self._transfers -= 1
        self._bytes -= transfer.image_bytes
        if isinstance(transfer, PageWrite):
            self._write_bytes -= transfer.image_bytes

    def _take(self, lane: deque[PageRead]) -> list[PageRead]:
        taken = []
        while lane and self._fits(lane[0]):
            taken.append(lane.popleft())
            self._count(taken[-1])
        return taken

    def _take_writes(self) -> list[PageWrite]:
        taken: list[PageWrite] = []
        while self._writes and self._fits(self._writes[0]) and self._write_fits(self._writes[0]):
            taken.append(self._writes.popleft())
            self._count(taken[-1])
            self._write_bytes += taken[-1].image_bytes
        return taken

    def _writes_want_room(self) -> bool:
        """A write waits for the device and not for its own share: warm reads must not slip past it."""
        return bool(self._writes) and self._write_fits(self._writes[0])

    def _count(self, transfer: PageRead | PageWrite) -> None:
        self._transfers += 1
        self._bytes += transfer.image_bytes

    def _fits(self, transfer: PageRead | PageWrite) -> bool:
        """A transfer larger than the whole allowance goes alone."""
        if self._transfers >= self._transfers_max:
            return False
        return not self._transfers or self._bytes + transfer.image_bytes <= self._bytes_max

    def _write_fits(self, write: PageWrite) -> bool:
        return not self._write_bytes or self._write_bytes + write.image_bytes <= self._write_bytes_max
