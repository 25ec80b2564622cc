"""A thread that does a rank's copies in order, beside the forward pass. One for loads, one for saves.

A piece of work must not raise; what does is a bug, is logged with its traceback, and costs that piece only:
an engine must not stop for its cache.
"""

import logging
import queue
import threading
from collections.abc import Callable

Work = Callable[[], None]
_log = logging.getLogger(__name__)


class Lane:
    """Started by its first piece of work."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        """Bounded by the scheduler's side: one load at the gate, and saves within their share of blocks."""
        self._thread: threading.Thread | None = None

    def put(self, work: Work) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"orbitkv {self._name}", daemon=True)
            self._thread.start()
        self._work.put(work)

    def finish(self, timeout_s: float) -> bool:
        """Do what was put before, then end. False when that takes too long."""
        if self._thread is None:
            return True
        self._work.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception:
                _log.exception("OrbitKV: a piece of work of the %s failed.", self._name)
            del work
