"""Requests that have had their first token and produce the others: nothing but time passes for them."""

import heapq
from collections.abc import Iterator
from itertools import count

from orbitkv.adapters.embedded.requests import EngineRequest


class Decoding:
    def __init__(self) -> None:
        self._ends: list[tuple[int, int, EngineRequest]] = []
        """Heap of (end of its last token in ns, running number, request)."""
        self._numbered = count()

    @property
    def next_end_ns(self) -> int | None:
        return self._ends[0][0] if self._ends else None

    def add(self, request: EngineRequest, end_ns: int) -> None:
        heapq.heappush(self._ends, (end_ns, next(self._numbered), request))

    def ended(self, now_ns: int) -> Iterator[EngineRequest]:
        """Those whose last token is out; each is given once."""
        while self._ends and self._ends[0][0] <= now_ns:
            yield heapq.heappop(self._ends)[2]

    def remove(self, request: EngineRequest) -> None:
        self._ends = [end for end in self._ends if end[2] is not request]
        heapq.heapify(self._ends)

    def __contains__(self, request: EngineRequest) -> bool:
        return any(end[2] is request for end in self._ends)

    def __iter__(self) -> Iterator[EngineRequest]:
        return (request for _, _, request in self._ends)

    def __len__(self) -> int:
        return len(self._ends)
