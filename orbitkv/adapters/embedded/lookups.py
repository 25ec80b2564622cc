"""Asking the manager what it has of a waiting request's prompt.

One `Lookup` per request keeps where its query stands; `Lookups` moves it on. A manager that does not
answer, an operation that ended, a budget that is too small: each is a miss, never an error of the
engine. Nothing here decides whether a result is let in.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs

from orbitkv.io.wire import QueryStatus

ATTEMPTS_MAX = 3
"""A query that retired (its lease ran out, the manager restarted) is asked anew so often."""


class Answer(Protocol):
    """The part of the client's answer that is used here."""

    @property
    def status(self) -> QueryStatus: ...
    @property
    def operation(self) -> bytes: ...
    @property
    def lease(self) -> bytes: ...
    @property
    def hits(self) -> tuple[int, ...]: ...


class Asker(Protocol):
    """A session of the manager's client, as far as a scheduler needs it. Failures are `failures`."""

    failures: tuple[type[Exception], ...]

    def query(self, request: str, attempt: int, keys: Sequence[bytes], revision: int) -> Answer: ...
    def poll(self, operation: bytes) -> Answer: ...
    def cancel(self, operation: bytes) -> None: ...
    def release(self, lease: bytes) -> None: ...
    def report_stage(self, request: str, attempt: int, stage: str) -> None: ...


@attrs.frozen
class Found:
    """The manager's answer: pages first .. end of the prompt are leased (none when first == end)."""

    first: int
    end: int
    lease: bytes = b""


@attrs.define
class Lookup:
    """Where the query of one request stands."""

    request: str
    attempt: int = 0
    revision: int = 0
    first: int = 0
    """Page of the prompt at which the query begins."""
    operation: bytes = b""
    """Handle of the open operation; empty when none is."""
    found: Found | None = None


@attrs.define
class LookupCounts:
    revisions: int = 0
    cancelled: int = 0
    failures: int = 0


class Lookups:
    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self.counts = LookupCounts()

    def advance(self, lookup: Lookup, keys: Sequence[bytes], local_pages: int) -> Found | None:
        """What the manager has behind the first `local_pages` of `keys`; None: ask again later."""
        try:
            return self._advance(lookup, keys, local_pages)
        except self._asker.failures:
            self.counts.failures += 1
            self._forget(lookup)
            lookup.found = Found(local_pages, local_pages)
            return lookup.found

    def cancel(self, lookup: Lookup) -> None:
        """Interest is gone: GPU memory has the prefix by now, or the request has ended."""
        if not lookup.operation:
            return
        self.counts.cancelled += 1
        self._quietly(self._asker.cancel, lookup.operation)
        self._forget(lookup)

    def release(self, lookup: Lookup) -> None:
        """The answer is not worth a restore: give its lease back, and remember that there is nothing."""
        found = lookup.found
        assert found is not None
        if found.lease:
            self._quietly(self._asker.release, found.lease)
        lookup.operation = b""
        lookup.found = Found(found.end, found.end)

    def report_stage(self, lookup: Lookup, stage: str) -> None:
        """A fact for the log; losing it loses nothing else."""
        try:
            self._asker.report_stage(lookup.request, lookup.attempt, stage)
        except self._asker.failures:
            self.counts.failures += 1

    def _advance(self, lookup: Lookup, keys: Sequence[bytes], local_pages: int) -> Found | None:
        if lookup.found is not None and lookup.found.first <= local_pages:
            return lookup.found
        if lookup.operation and local_pages < lookup.first:
            lookup.revision += 1
            self.counts.revisions += 1
        elif lookup.operation:
            return self._take(lookup, self._asker.poll(lookup.operation))
        elif lookup.found is not None:
            lookup.attempt += 1  # its operation has ended; this is another question
        lookup.first = local_pages
        lookup.found = None
        answer = self._asker.query(lookup.request, lookup.attempt, keys[local_pages:], lookup.revision)
        return self._take(lookup, answer)

    def _take(self, lookup: Lookup, answer: Answer) -> Found | None:
        match answer.status:
            case QueryStatus.LOADING:
                lookup.operation = answer.operation
            case QueryStatus.READY:
                lookup.operation = answer.operation
                lookup.found = Found(lookup.first, lookup.first + answer.hits[0], answer.lease)
            case QueryStatus.MISSED | QueryStatus.BYPASSED:
                self._forget(lookup)
                lookup.found = Found(lookup.first, lookup.first)
            case QueryStatus.BUSY:
                self._forget(lookup)
            case QueryStatus.RETIRED:
                self._ask_anew(lookup)
        return lookup.found

    def _ask_anew(self, lookup: Lookup) -> None:
        self._forget(lookup)
        lookup.attempt += 1
        lookup.revision = 0
        if lookup.attempt >= ATTEMPTS_MAX:
            lookup.found = Found(lookup.first, lookup.first)

    def _forget(self, lookup: Lookup) -> None:
        lookup.operation = b""
        lookup.found = None

    def _quietly(self, call: Callable[[bytes], None], handle: bytes) -> None:
        try:
            call(handle)
        except self._asker.failures:
            self.counts.failures += 1
