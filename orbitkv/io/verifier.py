"""Checks large page images in a thread of its own, while the event loop goes on and the disk reads on.

One image of 9 MiB costs the better part of a millisecond; small ones are checked in the loop, where
handing them over would cost more than the check. The thread starts with the first image.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from orbitkv.events.outcomes import ReadOutcome
from orbitkv.io.doorbell import Doorbell
from orbitkv.io.engine import Finished
from orbitkv.manager.ports import PageIdentity, PageRead

Check: TypeAlias = Callable[[memoryview, PageIdentity], ReadOutcome]


class Verifier:
    def __init__(self, pool_view: memoryview, check: Check, doorbell: Doorbell) -> None:
        """`doorbell` is rung when `collect` has something to return; its owner answers it before."""
        self._pool_view = pool_view
        self._check = check
        self._orders: queue.SimpleQueue[tuple[Finished, PageRead] | None] = queue.SimpleQueue()
        self._verdicts: deque[tuple[Finished, PageRead, ReadOutcome | Exception]] = deque()
        self._doorbell = doorbell
        self._thread: threading.Thread | None = None
        self._in_flight = 0

    @property
    def in_flight(self) -> int:
        """Submitted and not yet collected."""
        return self._in_flight

    def verdict(self, read: PageRead) -> ReadOutcome:
        """Check here and now, in the calling thread."""
        return self._check(
            self._pool_view[read.pool_offset : read.pool_offset + read.image_bytes], read.identity
        )

    def submit(self, finished: Finished, read: PageRead) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="orbitkv-verify", daemon=True)
            self._thread.start()
        self._in_flight += 1
        self._orders.put((finished, read))

    def collect(self) -> list[tuple[Finished, PageRead, ReadOutcome]]:
        """All that has been checked since the last call. Raises what the check raised, as `verdict` would."""
        verdicts = []
        for _ in range(len(self._verdicts)):
            finished, read, outcome = self._verdicts.popleft()
            self._in_flight -= 1
            if isinstance(outcome, Exception):
                raise outcome
            verdicts.append((finished, read, outcome))
        return verdicts

    def close(self) -> None:
        assert not self._in_flight, f"{self._in_flight} images still being checked"
        if self._thread is not None:
            self._orders.put(None)
            self._thread.join()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            finished, read = order
            try:
                outcome: ReadOutcome | Exception = self.verdict(read)
            except Exception as error:
                outcome = error
            self._verdicts.append((finished, read, outcome))
            self._doorbell.ring()
