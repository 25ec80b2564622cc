"""How a thread tells the event loop that it has left something to collect.

An eventfd, because the loop waits on descriptors; rung at most once between two answers, because a
write costs a system call. Neither end needs to know about trio.
"""

import os


class Doorbell:
    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._rung = False

    def fileno(self) -> int:
        """Readable from `ring` to `answer`."""
        return self._descriptor

    def ring(self) -> None:
        """From any thread, after the thing to collect has been put down."""
        if not self._rung:
            self._rung = True
            os.eventfd_write(self._descriptor, 1)

    def answer(self) -> None:
        """From the collecting thread, before it collects: what is put down later rings again.

        Read first, then lower the flag: the other order can leave a raised flag over a silent descriptor.
        A ring that was flagged but not yet written merely wakes the collector once more.
        """
        try:
            os.eventfd_read(self._descriptor)
        except BlockingIOError:
            pass
        self._rung = False

    def close(self) -> None:
        os.close(self._descriptor)
