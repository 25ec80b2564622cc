"""charge = shared: a physical page is charged once, and passing the charge on never overruns a budget."""

import attrs
import pytest

from orbitkv.events import commands, facts
from orbitkv.events.commands import Command
from orbitkv.events.config import MIB, KernelConfig
from orbitkv.events.geometry import GroupGeometry, SliceGeometry
from orbitkv.events.outcomes import Phase, SyncOutcome
from orbitkv.events.record import Record
from orbitkv.manager.kernel import (
    KERNEL_REVISION,
    State,
    check,
    digest,
    fold,
    new_state,
    restore,
    snapshot,
    step,
    views,
)
from orbitkv.manager.kernel.columns import pack

PAGE_BYTES = 64 << 10
KEYS = [bytes([number]) * 16 for number in range(12)]


@attrs.define
class Manager:
    charge: str
    budget_pages: int = 16
    state: State = attrs.field(init=False)
    records: list[Record] = attrs.field(factory=list)
    tickets: int = 0

    def __attrs_post_init__(self) -> None:
        self.state = new_state()
        budget = self.budget_pages * PAGE_BYTES
        config = KernelConfig(
            pool_bytes=16 * MIB,
            superblock_bytes=2 * MIB,
            query_budget_bytes=budget,
            instance_query_budget_bytes=budget,
            ssd_bytes=32 * MIB,
            ssd_segment_bytes=8 * MIB,
            charge=self.charge,
        )
        self.do(commands.Start(1, KERNEL_REVISION, config))
        self.do(commands.OpenSession(1, 1, 1, 0, True))
        groups = (GroupGeometry(0, 64, (SliceGeometry("all", PAGE_BYTES),)),)
        self.do(commands.RegisterRank(1, "engine", 0, 1, "", bytes(16), "{}", False, groups, MIB))
        pages, unknown = views.resolve_keys(self.state, 0, KEYS)
        begin = commands.BeginSave(1, 0, pages, unknown)
        self.do(begin)
        plan = views.save_plan(self.state, begin)
        buffers = pack(plan)
        generations = views.generations(self.state, plan)
        self.do(commands.CommitSave(1, buffers, bytes(8 * len(plan)), generations))
        self.do(commands.CompleteCopies(1, 0, buffers, bytes(len(plan)), 1))
        self.do(commands.CompleteSeals(buffers))
        slots = list(self.state.writing)
        self.do(commands.CompleteWrites(pack(slots), bytes(len(slots)), bytes(4 * len(slots))))

    def do(self, command: Command) -> list[facts.Event]:
        outcome = step(self.state, self.state.at_ns + 1000, command)
        check(self.state)
        if not isinstance(outcome, Record):
            return []
        self.records.append(outcome)
        return list(outcome.events)

    def _parts(self, first: int, last: int) -> tuple[commands.QueryPart, ...]:
        pages, unknown = views.resolve_keys(self.state, 0, KEYS[first:last])
        return (commands.QueryPart(0, 64, 0, pages, unknown),)

    def ask(self, first: int, last: int) -> int:
        self.tickets += 1
        request = f"request {self.tickets}"
        self.do(commands.SubmitQuery(1, request, 0, self.tickets, 0, self._parts(first, last)))
        return 1 << 32 | self.tickets

    def hint(self, first: int, last: int) -> int:
        self.tickets += 1
        request = f"request {self.tickets}"
        self.do(commands.WarmPrefix(1, request, 0, self.tickets, 0, self._parts(first, last)))
        return 1 << 32 | self.tickets

    def cancel(self, operation: int) -> None:
        self.do(commands.CancelQuery(1, operation))

    def land(self) -> None:
        reads = [number for number, read in self.state.reads.items() if read.submitted]
        count = len(reads)
        self.do(commands.CompleteReads(pack(reads), bytes(count), pack([1] * count), pack([1] * count)))

    @property
    def reserved_pages(self) -> float:
        return self.state.reserved_bytes / PAGE_BYTES


