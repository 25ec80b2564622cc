"""How a thread tells the event loop that it has left something to collect.

An eventfd, because the loop waits on descriptors; written at most once between two answers, because a
write is a system call. The lock keeps the flag and the descriptor of one mind: without it a late write
could leave the descriptor readable with nobody to answer it. Neither end needs to know about trio.
"""

import os
import threading


class Doorbell:
    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._rung = False

    def fileno(self) -> int:
        """Readable from `ring` to `answer`."""
        return self._descriptor

    def ring(self) -> None:
        """From any thread, after the thing to collect has been put down."""
        with self._lock:
            if not self._rung:
                # The flag first: the write lets go of the GIL, and the loop that it wakes looks at the flag.
                self._rung = True
                os.eventfd_write(self._descriptor, 1)

    def answer(self) -> None:
        """From the collecting thread, before it collects: what is put down later rings again."""
        if self._rung:
            with self._lock:
                os.eventfd_read(self._descriptor)
                self._rung = False

    def close(self) -> None:
        os.close(self._descriptor)
