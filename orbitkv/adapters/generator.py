"""A seeded stream of requests shaped like a real conversation service, for runs without a trace.

Conversations of several turns, each turn repeating the whole prompt before it; branches, which share
only the front of an earlier prompt (an edited message, a common document); one system block that
every request begins with. The constants are fitted to the Mooncake conversation trace (12,031
requests in 59 minutes, published with https://github.com/kvcache-ai/Mooncake, `conversation_trace.jsonl`;
Qin et al., "Mooncake: A KVCache-centric Disaggregated Architecture for LLM Serving"), measured with
`orbitkv.adapters.trace_statistics`:

- 36.6 % of its blocks were seen before; 38.7 % of its requests share more than the system block,
  85 % of those repeat an earlier prompt whole, the others 5 to 94 % of its blocks;
- a prompt comes back after 42 s (p10), 123 s (p50), 483 s (p90); a block after 147, 461 and 1,841
  requests: far beyond what GPU memory holds;
- 25 % of conversations have a second turn, 39 % of those a third, 49 % of those a fourth, ...;
- requests arrive every 3 s in bunches of 10.2 on average.

Same seed, same stream, on every machine and Python version. Nothing here looks at a real trace.
"""

import bisect
import heapq
import math
import random
from collections.abc import Iterator

import attrs

from orbitkv.adapters.trace import BLOCK_TOKENS, TraceRequest

TICK_MS = 3000
"""The trace's timestamps come in steps of 3 s."""
OPENINGS_PER_TICK = 6.2
"""7,373 requests in 1,180 ticks share nothing but the system block; 6.25, less those that repeat a
prompt of a single block."""
CONTINUES = (0.295, 0.425, 0.52, 0.58, 0.62, 0.66, 0.70)
"""Chance of another turn after turn 1, 2, ..., the last for all later ones. Measured: 0.253, 0.387,
0.492, 0.559, 0.608, 0.652, then about 0.7; raised by the turns that fall beyond the end of an hour
and by those too short to be seen as a repetition."""
BRANCHES = 0.068
"""699 branches for 12,031 requests (0.058), raised for the same reasons."""
TOKENS_MAX = 126_195

# Quantile functions: the values at RANKS, interpolated between them on a logarithmic scale.
RANKS = (0, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1)
OPENING_TOKENS = (890, 897, 905, 1336, 5264, 13056, 25561, 38538, 89869, 126195)
TURN_TOKENS = (8, 20, 63, 260, 471, 831, 4605, 7390, 17031, 91918)
"""Prompt tokens that a turn adds to the one before it, the answer in between included."""
BRANCH_TOKENS = (1100, 5121, 6923, 10403, 15106, 20977, 30205, 39061, 74735, 96504)
BRANCH_SHARE = (0.03, 0.054, 0.069, 0.115, 0.222, 0.469, 0.90, 0.944, 0.978, 0.993)
"""Part of the earlier prompt's full blocks that a branch repeats."""
GAP_MS = (9000, 27000, 39000, 66000, 123000, 267000, 474000, 606000, 1458000, 3030000)
"""From a prompt to the one that repeats it."""
ANSWER_TOKENS = (1, 10, 24, 156, 350, 472, 597, 698, 1120, 2000)

Quantiles = tuple[float, ...]


@attrs.frozen(order=True)
class _Due:
    """A turn or branch that will arrive; `number` keeps equal times in a fixed order."""

    at_ms: int
    number: int
    turn: int = attrs.field(order=False)
    input_length: int = attrs.field(order=False)
    shared: tuple[int, ...] = attrs.field(order=False)


def generate(seed: int) -> Iterator[TraceRequest]:
    """Yield requests without end, timestamps never falling. Take as many as wanted with `islice`."""
    stream = _Stream(random.Random(seed))
    at_ms = 0
    while True:
        yield from stream.bunch(at_ms)
        at_ms += TICK_MS


class _Stream:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._due: list[_Due] = []
        self._numbered = 0
        self._blocks = 1
        """Ids given out so far; id 0 is the system block."""

    def bunch(self, at_ms: int) -> Iterator[TraceRequest]:
        """Everything that arrives at this tick: new conversations and due turns, mixed."""
        arrivals = [self._opening(at_ms) for _ in range(_poisson(self._chance, OPENINGS_PER_TICK))]
        while self._due and self._due[0].at_ms <= at_ms:
            arrivals.append(heapq.heappop(self._due))
        self._chance.shuffle(arrivals)
        for arrival in arrivals:
            request = self._request(at_ms, arrival)
            self._plan(request, arrival.turn)
            yield request

    def _opening(self, at_ms: int) -> _Due:
        return self._numbering(at_ms, 1, self._draw(OPENING_TOKENS), (0,))

    def _request(self, at_ms: int, due: _Due) -> TraceRequest:
        tokens = min(TOKENS_MAX, due.input_length)
        blocks = -(-tokens // BLOCK_TOKENS)
        fresh = blocks - len(due.shared)
        ids = due.shared[:blocks] + tuple(range(self._blocks, self._blocks + fresh))
        self._blocks += max(0, fresh)
        return TraceRequest(at_ms, tokens, self._draw(ANSWER_TOKENS), ids)

    def _plan(self, request: TraceRequest, turn: int) -> None:
        """Decide now what will come back of this prompt, and when."""
        full = request.input_length // BLOCK_TOKENS
        if self._chance.random() < CONTINUES[min(turn, len(CONTINUES)) - 1]:
            longer = request.input_length + self._draw(TURN_TOKENS)
            self._schedule(request.timestamp, turn + 1, longer, request.hash_ids[:full])
        if full > 1 and self._chance.random() < BRANCHES:
            kept = max(2, int(full * interpolate(BRANCH_SHARE, self._chance.random())))
            tokens = max(self._draw(BRANCH_TOKENS), kept * BLOCK_TOKENS + 1)
            self._schedule(request.timestamp, 1, tokens, request.hash_ids[:kept])

    def _schedule(self, now_ms: int, turn: int, tokens: int, shared: tuple[int, ...]) -> None:
        due = self._numbering(now_ms + self._draw(GAP_MS), turn, tokens, shared or (0,))
        heapq.heappush(self._due, due)

    def _numbering(self, at_ms: int, turn: int, tokens: int, shared: tuple[int, ...]) -> _Due:
        self._numbered += 1
        return _Due(at_ms, self._numbered, turn, tokens, shared)

    def _draw(self, values: Quantiles) -> int:
        return round(interpolate(values, self._chance.random()))


def interpolate(values: Quantiles, rank: float) -> float:
    """The value at `rank` (0 to 1) of a quantile function given at RANKS."""
    above = min(bisect.bisect_right(RANKS, rank), len(RANKS) - 1)
    low, high = math.log(values[above - 1]), math.log(values[above])
    part = (rank - RANKS[above - 1]) / (RANKS[above] - RANKS[above - 1])
    return math.exp(low + part * (high - low))


def _poisson(chance: random.Random, mean: float) -> int:
    """Knuth's method: fine for small means."""
    limit, product, count = math.exp(-mean), chance.random(), 0
    while product > limit:
        product *= chance.random()
        count += 1
    return count
