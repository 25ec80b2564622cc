"""Hints, from an engine's side: tell the manager what a queued request will miss, and think no more of it.

All of this runs inside the callback of an engine's queue, so it never raises for the world's sake, never
waits for the manager, and never connects: what cannot be sent at once is dropped and counted. The next
question or `tend()` makes a lost connection anew, and a request without its hint is merely read later.

The rules of this end: at most so many tickets, the same hint once, stale ones retired when the next is
sent, and a request's hint withdrawn before its demand. What a hint comes to is the manager's to decide.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final

import attrs

from orbitkv.adapters.client_errors import LimitExceeded, OrbitError
from orbitkv.adapters.connection import SentHint
from orbitkv.adapters.questions import check_keys, check_name, check_numbers
from orbitkv.adapters.session import ManagerSession
from orbitkv.events.ids import KEY_BYTES_MAX
from orbitkv.io import wire

TICKETS_MAX: Final = 16
STALE_SECONDS: Final = 5.0
"""The manager's default `hint_lifetime`: after it a ticket stands for nothing any more."""

_PAGES_MAX: Final = wire.KEYS_PER_MESSAGE_MAX
_NAME_MAX: Final = wire.NAME_CHARS_MAX
_TICKET, _REVISION, _SENT_AT = 0, 1, 2
"""Places in a SentHint."""

_log = logging.getLogger(__name__)


class HintRefusal(Enum):
    """Why a hint was not sent."""

    NOTHING_MISSING = "nothing_missing"
    """It names no page: GPU memory has them all."""
    DUPLICATE = "duplicate"
    """The request's hint is out with this revision, or with a higher one."""
    TOO_MANY = "too_many"
    """The client has all its tickets out."""
    UNFIT = "unfit"
    """More keys than one message carries, or something that is no request id or no page key."""
    NOT_CONNECTED = "not_connected"
    CONNECTION_LOST = "connection_lost"
    NO_ROOM = "no_room"
    """The manager does not read fast enough, or another thread is sending something long."""


@attrs.frozen(slots=True)
class HintCounts:
    sent: int
    refused: Mapping[HintRefusal, int]


