"""The seeded simulator: the real kernel in a made-up world, and the log of what it did.

One seed, one story: every choice comes from one `random.Random`, so that a run that found something is
told again by its seed, byte for byte. Now and then the manager "dies": what is left of its log is folded
from its bytes, from the beginning or from some segment's snapshot, into a fresh state, which must be the
one that died; then a new incarnation recovers what the page file holds. At the end everything is drained,
and nothing may be left reserved, held or in flight.

A broken rule comes out as AssertionError, whether the kernel, the world or this file noticed it.
"""

from bisect import bisect
from collections.abc import Callable
from itertools import accumulate
from random import Random

import attrs

from orbitkv.events import commands
from orbitkv.events.commands import Command
from orbitkv.events.config import SECOND_NS
from orbitkv.events.record import Record
from orbitkv.manager.kernel import (
    KERNEL_REVISION,
    Answer,
    Refused,
    State,
    check,
    digest,
    effects_of,
    new_state,
    next_deadline,
    outstanding,
    restore,
    snapshot,
    step,
)
from replay.simulate.actions import Actions
from replay.simulate.checks import Glance
from replay.simulate.config import small_config
from replay.simulate.faults import MOVES, Faults
from replay.simulate.outcome import Outcome, Tally
from replay.simulate.simulated_log import SimulatedLog
from replay.simulate.troubles import Troubles
from replay.simulate.workload import HOST
from replay.simulate.world import World

SEGMENTS_KEPT = 3
"""Fewest segments of an incarnation that retention leaves."""
JUMPS_S = (1, 1, 5, 70, 700, 86_400)
"""How far the clock jumps."""


