"""A stream: work done in order, beside other streams. What CUDA streams are to a GPU, in threads.

numpy copies and comparisons drop the GIL, so a restore really runs beside a forward pass.
"""

import queue
import threading
from collections.abc import Callable

Work = Callable[[], None]


class Stream:
    """An error in a piece of work ends the stream and is handed to `on_error`, in its thread."""

    def __init__(self, name: str, on_error: Callable[[BaseException], None]) -> None:
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._on_error = on_error
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> "Stream":
        self._thread.start()
        return self

    def put(self, work: Work) -> None:
        """Bounded by the scheduler: one restore, and saves of at most `saving_pages_max` pages."""
        self._work.put(work)

    def finish(self) -> None:
        """Do what was put before, then end."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except BaseException as error:
                self._on_error(error)
                return