class Hints:
    """May be used by several threads, with or without the session's lock."""

    def __init__(self, session: ManagerSession, next_ticket: Callable[[], int], stale_s: float) -> None:
        self._session = session
        self._next_ticket = next_ticket
        self._stale_s = stale_s
        self._sent = 0
        self._refused = dict.fromkeys(HintRefusal, 0)
        self._trouble: HintRefusal | None = None
        """What was logged last. The same again is only logged for debugging: hints come by the thousand."""

    # --- sending --------------------------------------------------------------------------------------

    def warm(
        self, request: str, attempt: int, parts: Sequence[wire.QueryPart], revision: int
    ) -> int | HintRefusal:
        """The ticket, or why the hint was not sent."""
        connection = self._session.connection
        if connection is None:
            return self._fail(HintRefusal.NOT_CONNECTED, "no manager is connected at present")
        sending = connection.sending
        try:
            keys = parts[0].keys if len(parts) == 1 else ()
            if not (
                0 < len(keys) <= _PAGES_MAX
                and type(keys[0]) is bytes
                and 0 < len(keys[0]) <= KEY_BYTES_MAX
                and 0 < len(request) <= _NAME_MAX
                and attempt >= 0 <= revision
            ):  # else it is the usual case, which needs no closer look
                check_numbers(attempt, revision)
                parts = _missing(request, parts)
                if not parts:
                    return self._refuse(HintRefusal.NOTHING_MISSING)
            if not sending.acquire(False) and not connection.begin_telling():
                return self._fail(HintRefusal.NO_ROOM, "another thread is sending")
            try:
                hints, key = connection.hints, (request, attempt)
                if key in hints or len(hints) >= TICKETS_MAX:
                    refusal = self._make_place(hints, key, revision)
                    if refusal is not None:
                        return self._refuse(refusal)
                ticket = self._next_ticket()
                if not connection.tell(wire.WarmPrefix, request, attempt, ticket, revision, parts):
                    return self._fail(HintRefusal.NO_ROOM, "the manager is behind with reading")
                hints.pop(key, None)  # a revision goes to the end: the table is in order of age
                hints[key] = (ticket, revision, time.monotonic())
                self._sent += 1  # a connection is replaced only when nothing can be sent over it any more
            finally:
                sending.release()
        except LimitExceeded as unfit:
            return self._fail(HintRefusal.UNFIT, str(unfit))
        except OrbitError as lost:
            return self._fail(HintRefusal.CONNECTION_LOST, str(lost))
        self._trouble = None
        return ticket

    def _make_place(
        self, hints: dict[tuple[str, int], SentHint], key: tuple[str, int], revision: int
    ) -> HintRefusal | None:
        """Retire what is stale; then, whether the rules forbid another one for `key`."""
        _retire_stale(hints, time.monotonic() - self._stale_s)
        if key in hints:
            return HintRefusal.DUPLICATE if revision <= hints[key][_REVISION] else None
        return HintRefusal.TOO_MANY if len(hints) >= TICKETS_MAX else None

    # --- taking back ----------------------------------------------------------------------------------

    def cancel(self, request: str, attempt: int) -> bool:
        """Whether a hint was out and its end was sent. One whose end cannot be sent runs out by itself."""
        connection = self._session.connection
        key = (request, attempt)
        if connection is None or key not in connection.hints:
            return False
        if not connection.begin_telling():
            return self._not_cancelled(HintRefusal.NO_ROOM, "another thread is sending")
        try:
            hint = connection.hints.pop(key, None)
            if hint is None:
                return False
            if connection.tell(wire.CancelHint, hint[_TICKET]):
                return True
            return self._not_cancelled(HintRefusal.NO_ROOM, "the manager is behind with reading")
        except OrbitError as lost:
            return self._not_cancelled(HintRefusal.CONNECTION_LOST, str(lost))
        finally:
            connection.sending.release()

    # --- trouble --------------------------------------------------------------------------------------

    @property
    def counts(self) -> HintCounts:
        with self._session.counting:
            return HintCounts(self._sent, dict(self._refused))

    def _refuse(self, reason: HintRefusal) -> HintRefusal:
        with self._session.counting:
            self._refused[reason] += 1
        return reason

    def _fail(self, reason: HintRefusal, why: str) -> HintRefusal:
        self._report(reason, f"A hint was not sent: {why.rstrip('.')}. Its request is served without it.")
        return self._refuse(reason)

    def _not_cancelled(self, reason: HintRefusal, why: str) -> bool:
        self._report(reason, f"The end of a hint was not sent: {why.rstrip('.')}. It runs out by itself.")
        return False

    def _report(self, reason: HintRefusal, sentence: str) -> None:
        level = logging.DEBUG if reason is self._trouble else logging.WARNING
        self._trouble = reason
        _log.log(level, "%s", sentence)


def _missing(request: str, parts: Sequence[wire.QueryPart]) -> list[wire.QueryPart]:
    """The parts of which pages are missing. Raises LimitExceeded."""
    check_name(request)
    missing = [part for part in parts if part.keys]
    pages = 0
    for part in missing:
        check_keys(part.keys)
        check_numbers(part.group, part.page_tokens, part.trailing)
        pages += len(part.keys)
    if pages > _PAGES_MAX or len(missing) > wire.PARTS_MAX:
        raise LimitExceeded(
            f"A hint of {pages} pages in {len(missing)} groups does not fit one message, which carries "
            f"{_PAGES_MAX} pages in {wire.PARTS_MAX} groups; hints are not cut. "
            "Use longer pages, or hint shorter prefixes."
        )
    return missing


def _retire_stale(hints: dict[tuple[str, int], SentHint], until: float) -> None:
    """The manager has let go of them by itself."""
    while hints:
        oldest = next(iter(hints))
        if hints[oldest][_SENT_AT] > until:
            return
        del hints[oldest]
