"""The audit of operations where it is easily unjust: shared charges, and a log whose beginning is gone."""

from pathlib import Path

import pytest

from orbitkv.events import facts
from replay.auditor import audit_log
from tests.log.simulated import simulated_records
from tests.log.test_audit_clean import begun_late, blamed
from tests.log.test_audit_lies import LIES

SHARING_SEEDS = (5, 13)
INVARIANTS = (
    *(
        "chain",
        "sessions",
        "operation_order",
        "operation_limits",
        "waiting",
        "hint_skips",
        "endings",
        "lifetimes",
    ),
    *("leases", "copy_holds", "restores", "reservation_amounts", "reservation_limits"),
)
LIES_MIN = 2


@pytest.mark.parametrize("seed", SHARING_SEEDS)
def test_who_stands_in_line_may_have_come_before_the_log(tmp_path: Path, seed: int) -> None:
    incarnations = simulated_records(seed, 800)
    grown = [
        event
        for records in incarnations
        for record in records
        for event in record.events
        if isinstance(event, facts.ReservationGrown)
    ]
    assert grown, "in this run nobody takes over a charge; take another seed"
    assert blamed(audit_log(begun_late(tmp_path, incarnations, 7))) == []


@pytest.mark.parametrize("name", INVARIANTS)
def test_every_invariant_is_proven_by_lies(name: str) -> None:
    assert sum(invariant == name for invariant, _ in LIES.values()) >= LIES_MIN
