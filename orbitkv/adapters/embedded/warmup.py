"""Hints: telling the manager, when a request is queued, which pages its query will ask for.

Only a telling: nothing waits for it, nothing is promised by it, and a request is served the same without.
The keys are exactly those that the request's query would name at this moment, the final full page
included; whether that still holds is found out when it is scheduled, by the query itself. The client
withdraws a hint before its request's query. What ends in the queue without one is withdrawn here.
"""

from collections.abc import Sequence
from typing import Protocol

from orbitkv.adapters.embedded.messages import EngineReport
from orbitkv.adapters.embedded.requests import EngineRequest


class Hinter(Protocol):
    """A session of the manager's client, as far as hints need it. Neither call waits or raises."""

    def hint(self, request: str, attempt: int, keys: Sequence[bytes]) -> bool:
        """Whether it was sent."""

    def cancel_hint(self, request: str, attempt: int) -> bool:
        """Whether one was out."""


class Warmup:
    def __init__(self, hinter: Hinter, report: EngineReport) -> None:
        self._hinter = hinter
        self._report = report

    def announce(self, request: EngineRequest, local_pages: int) -> None:
        """`local_pages`: leading pages that GPU memory has, of those that may come from a cache."""
        if local_pages >= request.limit_pages:
            self._report.hints_spared += 1  # no query would be sent
        elif self._hinter.hint(request.name, request.lookup.attempt, request.keys[local_pages:]):
            self._report.hints_sent += 1
        else:
            self._report.hints_unsent += 1

    def withdraw(self, request: EngineRequest) -> None:
        """The request needs no query any more, or has ended. Doing it twice is harmless."""
        if self._hinter.cancel_hint(request.name, request.lookup.attempt):
            self._report.hints_withdrawn += 1
