"""The requests that wait to be let in, in the order in which they are considered."""

from bisect import insort
from collections.abc import Iterator

from orbitkv.adapters.embedded.requests import EngineRequest


class WaitingQueue:
    """By priority, then by arrival."""

    def __init__(self) -> None:
        self._requests: list[EngineRequest] = []

    def add(self, request: EngineRequest) -> None:
        insort(self._requests, request, key=lambda one: one.priority)

    def first(self, count: int) -> list[EngineRequest]:
        """The requests to consider now; a copy, so that they may leave meanwhile."""
        return self._requests[:count]

    def remove(self, request: EngineRequest) -> None:
        self._requests.remove(request)

    def __contains__(self, request: EngineRequest) -> bool:
        return request in self._requests

    def __iter__(self) -> Iterator[EngineRequest]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)
