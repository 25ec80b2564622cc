"""Seeded runs of the simulator with the observer beside them, and what must not make a difference to them."""

import os
import subprocess
import sys

import pytest

from orbitkv.events import commands
from orbitkv.events.codec import decode_records
from orbitkv.events.record import Record
from orbitkv.manager.kernel import State, digest, new_state, step
from replay.simulate import Outcome, Simulation
from tests.models.observer import Observer

STEPS = 900


class Watch:
    """One observer for each incarnation, and checks after every record."""

    def __init__(self) -> None:
        self.observer = Observer()
        self.simulation: Simulation | None = None

    def __call__(self, record: Record) -> None:
        if isinstance(record.cause, commands.Start):
            self.observer = Observer()
        self.observer.observe(record)
        self.observer.check()
        if self.simulation is not None and self.simulation.state.seq == record.seq:
            self._compare(self.simulation.state)

    def _compare(self, state: State) -> None:
        """The kernel's cohort totals are those that the observer counted from the facts."""
        books, totals = self.observer.books, state.totals
        assert totals.prepared_bytes == books.prepared_bytes
        assert totals.restored_bytes == books.restored_bytes
        assert totals.unused_bytes == books.unused_bytes
        assert state.pending_bytes == books.pending_bytes()
        assert totals.restored_wait_kib_us == books.restored_wait_kib_us
        assert totals.unused_wait_kib_us == books.unused_wait_kib_us


def run(seed: int, steps: int = STEPS, *, careful: bool = False, renewed: bool = False) -> Outcome:
    watch = Watch()
    simulation = Simulation(seed, careful=careful, renewed=renewed, on_record=watch)
    watch.simulation = simulation
    outcome = simulation.run(steps)
    watch.observer.check_drained()
    return outcome


@pytest.mark.parametrize("seed", range(40))
def test_every_record_obeys_the_contract(seed: int) -> None:
    outcome = run(seed)
    assert outcome.records > 100
    assert len(outcome.tail) == 20


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_longer_stories_obey_the_contract(seed: int) -> None:
    run(seed, 3000)


@pytest.mark.parametrize("seed", range(100, 104))
def test_a_command_without_a_record_changes_nothing(seed: int) -> None:
    outcome = run(seed, careful=True)
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
    frames: list[bytes] = []
    simulation = Simulation(seed, crashes=False, write=frames.append)
    simulation.run(STEPS)
    state = new_state()
    for frame in frames:
        for record in decode_records(frame):
            assert decide_again(state, record) == record
    assert digest(state) == digest(simulation.state)


_TELL = "from replay.simulate import Simulation; print(Simulation({seed}).run({steps}))"


def test_hash_seed_and_locale_make_no_difference() -> None:
    told = set()
    for hash_seed, locale in (("0", "C"), ("4242", "C.UTF-8")):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "LC_ALL": locale}
        done = subprocess.run(
            [sys.executable, "-c", _TELL.format(seed=7, steps=STEPS)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        told.add(done.stdout)
    assert len(told) == 1


def test_another_seed_tells_another_story() -> None:
    assert run(1).digest != run(2).digest
