"""Asking the manager what it has of a waiting request's prompt, once, and keeping the answer.

vLLM asks the connector about a waiting request again at every step until the request is let in, so
nothing here changes because it was asked twice. A manager that does not answer, a budget that is too
small, an answer that was not given in its time: each is a miss, never an error of the engine. Whether a
result is let in is not decided here.

    asked -> open -> found, with a lease or with nothing
      ^        |        |  the prefix in GPU memory grew past what was found: cancelled
      |        +--------+  it shrank: revised
      +-----------------+  the manager was lost meanwhile: asked anew, when it is back
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import attrs

from orbitkv.adapters.answers import QueryAnswer
from orbitkv.adapters.client_errors import OrbitError
from orbitkv.adapters.vllm.counts import Counts
from orbitkv.io.wire import QueryPart, QueryStatus

OPEN_MAX: Final = 64
"""Lookups open at one time, half of what the manager grants a session; more requests wait for their turn."""


class AskingClient(Protocol):
    """What of the client is needed here."""

    def query(self, request: str, attempt: int, parts: Sequence[QueryPart], revision: int) -> QueryAnswer: ...
    def poll(self, operation: bytes) -> QueryAnswer: ...
    def cancel(self, operation: bytes) -> bool: ...
    def release(self, lease: bytes) -> bool: ...


class Asks(Protocol):
    """The link to the manager."""

    @property
    def up(self) -> bool: ...
    @property
    def epoch(self) -> int: ...
    def ask(self, call: Callable[[], QueryAnswer], /) -> QueryAnswer: ...


@attrs.frozen
class Found:
    """The prompt is cached from `first_tokens` (where the query began) to `end_tokens`."""

    first_tokens: int
    end_tokens: int
    lease: bytes = attrs.field(default=b"", repr=False)
    hits: tuple[int, ...] = ()
    """Leased pages per part: the last ones before the end."""


@attrs.define
class Lookup:
    """Where the lookup of one request stands."""

    request: str
    """As the manager is told."""
    attempt: int = 0
    revision: int = 0
    first_tokens: int = 0
    operation: bytes = attrs.field(default=b"", repr=False)
    """Handle of the open operation; empty when none is."""
    found: Found | None = None
    asked: bool = False
    """Under this attempt."""
    told_attempt: int = 0
    """The attempt that was asked last: which one a later stage of the request belongs to."""
    epoch: int = 0
    """Of the link, when it was asked: what an earlier connection said is worth nothing."""


Parts = Callable[[int], list[QueryPart]]
"""From a boundary in tokens to what is asked behind it."""


class Lookups:
    def __init__(self, client: AskingClient, link: Asks, counts: Counts) -> None:
        self._client = client
        self._link = link
        self._counts = counts
        self._open: set[str] = set()
        """Requests with an open operation."""

    @property
    def epoch(self) -> int:
        """Of the link to the manager."""
        return self._link.epoch

    def advance(self, lookup: Lookup, parts: Parts, local_tokens: int) -> Found | None:
        """What the manager has behind the first `local_tokens`; None: ask again later.

        `local_tokens` is a boundary at which pages of all groups end.
        """
        if lookup.epoch != self._link.epoch:
            self._forget(lookup)
        found = lookup.found
        if found is not None and found.first_tokens <= local_tokens:
            if found.lease and found.end_tokens <= local_tokens:
                self.cancel(lookup)  # others have brought the prefix meanwhile
                lookup.found = Found(local_tokens, local_tokens)
            return lookup.found
        if not self._link.up:
            return Found(local_tokens, local_tokens)
        try:
            return self._ask(lookup, parts, local_tokens)
        except OrbitError:
            self._counts.add(lookups_unanswered=1)
            self._forget(lookup)
            lookup.found = Found(local_tokens, local_tokens)
            return lookup.found

    def cancel(self, lookup: Lookup) -> None:
        """Interest is gone. Harmless when nothing is open; ends the lease as well."""
        operation = lookup.operation
        self._forget(lookup)
        if operation:
            self._counts.add(lookups_cancelled=1)
            self._quietly(lambda: self._client.cancel(operation))

    def taken(self, lookup: Lookup) -> bytes:
        """The scheduler has allocated for what was found: the lease is the ranks' from here on."""
        found = lookup.found
        assert found is not None and found.lease
        self._forget(lookup)
        return found.lease

    def release(self, lease: bytes) -> None:
        """Ranks that have not begun with it will not."""
        self._quietly(lambda: self._client.release(lease))

    # --- asking ---------------------------------------------------------------------------------------

    def _ask(self, lookup: Lookup, parts: Parts, local_tokens: int) -> Found | None:
        if lookup.operation and lookup.first_tokens <= local_tokens:
            operation = lookup.operation
            return self._take(lookup, self._link.ask(lambda: self._client.poll(operation)))
        asked = parts(local_tokens)
        if not asked:
            lookup.found = Found(local_tokens, local_tokens)
            return lookup.found
        if not lookup.operation and len(self._open) >= OPEN_MAX:
            return None
        if lookup.operation:
            lookup.revision += 1  # the prefix in GPU memory has shrunk: the same request, other pages
        else:
            self._forget(lookup)
        lookup.found = None
        lookup.first_tokens = local_tokens
        lookup.asked, lookup.told_attempt = True, lookup.attempt
        self._counts.add(lookups=1)
        name, attempt, revision = lookup.request, lookup.attempt, lookup.revision
        return self._take(lookup, self._link.ask(lambda: self._client.query(name, attempt, asked, revision)))

    def _take(self, lookup: Lookup, answer: QueryAnswer) -> Found | None:
        first = lookup.first_tokens
        lookup.epoch = self._link.epoch
        match answer.status:
            case QueryStatus.LOADING:
                self._opened(lookup, answer)
            case QueryStatus.READY:
                self._opened(lookup, answer)
                lookup.found = Found(first, first + answer.boundary_tokens, answer.lease, answer.hits)
            case QueryStatus.BUSY if self._open - {lookup.request}:
                self._forget(lookup)  # room comes free as the others are let in
            case _:
                # Missed; or too large; or not answered in its lifetime: who waited that long waits no longer.
                self._forget(lookup)
                lookup.found = Found(first, first)
        return lookup.found

    def _opened(self, lookup: Lookup, answer: QueryAnswer) -> None:
        lookup.operation = answer.operation
        self._open.add(lookup.request)

    def _forget(self, lookup: Lookup) -> None:
        """Whatever was asked is over: the next question is another one."""
        self._open.discard(lookup.request)
        lookup.attempt += lookup.asked
        lookup.asked = False
        lookup.revision = 0
        lookup.operation = b""
        lookup.found = None
        lookup.epoch = self._link.epoch

    def _quietly(self, call: Callable[[], bool]) -> None:
        if not self._link.up:
            return  # what this session had asked for ended with its connection
        try:
            self._link.ask(call)  # type: ignore[arg-type]  # whatever is answered is not looked at
        except OrbitError:
            return
