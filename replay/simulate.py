"""The minimal seeded simulator: the real kernel in a made-up world, and a log of what it did.

One seed, one story: every choice comes from one `random.Random`, so that a run that found something is
told again by its seed. Now and then the process "crashes": the records so far are folded from their
bytes into a fresh state, which must have the same digest; then a new incarnation recovers what the page
file holds. At the end everything is drained, and nothing may be left reserved, held or in flight.

A broken rule comes out as AssertionError, whether the kernel, the world or this file noticed it.
"""

from collections import deque
from collections.abc import Callable
from random import Random

import attrs

from orbitkv.events import commands
from orbitkv.events.codec import decode_records, encode_records
from orbitkv.events.commands import Command
from orbitkv.events.config import SECOND_NS, KernelConfig
from orbitkv.events.record import Record
from orbitkv.manager.kernel import (
    KERNEL_REVISION,
    Answer,
    Refused,
    check,
    digest,
    effects_of,
    fold,
    new_state,
    next_deadline,
    outstanding,
    restore,
    snapshot,
    step,
)
from replay.actions import Actions
from replay.lines import record_line
from replay.world import Faults, World

TAIL_LINES = 20


def small_config(random: Random) -> KernelConfig:
    """A world in which everything is scarce: a few dozen pages of DRAM, a few hundred on the SSD."""
    superblock_bytes = 1 << 16
    pool_bytes = superblock_bytes * random.randint(3, 8)
    budget = pool_bytes * 3 // 4
    return KernelConfig(
        pool_bytes=pool_bytes,
        superblock_bytes=superblock_bytes,
        query_budget_bytes=budget,
        instance_query_budget_bytes=random.choice((budget, budget * 2 // 3)),
        demand_prefix_cut=random.random() < 0.3,
        charge=random.choice(("owner", "owner", "shared")),
        hints_per_session_max=random.choice((2, 16)),
        hints_max=random.choice((3, 128)),
        speculative_divisor=random.choice((2, 4)),
        operations_per_session_max=random.choice((4, 128)),
        operations_max=random.choice((8, 1024)),
        ssd_inflight_bytes_max=random.choice((1 << 16, 1 << 18)),
        ssd_foreground_reserved_bytes=1 << 15,
        reclaim_batch_pages_max=random.choice((2, 512)),
        ssd_bytes=random.choice((0, 6, 6, 6)) << 17,
        ssd_segment_bytes=1 << 17,
        ssd_slots_per_segment_max=16,
        ssd_write_queue_pages_max=random.choice((4, 64)),
        decisions_remembered_max=random.choice((2, 1024)),
    )


@attrs.define
class Outcome:
    """What a run came to."""

    seed: int
    steps: int
    records: int = 0
    refused: int = 0
    answers: int = 0
    incarnations: int = 1
    digest: int = 0
    tail: tuple[str, ...] = ()


class Simulation:
    """One run. `on_record(record)` sees every record, `write(frame)` its bytes, in order.

    `careful`: also check that a command without a record left the state's digest as it was.
    `renewed`: go on from the restored snapshot, wherever one is taken; the story must not change.
    """

    def __init__(
        self,
        seed: int,
        *,
        careful: bool = False,
        renewed: bool = False,
        crashes: bool = True,
        faults: Faults | None = None,
        on_record: Callable[[Record], None] | None = None,
        write: Callable[[bytes], None] | None = None,
    ) -> None:
        self.random = Random(seed)
        self.config = small_config(self.random)
        self.world = World(self.random, self.config, faults or Faults())
        self.outcome = Outcome(seed, 0)
        self.clock_ns = 0
        self.state = new_state()
        self._frames: list[bytes] = []
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._careful = careful
        self._renewed = renewed
        self._crashes = crashes
        self._on_record = on_record
        self._write = write
        self.actions = Actions(self)
        self._start(1)

    def _start(self, incarnation: int) -> None:
        self.state = new_state()
        self._frames = []
        self.send(commands.Start(incarnation, KERNEL_REVISION, self.config))
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
        else:
            self.outcome.answers += 1
        return result

    def _recorded(self, record: Record) -> None:
        frame = encode_records([record])
        self._frames.append(frame)
        self._tail.append(record_line(record))
        self.outcome.records += 1
        if self._write is not None:
            self._write(frame)
        if self._on_record is not None:
            self._on_record(record)
        self.world.follow(record)
        self.world.carry(effects_of(record))

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
        self.outcome.tail = tuple(self._tail)
        self.outcome.digest = digest(self.state)
        return self.outcome

    def one_step(self) -> None:
        self.world.step += 1
        self.outcome.steps += 1
        self._tick_when_due()
        if self._crashes and self.random.random() < 0.0015:
            self.crash()
        elif self.random.random() < 0.45:
            report = self.world.deliver()
            if report is not None:
                self.send(report)
        else:
            self.actions.one()
        self.clock_ns += self.random.randint(0, 20_000_000)
        if self.random.random() < 0.01:
            self.clock_ns += self.random.choice((1, 5, 70, 700)) * SECOND_NS
        if self.random.random() < 0.01:
            self.check_whole()

    def _tick_when_due(self) -> None:
        due = next_deadline(self.state)
        if due is not None and due <= self.clock_ns:
            self.send(commands.Tick())
            still = next_deadline(self.state)
            if still is not None and still <= self.clock_ns:
                raise AssertionError(f"a tick at {self.clock_ns} left a deadline of {still} behind")

    def check_whole(self) -> None:
        """The kernel's own full check; and a snapshot that leads to the same state."""
        check(self.state)
        again = restore(snapshot(self.state))
        if digest(again) != digest(self.state):
            raise AssertionError("a state restored from its snapshot has another digest")
        if self._renewed:
            self.state = again

    def crash(self) -> None:
        """kill -9: fold the log from its bytes, close that chain, recover into a new incarnation."""
        self._refold()
        self.world.crash()
        self.actions.manager_died()
        self.outcome.incarnations += 1
        self._start(self.outcome.incarnations)

    def _refold(self) -> None:
        folded = new_state()
        for frame in self._frames:
            for record in decode_records(frame):
                fold(folded, record)
        if digest(folded) != digest(self.state):
            raise AssertionError("the state folded from the log's bytes has another digest")
        check(folded)
        closing = step(folded, self.clock_ns, commands.CloseIncarnation(lost_tail=False))
        if isinstance(closing, Record) and self._on_record is not None:
            self._on_record(closing)

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
        self._refold()
