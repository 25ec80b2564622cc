"""When a transfer of the pretended SSD goes wrong, and how."""

import random
from collections import deque
from collections.abc import Mapping
from typing import TypeVar

from orbitkv.events.outcomes import ReadOutcome, WriteOutcome

Outcome = TypeVar("Outcome", ReadOutcome, WriteOutcome)


class StoreFaults:
    """Outcomes other than success: scripted by slot first, else drawn with fixed probabilities."""

    def __init__(
        self,
        seed: int = 0,
        reads: Mapping[ReadOutcome, float] | None = None,
        writes: Mapping[WriteOutcome, float] | None = None,
    ) -> None:
        self._random = random.Random(seed)
        self._reads = dict(reads or {})
        self._writes = dict(writes or {})
        self._scripted_reads: dict[int, deque[ReadOutcome]] = {}
        self._scripted_writes: dict[int, deque[WriteOutcome]] = {}

    def script_read(self, slot: int, *outcomes: ReadOutcome) -> None:
        """The next reads of this slot end so, one after the other; later ones are honest again."""
        self._scripted_reads.setdefault(slot, deque()).extend(outcomes)

    def script_write(self, slot: int, *outcomes: WriteOutcome) -> None:
        self._scripted_writes.setdefault(slot, deque()).extend(outcomes)

    def next_read(self, slot: int) -> ReadOutcome:
        if self._scripted_reads.get(slot):
            return self._scripted_reads[slot].popleft()
        return self._draw(self._reads, ReadOutcome.WHOLE)

    def next_write(self, slot: int) -> WriteOutcome:
        if self._scripted_writes.get(slot):
            return self._scripted_writes[slot].popleft()
        return self._draw(self._writes, WriteOutcome.WRITTEN)

    def _draw(self, probabilities: Mapping[Outcome, float], success: Outcome) -> Outcome:
        if probabilities:
            drawn = self._random.random()
            for outcome, probability in probabilities.items():
                drawn -= probability
                if drawn < 0:
                    return outcome
        return success