@pytest.mark.parametrize(("charge", "pages"), [("owner", 8 + 6), ("shared", 8)])
def test_pages_of_two_queries_are_charged_by_mode(charge: str, pages: int) -> None:
    manager = Manager(charge)
    manager.ask(0, 8)
    manager.ask(2, 8)
    assert manager.reserved_pages == pages


def test_the_next_in_line_pays_when_the_first_lets_go() -> None:
    manager = Manager("shared")
    first = manager.ask(0, 8)
    second = manager.ask(0, 10)
    assert manager.reserved_pages == 10
    assert manager.state.reservations[second].charge_bytes == 2 * PAGE_BYTES
    manager.cancel(first)
    assert manager.reserved_pages == 10
    assert manager.state.reservations[second].charge_bytes == 10 * PAGE_BYTES
    manager.cancel(second)
    assert manager.reserved_pages == 0
    assert not manager.state.claims


def test_sharing_admits_what_owners_would_wait_for() -> None:
    shared, owner = Manager("shared", budget_pages=12), Manager("owner", budget_pages=12)
    for manager in (shared, owner):
        manager.ask(0, 8)
        manager.ask(0, 8)
    assert not shared.state.waiting
    assert len(owner.state.waiting) == 1


def test_a_budget_is_not_overrun_by_passing_on() -> None:
    manager = Manager("shared", budget_pages=12)
    operations = [manager.ask(0, 12), manager.ask(0, 6), manager.ask(4, 12), manager.ask(0, 12)]
    for operation in operations:
        manager.cancel(operation)
    assert manager.reserved_pages == 0


def test_cancelled_reads_keep_their_charge_until_they_drain() -> None:
    manager = Manager("shared")
    manager.do(commands.DropDram())
    operation = manager.ask(0, 4)
    other = manager.ask(0, 2)
    assert manager.reserved_pages == 4
    manager.cancel(operation)
    assert manager.reserved_pages == 4, "its reads are in flight"
    manager.land()
    assert manager.reserved_pages == 2, "what the other one leased"
    manager.cancel(other)
    assert manager.reserved_pages == 0


def test_hints_and_demand_pay_apart() -> None:
    manager = Manager("shared")
    manager.do(commands.DropDram())
    manager.hint(0, 3)
    manager.hint(0, 4)
    assert manager.state.reserved_by_phase[Phase.WARMING] == 4 * PAGE_BYTES
    manager.ask(0, 4)
    assert manager.reserved_pages == 8
    manager.land()
    assert manager.reserved_pages == 4
    assert manager.state.reserved_by_phase[Phase.WARMING] == 0


def test_a_lease_whose_pages_another_pays_for_lives_on() -> None:
    manager = Manager("shared")
    first = manager.ask(0, 4)
    second = manager.ask(0, 4)
    lease = views.query_view(manager.state, second).lease
    assert manager.state.reservations[second].charge_bytes == 0
    manager.do(commands.BeginRestore(1, lease))
    manager.cancel(first)
    assert manager.state.reservations[second].charge_bytes == 4 * PAGE_BYTES
    manager.do(commands.ReportSync(1, lease, SyncOutcome.SUCCEEDED, ((0, 4),), 1, 1, 1))
    assert manager.reserved_pages == 0


def test_the_log_alone_rebuilds_the_lines() -> None:
    manager = Manager("shared")
    first = manager.ask(0, 8)
    manager.ask(0, 10)
    folded = new_state()
    for record in manager.records:
        fold(folded, record)
    assert digest(folded) == digest(manager.state) == digest(restore(snapshot(manager.state)))
    again = restore(snapshot(manager.state))
    for state in (folded, again):
        step(state, manager.state.at_ns + 1000, commands.CancelQuery(1, first))
        check(state)
    assert digest(folded) == digest(again)
