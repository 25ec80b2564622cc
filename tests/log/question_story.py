"""A story in which every question of `replay/QUESTIONS.md` has an answer: budgets are small, leases short.

The log in `tests/log/sample` is `scarce_records(4, 1200)`, as the simulator was when it was recorded: one
segment for each incarnation, compressed. It is not written anew when the simulator changes, so the answers
on the page stay true.
"""

import msgspec

from orbitkv.events.config import SECOND_NS
from orbitkv.events.record import Record
from tests.log.hinting import Hinting


class Scarce(Hinting):
    """The story of hints, with demands that wait for their budget and leases that are overdue."""

    def _start(self) -> None:
        pool_bytes = self.config.pool_bytes
        self.config = msgspec.structs.replace(
            self.config,
            query_budget_bytes=pool_bytes * 3 // 4,
            instance_query_budget_bytes=pool_bytes // 2,
            lease_lifetime_ns=3 * SECOND_NS,
        )
        super()._start()


def scarce_records(seed: int, steps: int) -> list[list[Record]]:
    """The records of each incarnation."""
    incarnations: list[list[Record]] = []

    def keep(record: Record) -> None:
        if record.seq == 1:
            incarnations.append([])
        incarnations[-1].append(record)

    Scarce(seed, keep).run(steps)
    return incarnations