class Simulation:
    """One run. `on_record(record)` sees every record in order, the closing one of each chain included.

    After a power loss the records from some seq on are gone; `on_lost(first_seq)` says so.
    `careful`: also check that a command without a record left the state's digest as it was.
    `renewed`: go on from the restored snapshot, wherever one is taken; the story must not change.
    `crashes`: False for one incarnation only, whatever `faults` says.
    """

    def __init__(
        self,
        seed: int,
        *,
        faults: Faults | None = None,
        careful: bool = False,
        renewed: bool = False,
        crashes: bool = True,
        log: SimulatedLog | None = None,
        on_record: Callable[[Record], None] | None = None,
        on_lost: Callable[[int], None] | None = None,
    ) -> None:
        self.random = Random(seed)
        self.config = small_config(self.random)
        self.faults = Faults.of((), seed) if faults is None else faults
        if not crashes:
            self.faults.crashed = self.faults.power_lost = 0.0
        self.world = World(self.random, self.config, self.faults)
        self.outcome = Outcome(seed)
        self.tally = Tally()
        self.log = SimulatedLog(seed) if log is None else log
        self.clock_ns = 0
        self.state = new_state()
        self._careful = careful
        self._renewed = renewed
        self._on_record = on_record
        self._on_lost = on_lost
        self._segment_records = self.random.choice((40, 250, 1000))
        self._due: tuple[int, int | None] = (-1, None)
        """The next deadline, and the seq for which it was asked."""
        self.actions = Actions(self)
        self.troubles = Troubles(self, self.actions)
        self._kinds = [kind for kind in MOVES if getattr(self.faults, kind)]
        self._chances = list(accumulate(getattr(self.faults, kind) for kind in self._kinds))
        self._trouble_chance = self._chances[-1] if self._chances else 0.0
        self._start(1)

    def _start(self, incarnation: int) -> None:
        self.state = new_state()
        self._due = (-1, None)
        self._glance = Glance()
        self.log.begin(incarnation)
        self.send(commands.Start(incarnation, KERNEL_REVISION, self.config, host=HOST))
        for segment in self.world.directory():
            self.send(segment)

    # --- one command ----------------------------------------------------------------------------------

    def send(self, command: Command) -> Record | Answer | Refused:
        """Step one command; log, observe and carry out what comes of it."""
        before = digest(self.state) if self._careful else 0
        result = step(self.state, self.clock_ns, command)
        if isinstance(result, Record):
            self._recorded(result)
            return result
        if self._careful and digest(self.state) != before:
            raise AssertionError(f"{type(command).__name__} made no record but changed the state: {result}")
        if isinstance(result, Refused):
            self.outcome.refused += 1
            self.tally.refusals[result.reason] += 1
        else:
            self.outcome.answers += 1
        return result

    def _recorded(self, record: Record) -> None:
        self.outcome.records += 1
        self.log.append(record)
        self.tally.add(record)
        if self._on_record is not None:
            self._on_record(record)
        self._glance.look(self.state, record)
        self.world.follow(record)
        chores = effects_of(record)
        if chores:
            self.world.carry(chores)

    # --- the run --------------------------------------------------------------------------------------

    def run(self, steps: int, *, on_step: Callable[[int], None] | None = None) -> Outcome:
        """Take so many steps, then drain. Raises AssertionError when a rule breaks."""
        for number in range(steps):
            self.one_step()
            if on_step is not None:
                on_step(number + 1)
        self.drain()
        return self.told()

    def told(self) -> Outcome:
        """What the run has come to so far."""
        return attrs.evolve(
            self.outcome,
            digest=digest(self.state),
            faults=dict(sorted(self.faults.injected.items())),
            **self.tally.told(),
        )

    def one_step(self) -> None:
        random = self.random.random
        self.world.step += 1
        self.outcome.steps += 1
        self._tick_when_due()
        roll = random()
        if roll < self._trouble_chance:
            self._trouble(self._kinds[bisect(self._chances, roll)])
        elif random() < 0.45:
            report = self.world.deliver()
            if report is not None:
                self.send(report)
        else:
            self.actions.one()
        self.clock_ns += int(random() * 20_000_000)
        if random() < 0.02:
            self._look_after()

    def _trouble(self, kind: str) -> None:
        match kind:
            case "crashed" | "power_lost":
                self.faults.count(kind)
                self.crash(power_lost=kind == "power_lost")
            case "clock_jump":
                self.faults.count(kind)
                self.clock_ns += self.random.choice(JUMPS_S) * SECOND_NS
            case _:
                self.troubles.befall(kind)

    def _tick_when_due(self) -> None:
        if self._due[0] != self.state.seq:
            self._due = (self.state.seq, next_deadline(self.state))
        due = self._due[1]
        if due is not None and due <= self.clock_ns:
            self.send(commands.Tick())
            still = next_deadline(self.state)
            if still is not None and still <= self.clock_ns:
                raise AssertionError(f"a tick at {self.clock_ns} left a deadline of {still} behind")

    def _look_after(self) -> None:
        """Now and then: sync, begin a segment, drop an old one, mend what was broken, check the whole."""
        self.troubles.mend()
        self.world.ssd.sync()
        self.log.sync()
        if self.state.seq - self.log.first_seq >= self._segment_records:
            self.log.rotate(self.state)
            if len(self.log.segments) > SEGMENTS_KEPT and self.faults.strikes("retired", self.random):
                self.log.drop_oldest()
        if self.random.random() < 0.1:
            self.check_whole()

    def check_whole(self) -> None:
        """The kernel's own full check; and a snapshot that leads to the same state."""
        check(self.state)
        again = restore(snapshot(self.state))
        if digest(again) != digest(self.state):
            raise AssertionError("a state restored from its snapshot has another digest")
        if self._renewed:
            self.state = again

    # --- death ----------------------------------------------------------------------------------------

    def crash(self, *, power_lost: bool = False) -> None:
        """kill -9 or a power loss: fold what is left of the log, close its chain, recover."""
        lost_tail = False
        if power_lost:
            self.log.lose_power(self.random)
            lost_tail = self.log.repair()
        self._close_chain(lost_tail=lost_tail)
        self.world.crash(power_lost=power_lost)
        self.actions.manager_died()
        self.troubles.restarted()
        self.outcome.incarnations += 1
        self._start(self.outcome.incarnations)

    def _close_chain(self, *, lost_tail: bool) -> None:
        folded = self._refolded()
        if folded.seq < self.state.seq:
            if self._on_lost is not None:
                self._on_lost(folded.seq + 1)
        elif digest(folded) != digest(self.state):
            raise AssertionError("the state folded from the log's bytes has another digest")
        check(folded)
        closing = self.log.close_chain(folded, lost_tail=lost_tail)
        if closing is not None:
            self.tally.add(closing)
            if self._on_record is not None:
                self._on_record(closing)

    def _refolded(self) -> State:
        """From the oldest snapshot that is kept, or from a later one."""
        self.log.write()
        later = self.random.randrange(len(self.log.segments)) if self.random.random() < 0.7 else 0
        return self.log.folded(later)

    # --- the end --------------------------------------------------------------------------------------

    def drain(self) -> None:
        """A shutdown: engines end, the world reports what it owes, and nothing may be left."""
        self.send(commands.BeginShutdown())
        self.actions.engines_end()
        for _ in range(10_000):
            self.world.step += 1
            self.world.drain()
            report = self.world.deliver()
            if report is not None:
                self.send(report)
            elif not self.world.chores:
                break
        left = outstanding(self.state)
        if left.device_work or left.restores or self.state.reserved_bytes:
            raise AssertionError(f"the drain left {left} and {self.state.reserved_bytes} bytes reserved")
        self.check_whole()
        self._close_chain(lost_tail=False)
