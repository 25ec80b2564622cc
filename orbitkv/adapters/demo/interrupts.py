"""Signals that end a run, and not losing one.

While modules are loaded, Python turns SIGINT into an exception wherever it happens to be, even where
exceptions are dropped (a destructor, a weak reference's callback). So these signals are held back from
the first line of the command until there is somebody to take them.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_back() -> Iterator[None]:
    """In the block they wait, until `let_through`. Processes must not be started before that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_through() -> None:
    """Somebody takes them now; one that waited comes at once."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
