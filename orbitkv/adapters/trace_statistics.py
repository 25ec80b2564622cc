"""The figures by which a trace's reuse is judged, computed one way for real and generated traces.

A *block hit* is a block whose id an earlier request of the trace had too. Blocks of a prompt are
reused from the front only, because an id stands for its whole prefix. One id that every request
begins with (a system prompt) says nothing about reuse, so a request counts as *sharing* only from
its second reused block on.
"""

from collections.abc import Iterable, Sequence

import attrs

from orbitkv.adapters.trace import BLOCK_TOKENS, TraceRequest


@attrs.frozen
class TraceStatistics:
    requests: int
    reused_blocks_share: float
    """Block hits over all blocks."""
    sharing_requests_share: float
    """Requests with at least two block hits, over all requests."""
    continued_share: float
    """Requests that repeat every full block of an earlier prompt, over the sharing ones."""
    input_tokens: tuple[int, ...]
    """Quantiles QUANTILES."""
    output_tokens: tuple[int, ...]
    reuse_gap_ms: tuple[int, ...]
    """Time from the earlier request to the one that shares its deepest block; quantiles."""
    reuse_distance_requests: tuple[int, ...]
    """Requests between two uses of a block, the common first block left out; quantiles."""
    turns: tuple[float, ...]
    """Share of conversations with at least 1, 2, 3, 4, 5 turns."""
    arrivals_per_second: float


QUANTILES = (0.10, 0.25, 0.50, 0.75, 0.90)


def quantiles(values: Sequence[int], at: Sequence[float] = QUANTILES) -> tuple[int, ...]:
    """The values at these ranks, 0 for an empty sequence."""
    ordered = sorted(values)
    if not ordered:
        return tuple(0 for _ in at)
    return tuple(ordered[min(len(ordered) - 1, int(rank * len(ordered)))] for rank in at)


def measure(requests: Iterable[TraceRequest]) -> TraceStatistics:
    """Walk the trace once. Memory grows with its distinct blocks."""
    walk = _Walk()
    for request in requests:
        walk.take(request)
    return walk.result()


class _Walk:
    def __init__(self) -> None:
        self.owner: dict[int, int] = {}
        """block id -> index of the last request that had it"""
        self.requests: list[TraceRequest] = []
        self.turn: list[int] = []
        self.blocks = self.hits = self.sharing = self.continued = 0
        self.gaps: list[int] = []
        self.distances: list[int] = []
        self.turns_reached: dict[int, int] = {}

    def take(self, request: TraceRequest) -> None:
        number = len(self.requests)
        reused = [self.owner[block] for block in request.hash_ids if block in self.owner]
        self.blocks += len(request.hash_ids)
        self.hits += len(reused)
        turn = self._turn_after(request, reused) if len(reused) > 1 else 1
        self.turns_reached[turn] = self.turns_reached.get(turn, 0) + 1
        self.distances.extend(number - earlier for earlier in reused[1:])
        self.requests.append(request)
        self.turn.append(turn)
        self.owner.update(dict.fromkeys(request.hash_ids, number))

    def _turn_after(self, request: TraceRequest, reused: list[int]) -> int:
        parent = self.requests[reused[-1]]
        self.sharing += 1
        self.gaps.append(request.timestamp - parent.timestamp)
        if len(reused) < parent.input_length // BLOCK_TOKENS:
            return 1
        self.continued += 1
        return self.turn[reused[-1]] + 1

    def result(self) -> TraceStatistics:
        count = len(self.requests)
        span_ms = self.requests[-1].timestamp - self.requests[0].timestamp if count else 0
        first = max(1, self.turns_reached.get(1, 0))
        return TraceStatistics(
            requests=count,
            reused_blocks_share=self.hits / max(1, self.blocks),
            sharing_requests_share=self.sharing / max(1, count),
            continued_share=self.continued / max(1, self.sharing),
            input_tokens=quantiles([request.input_length for request in self.requests]),
            output_tokens=quantiles([request.output_length for request in self.requests]),
            reuse_gap_ms=quantiles(self.gaps),
            reuse_distance_requests=quantiles(self.distances),
            turns=tuple(self.turns_reached.get(turn, 0) / first for turn in range(1, 6)),
            arrivals_per_second=count * 1000 / max(1, span_ms),
        )
