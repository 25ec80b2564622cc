"""The one place where commands are stepped: a batch in, one log frame per piece, then replies and effects.

Everything here is synchronous. The tasks that call `process` each await one source of input; as
nothing inside awaits, the state has one owner at a time without a lock. Must not do I/O itself: the
journal queues bytes, replies go to an outbox, effects are submitted.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import attrs
import trio

from orbitkv.events.codec import encode_records
from orbitkv.events.commands import Command
from orbitkv.events.record import Record
from orbitkv.manager.kernel import invariants
from orbitkv.manager.kernel.snapshot import snapshot
from orbitkv.manager.kernel.state import State
from orbitkv.manager.kernel.step import step
from orbitkv.manager.kernel.turn import Answer, Refused
from orbitkv.manager.ports import Clock, Journal, JournalFull

FRAME_RECORDS_MAX = 64
FRAME_BYTES_MAX = 256 << 10
"""A piece of a batch is logged, answered and carried out before the next is stepped, so these bound
both the log frame and how long the first asker of a large batch waits."""
CHECK_INTERVAL_RECORDS = 4096
"""Records between two looks at all invariants."""

StepResult = Record | Answer | Refused


class FailStop(Exception):
    """The manager must not go on: a broken invariant, or a log that can take no more.

    The log is intact up to the last good record; the next start closes its chain.
    """


class LogExhausted(FailStop):
    """The log can take no more. Nothing is broken, and the message says what the operator can do."""


class Question(ABC):
    """A client's request. It becomes a command only when its turn comes, because the page numbers that
    its keys resolve to may change with every record before it."""

    __slots__ = ()

    @abstractmethod
    def command(self, state: State) -> Command | None:
        """None: it needs no command; `answer` alone settles it."""

    @abstractmethod
    def answer(self, state: State, result: StepResult | None) -> Callable[[], None] | None:
        """Looks at the state right after its step. What it returns is called when the record is logged."""


Input = Command | Question
Follower = Callable[[Sequence[Record]], None]
"""Acts on records that are in the log: the world's chores, notices to clients."""


@attrs.define(slots=True)
class Loop:
    state: State
    journal: Journal
    clock: Clock
    followers: Sequence[Follower] = ()
    encode_frame: Callable[[Sequence[Record]], bytes] = encode_records
    check_interval_records: int = CHECK_INTERVAL_RECORDS
    _checked_seq: int = attrs.field(default=0, init=False)
    _failure: FailStop | None = attrs.field(default=None, init=False)
    _progress: trio.Event | None = attrs.field(default=None, init=False)

    def process(self, inputs: Iterable[Input]) -> None:
        """Step everything in order. Raises FailStop."""
        if self._failure is not None:
            # Whoever caught the first one must not go on with a state that is no longer true.
            raise self._failure
        at_ns = max(self.state.at_ns, self.clock.monotonic_ns())
        try:
            for piece in _pieces(inputs):
                self._process_piece(at_ns, piece)
        except FailStop as failure:
            self._failure = failure
            raise

    def ask(self, command: Command) -> StepResult:
        """Step one command and see what came of it. Raises FailStop."""
        aside = _Aside(command)
        self.process([aside])
        assert aside.result is not None, "what was stepped has a result"
        return aside.result

    async def progress(self) -> None:
        """Wait for the next record."""
        if self._progress is None:
            self._progress = trio.Event()
        await self._progress.wait()

    def _process_piece(self, at_ns: int, piece: Sequence[Input]) -> None:
        self._roll_if_full()
        records: list[Record] = []
        answers: list[Callable[[], None]] = []
        try:
            for item in piece:
                self._step(at_ns, item, records, answers)
            self._check_if_due()
        except Exception as error:
            # What was decided before the failure is true and goes into the log. Its effects do not go
            # into the world: the state that would describe them can no longer be trusted.
            self._log(records)
            raise FailStop(_broken(self.state, error)) from error
        self._log(records)
        for tell in answers:
            tell()
        if records:
            for follow in self.followers:
                follow(records)
            if self._progress is not None:
                self._progress.set()
                self._progress = None

    def _step(
        self, at_ns: int, item: Input, records: list[Record], answers: list[Callable[[], None]]
    ) -> None:
        command = item.command(self.state) if isinstance(item, Question) else item
        result = None if command is None else step(self.state, at_ns, command)
        if isinstance(result, Record):
            records.append(result)
        if isinstance(item, Question):
            tell = item.answer(self.state, result)
            if tell is not None:
                answers.append(tell)

    def _log(self, records: Sequence[Record]) -> None:
        if not records:
            return
        payload = self.encode_frame(records)
        if len(payload) > FRAME_BYTES_MAX and len(records) > 1:
            middle = len(records) // 2
            self._log(records[:middle])
            self._log(records[middle:])
            return
        try:
            self.journal.append(records[0].seq, records[-1].seq, payload)
        except JournalFull as full:
            raise LogExhausted(
                f"the log takes no more: {full}. Free space on the log's disk, or raise log_lag_bytes_max, "
                "and start again: the pages on the SSD are found again"
            ) from full

    def _roll_if_full(self) -> None:
        # Before a piece and not after it: the snapshot must be the state that the next record meets.
        if self.journal.segment_full:
            self.journal.roll(snapshot(self.state), self.state.seq + 1)

    def _check_if_due(self) -> None:
        """All invariants, now and then: `apply` asserts only what a single fact touches."""
        if self.state.seq - self._checked_seq >= self.check_interval_records:
            self._checked_seq = self.state.seq
            invariants.check(self.state)


@attrs.define(slots=True)
class _Aside(Question):
    """A question of the manager's own."""

    asked: Command
    result: StepResult | None = None

    def command(self, state: State) -> Command:
        return self.asked

    def answer(self, state: State, result: StepResult | None) -> None:
        self.result = result


def _pieces(inputs: Iterable[Input]) -> Iterator[list[Input]]:
    iterator = iter(inputs)
    while piece := list(islice(iterator, FRAME_RECORDS_MAX)):
        yield piece


def _broken(state: State, error: Exception) -> str:
    what = str(error) or "no further detail"
    return (
        f"a rule of the kernel is broken at record {state.seq} ({type(error).__name__}: {what}). "
        "The log before it is intact and shows how it came about: see `orbitkv replay verify`. "
        "Start again to go on with the pages on the SSD"
    )
