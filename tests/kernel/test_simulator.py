"""Seeded runs of the simulator with the observer beside them, and what must not make a difference to them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbitkv.events import commands
from orbitkv.events.record import Record
from orbitkv.manager.kernel import State, digest, new_state, step
from replay.simulate.faults import MEANINGS, MOVES, Faults
from replay.simulate.outcome import Outcome
from replay.simulate.simulation import Simulation
from tests.models.observer import Observer

STEPS = 900


class Watch:
    """One observer for each incarnation, and checks after every record."""

    def __init__(self) -> None:
        self.observer = Observer()
        self.simulation: Simulation | None = None
        self.records: list[Record] = []

    def __call__(self, record: Record) -> None:
        if isinstance(record.cause, commands.Start):
            self.observer, self.records = Observer(), []
        self.records.append(record)
        self.observer.observe(record)
        self.observer.check()
        closing = isinstance(record.cause, commands.CloseIncarnation)
        if self.simulation is not None and not closing:
            self._compare(self.simulation.state)

    def lose(self, first_seq: int) -> None:
        """The log's end is gone: what an observer of the rest knows goes on from there."""
        del self.records[first_seq - 1 :]
        self.observer = Observer()
        for record in self.records:
            self.observer.observe(record)
            self.observer.check()

    def _compare(self, state: State) -> None:
        """The kernel's cohort totals are those that the observer counted from the facts."""
        books, totals = self.observer.books, state.totals
        assert totals.prepared_bytes == books.prepared_bytes
        assert totals.restored_bytes == books.restored_bytes
        assert totals.unused_bytes == books.unused_bytes
        assert state.pending_bytes == books.pending_bytes()
        assert totals.restored_wait_kib_us == books.restored_wait_kib_us
        assert totals.unused_wait_kib_us == books.unused_wait_kib_us


def run(
    seed: int,
    steps: int = STEPS,
    *,
    careful: bool = False,
    renewed: bool = False,
    faults: Faults | None = None,
) -> Outcome:
    watch = Watch()
    simulation = Simulation(
        seed, faults=faults, careful=careful, renewed=renewed, on_record=watch, on_lost=watch.lose
    )
    watch.simulation = simulation
    outcome = simulation.run(steps)
    watch.observer.check_drained()
    return outcome


@pytest.mark.parametrize("seed", range(40))
def test_every_record_obeys_the_contract(seed: int) -> None:
    outcome = run(seed)
    assert outcome.records > 60
    assert len(outcome.tail) == 20


@pytest.mark.parametrize("seed", range(400, 412))
def test_also_with_all_kinds_of_trouble_at_once(seed: int) -> None:
    assert len(run(seed, 2 * STEPS, faults=Faults()).faults) > 12


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_longer_stories_obey_the_contract(seed: int) -> None:
    run(seed, 3000)


@pytest.mark.parametrize("kind", MEANINGS)
def test_every_kind_of_trouble_strikes_and_is_survived_alone(kind: str) -> None:
    """A kind that no seed brings about would be a dead word; ten seeds are more than enough for each."""
    struck = 0
    for seed in range(500, 510):
        faults = Faults.of([kind], seed)
        setattr(faults, kind, 0.02 if kind in MOVES else 0.3)
        if kind == "twice_on_disk":
            faults.crashed = 0.005
        outcome = run(seed, 3 * STEPS if kind == "retired" else 500, faults=faults)
        struck += outcome.faults.get(kind, 0)
        if struck:
            return
    raise AssertionError(f"{kind} struck in none of the runs")


def test_without_trouble_nothing_fails_on_the_ssd() -> None:
    for seed in range(600, 606):
        outcome = run(seed, faults=Faults.none())
        assert not outcome.faults
        assert outcome.incarnations == 1
        assert {"ReadsFailed", "WritesFailed", "SlotsQuarantined", "StaleCompletion"}.isdisjoint(
            outcome.facts
        )


@pytest.mark.parametrize("seed", range(100, 104))
def test_a_command_without_a_record_changes_nothing(seed: int) -> None:
    outcome = run(seed, careful=True, faults=Faults())
    assert outcome.refused > 2
    assert outcome.answers > 5


@pytest.mark.parametrize("seed", range(200, 204))
def test_going_on_from_snapshots_changes_nothing(seed: int) -> None:
    assert run(seed, renewed=True) == run(seed)


def decide_again(state: State, record: Record) -> Record:
    decided = step(state, record.at_ns, record.cause)
    assert isinstance(decided, Record)
    return decided


@pytest.mark.parametrize("seed", range(300, 304))
def test_the_same_causes_are_decided_alike(seed: int) -> None:
    """From the log's bytes alone: every cause, stepped again, makes the record that the log holds."""
    faults = Faults()
    faults.retired = 0.0
    simulation = Simulation(seed, crashes=False, faults=faults)
    simulation.run(STEPS)
    state = new_state()
    records = list(simulation.log.records())
    assert len(records) == simulation.outcome.records + 1
    for record in records[:-1]:
        assert decide_again(state, record) == record
    assert digest(state) == digest(simulation.state)


_WRITE = """
import sys
from pathlib import Path

from replay.simulate.simulation import Simulation
from replay.simulate.faults import Faults
from replay.simulate.simulated_log import SimulatedLog

log = SimulatedLog({seed}, Path(sys.argv[1]))
Simulation({seed}, faults=Faults(), log=log).run({steps})
log.close()
"""


def test_one_seed_writes_one_log_whatever_the_hash_seed_and_locale(tmp_path: Path) -> None:
    logs = []
    for name, locale in (("0", "C"), ("4242", "C.UTF-8"), ("random", "C")):
        environment = {**os.environ, "PYTHONHASHSEED": name, "LC_ALL": locale}
        directory = tmp_path / name
        subprocess.run(
            [sys.executable, "-c", _WRITE.format(seed=7, steps=4 * STEPS), str(directory)],
            env=environment,
            check=True,
        )
        logs.append({path.name: path.read_bytes() for path in directory.iterdir()})
    assert len(logs[0]) > 3
    assert logs[0] == logs[1] == logs[2]


def test_another_seed_tells_another_story() -> None:
    assert run(1).digest != run(2).digest


def test_a_fault_in_the_kernel_is_caught_at_the_record_that_breaks_the_rule() -> None:
    """The cheap checks look after every record, not only when everything is checked."""
    simulation = Simulation(11, faults=Faults.none())
    for _ in range(300):
        simulation.one_step()
    simulation.state.totals.prepared_bytes += 4096
    with pytest.raises(AssertionError, match="prepared = restored"):
        simulation.drain()
