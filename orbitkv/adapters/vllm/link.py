"""Whether the manager may be asked at this moment, and what brings it back when it may not.

An engine's scheduler asks from the thread that everything waits for. So trouble is met once: after a call
that failed or took too long the manager is left alone, everything is a miss, and a thread of its own
(`keeper`) makes the connection anew, registers, and waits until all ranks have done the same. The same
thread keeps an idle process registered after a manager was restarted.
"""

import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from orbitkv.adapters.answers import Registration
from orbitkv.adapters.client_errors import (
    CallTimedOut,
    ClientClosed,
    ConnectionLost,
    ManagerUnavailable,
    NotWelcome,
    OrbitError,
    RequestRefused,
)
from orbitkv.events.outcomes import Refusal

TEND_SECONDS: Final = 1.0
"""How often an idle connection is looked at."""
RETRY_FIRST_SECONDS: Final = 0.02
RETRY_LAST_SECONDS: Final = 2.0

Result = TypeVar("Result")
_log = logging.getLogger(__name__)


class Tended(Protocol):
    """What of the client is needed here."""

    def register(self) -> Registration: ...
    def registration(self) -> Registration: ...
    def tend(self) -> bool: ...
    def reconnect(self) -> None: ...
    def close(self) -> None: ...


class ManagerLink:
    """May be used by several threads."""

    def __init__(self, client: Tended, name: str) -> None:
        """`name`: who is speaking, for the log lines."""
        self._client = client
        self._name = name
        self._up = False
        self.epoch = 0
        """Rises whenever a connection is given up."""
        self._trouble = ""
        self._wake = threading.Event()
        self._stopping = False
        self._lock = threading.Lock()
        self._keeper: threading.Thread | None = None

    @property
    def up(self) -> bool:
        """Connected, registered, and all ranks of the instance are there."""
        return self._up

    def open(self, *, refuse: bool, patience_s: float = 10.0) -> None:
        """Register. Raises OrbitError when that fails and `refuse`; else it is tried until it works.

        `patience_s`: how long a predecessor of the same name may take to end.
        """
        try:
            self._note(self._register(time.monotonic() + patience_s))
        except OrbitError as error:
            if refuse:
                self._client.close()
                raise
            self._down(error)
        self._start_keeper()

    def ask(self, call: Callable[[], Result]) -> Result:
        """Make this call. Raises OrbitError; the link is down after one that says nobody answers."""
        try:
            return call()
        except OrbitError as error:
            if isinstance(error, CallTimedOut):
                # It may hang for long, and what it does late must not be taken for an answer.
                self._client.reconnect()
            if _is_absence(error):
                self._down(error)
            raise

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            self._stopping, self._up = True, False
            self._wake.set()
        self._client.close()

    def _register(self, deadline: float) -> Registration:
        while True:
            try:
                return self._client.register()
            except RequestRefused as no:
                if no.refusal != Refusal.RANK_OCCUPIED or time.monotonic() > deadline:
                    raise

    # --- up and down ----------------------------------------------------------------------------------

    def _note(self, registration: Registration) -> None:
        if not registration.sealed:
            return
        with self._lock:
            came_up, self._up = not self._up and not self._stopping, not self._stopping
            self._trouble = ""
        if came_up:
            _log.info(
                "OrbitKV: %s is served by the manager (instance %d).", self._name, registration.instance
            )

    def _down(self, error: OrbitError) -> None:
        sentence = str(error)
        with self._lock:
            told, self._trouble = self._trouble == sentence, sentence
            self.epoch += self._up
            self._up = False
            self._wake.set()
        if not told:
            _log.warning("OrbitKV: %s goes on without a cache for now. %s", self._name, sentence)

    def _lost(self) -> None:
        """It was restarted: connected again, and other ranks are still to come."""
        with self._lock:
            self.epoch += self._up
            self._up = False

    # --- the keeper -----------------------------------------------------------------------------------

    def _start_keeper(self) -> None:
        self._keeper = threading.Thread(
            target=_keep,
            args=(weakref.ref(self), self._wake),
            name=f"orbitkv keeper {self._name}",
            daemon=True,
        )
        self._keeper.start()

    def mend(self) -> bool:
        """One look: tend what is up, try anew what is down. False when there is nothing left to do it for."""
        if self._stopping:
            return False
        try:
            if not self._up:
                self._note(self._client.register())
            elif not self._client.tend() or not self._client.registration().sealed:
                self._lost()
        except OrbitError as error:
            self._down(error)
        return not self._stopping

    def __repr__(self) -> str:
        state = "up" if self._up else f"down: {self._trouble or 'ranks are missing'}"
        return f"ManagerLink({self._name}, {state})"


_NOT_SERVED: Final = (Refusal.NOT_REGISTERED, Refusal.UNKNOWN_SESSION, Refusal.SHUTTING_DOWN)


def _is_absence(error: OrbitError) -> bool:
    """Whether further calls would meet the same, and not only this one."""
    if isinstance(error, RequestRefused):
        return error.refusal in _NOT_SERVED
    return isinstance(error, ManagerUnavailable | NotWelcome | ConnectionLost | CallTimedOut | ClientClosed)


def _keep(reference: "weakref.ref[ManagerLink]", wake: threading.Event) -> None:
    """Holds the link only while it works, so that an engine that was dropped takes its session with it."""
    pause = RETRY_FIRST_SECONDS
    while True:
        woken = wake.wait(pause)
        link = reference()
        if link is None:
            return
        if woken:
            wake.clear()
            pause = RETRY_FIRST_SECONDS
        if not link.mend():
            return
        pause = TEND_SECONDS if link.up else min(2 * pause, RETRY_LAST_SECONDS)
        del link
