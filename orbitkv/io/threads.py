"""The fallback engine: preadv and pwritev in threads of its own, in the shape of `ring`.

For hosts that refuse io_uring. Costs several times the CPU of the ring per page, mostly in handing over;
the calls themselves run without the GIL. Threads start with the first transfer and end with `close`.
"""

import errno
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence

from orbitkv.io.doorbell import Doorbell
from orbitkv.io.engine import TRANSFERS_MAX, Finished, Transfer
from orbitkv.manager.ports import PageRead, PageWrite

THREADS_MAX = 8
"""More add nothing: eight large transfers in flight saturate a disk that needs threads at all."""


class ThreadEngine:
    name = "threads"
    patience_s = None

    def __init__(self, descriptor: int, pool_view: memoryview) -> None:
        """`descriptor` is the page file. Raises nothing; no thread runs yet."""
        self._descriptor = descriptor
        self._pool_view = pool_view
        self._orders: queue.SimpleQueue[tuple[Transfer, int] | None] = queue.SimpleQueue()
        self._finished: deque[Finished] = deque()
        self._doorbell = Doorbell()
        self._threads: list[threading.Thread] = []
        self._in_flight = 0

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def fileno(self) -> int:
        return self._doorbell.fileno()

    def submit(self, reads: Sequence[PageRead], writes: Sequence[PageWrite]) -> None:
        within = self._in_flight + len(reads) + len(writes)
        assert within <= TRANSFERS_MAX, f"{within} transfers in flight, more than {TRANSFERS_MAX}"
        now_ns = time.monotonic_ns()
        self._in_flight = within
        self._start_threads()
        transfers: tuple[Transfer, ...] = (*reads, *writes)
        for transfer in transfers:
            self._orders.put((transfer, now_ns))

    def reap(self) -> list[Finished]:
        self._doorbell.answer()
        finished = [self._finished.popleft() for _ in range(len(self._finished))]
        self._in_flight -= len(finished)
        return finished

    def close(self) -> None:
        assert not self._in_flight, f"{self._in_flight} transfers still own their buffers"
        for _ in self._threads:
            self._orders.put(None)
        for thread in self._threads:
            thread.join()
        self._doorbell.close()

    def _start_threads(self) -> None:
        while len(self._threads) < min(self._in_flight, THREADS_MAX):
            name = f"orbitkv-io-{len(self._threads)}"
            # Daemons: a process that dies of something else must not wait for its disk.
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            transfer, submitted_ns = order
            self._finished.append(Finished(transfer, self._carry_out(transfer), submitted_ns))
            self._doorbell.ring()

    def _carry_out(self, transfer: Transfer) -> int:
        end = transfer.pool_offset + transfer.image_bytes
        place = self._pool_view[transfer.pool_offset : end]
        try:
            if isinstance(transfer, PageWrite):
                return os.pwritev(self._descriptor, [place], transfer.file_offset)
            return os.preadv(self._descriptor, [place], transfer.file_offset)
        except OSError as refused:
            return -(refused.errno or errno.EIO)
