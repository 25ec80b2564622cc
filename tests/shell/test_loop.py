"""The loop: one time for a batch, frames within their bounds, segments that fold, and how it fails."""

from collections.abc import Callable

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from orbitkv.events.codec import decode_records, encode_records
from orbitkv.events.commands import CloseSession, Command, OpenSession, Start, Tick
from orbitkv.events.outcomes import SessionEnd
from orbitkv.events.record import Record
from orbitkv.manager.kernel.apply import fold
from orbitkv.manager.kernel.snapshot import digest, restore
from orbitkv.manager.kernel.state import State, new_state
from orbitkv.manager.kernel.step import KERNEL_REVISION
from orbitkv.manager.shell import loop as loop_module
from orbitkv.manager.shell.loop import (
    FRAME_BYTES_MAX,
    FRAME_RECORDS_MAX,
    FailStop,
    Loop,
    Question,
    StepResult,
)
from tests.doubles import MemoryJournal, SettableClock
from tests.shell.world import CONFIG


def in_trio(test: Callable[[], None]) -> Callable[[], None]:
    """The journal's double makes trio events."""

    def run() -> None:
        async def main() -> None:
            test()

        trio.run(main)

    run.__name__ = test.__name__
    return run


def started(journal: MemoryJournal | None = None, clock: SettableClock | None = None) -> Loop:
    loop = Loop(new_state(), journal or MemoryJournal(), clock or SettableClock())
    loop.process([Start(1, KERNEL_REVISION, CONFIG)])
    return loop


def arrival(session: int) -> Command:
    return OpenSession(session, session, 1000 + session, 0, True)


@in_trio
def test_a_batch_has_one_time_and_time_never_falls() -> None:
    journal, clock = MemoryJournal(), SettableClock()
    loop = started(journal, clock)
    clock.advance(1000)
    loop.process([arrival(1), arrival(2)])
    now_ns, clock.now_ns = clock.now_ns, 5
    loop.process([arrival(3)])
    assert [record.at_ns for record in journal.records[1:]] == [now_ns] * 3


@in_trio
def test_what_changes_nothing_is_no_record() -> None:
    journal = MemoryJournal()
    loop = started(journal)
    for _ in range(240):
        loop.process([Tick()])
    loop.process([CloseSession(99, SessionEnd.BROKEN)])
    assert len(journal.records) == 1


@in_trio
def test_a_large_batch_becomes_frames_of_bounded_length() -> None:
    journal = MemoryJournal()
    loop = started(journal)
    loop.process(arrival(session) for session in range(1, 201))
    counts = [frame.last_seq - frame.first_seq + 1 for frame in journal.frames]
    assert counts == [1, 64, 64, 64, 8]
    assert max(counts) == FRAME_RECORDS_MAX


@in_trio
def test_a_frame_with_too_many_bytes_is_split() -> None:
    def inflated(records: list[Record]) -> bytes:
        return encode_records(records) if len(records) <= 10 else bytes(FRAME_BYTES_MAX + 1)

    journal = MemoryJournal()
    loop = started(journal)
    loop.encode_frame = inflated  # type: ignore[assignment]  # a list is what it is given
    loop.process(arrival(session) for session in range(1, 61))
    counts = [frame.last_seq - frame.first_seq + 1 for frame in journal.frames[1:]]
    assert sum(counts) == 60
    assert max(counts) <= 10


@in_trio
def test_a_new_segment_begins_with_the_state_before_its_first_record() -> None:
    journal = MemoryJournal(frames_per_segment=3)
    loop = started(journal)
    for session in range(1, 10):
        loop.process([arrival(session)])
    assert len(journal.segments) == 4
    for segment in journal.segments[1:]:
        state = restore(segment.snapshot)
        assert state.seq == segment.next_seq - 1
        for later in journal.segments[journal.segments.index(segment) :]:
            for frame in later.frames:
                for record in decode_records(frame.payload):
                    fold(state, record)
        assert digest(state) == digest(loop.state), "any suffix folds to the same end"


@attrs.define
class Asked(Question):
    """Notes when it is answered."""

    session: int
    order: list[str]

    def command(self, state: State) -> Command:
        return arrival(self.session)

    def answer(self, state: State, result: StepResult | None) -> Callable[[], None]:
        self.order.append(f"looked {state.session_high}")
        return lambda: self.order.append(f"answered {self.session}")


@in_trio
def test_looked_at_after_its_step_answered_after_the_log_carried_out_last() -> None:
    order: list[str] = []

    class Journal(MemoryJournal):
        def append(self, first_seq: int, last_seq: int, payload: bytes) -> None:
            order.append(f"logged {first_seq}-{last_seq}")
            super().append(first_seq, last_seq, payload)

    loop = started(Journal())
    loop.followers = [lambda records: order.append(f"carried out {len(records)}")]
    order.clear()
    loop.process([Asked(1, order), Asked(2, order)])
    assert order == ["looked 1", "looked 2", "logged 2-3", "answered 1", "answered 2", "carried out 2"]


def test_after_a_broken_rule_good_records_are_logged_and_nothing_else_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = loop_module.step

    def broken(state: State, at_ns: int, command: Command) -> StepResult:
        assert not isinstance(command, CloseSession), "the books do not balance"
        return honest(state, at_ns, command)

    async def main() -> None:
        journal = MemoryJournal()
        loop = started(journal)
        carried_out: list[int] = []
        loop.followers = [lambda records: carried_out.append(len(records))]
        monkeypatch.setattr(loop_module, "step", broken)
        with pytest.raises(FailStop, match="the books do not balance") as stop:
            loop.process([arrival(1), CloseSession(1, SessionEnd.CLOSED), arrival(2)])
        assert "replay verify" in str(stop.value)
        assert [record.seq for record in journal.records] == [1, 2]
        assert carried_out == [], "what follows from a state in doubt does not reach the world"
        with pytest.raises(FailStop):
            loop.process([Tick()])

    trio.run(main)


@in_trio
def test_a_log_that_takes_no_more_stops_the_manager_with_a_remedy() -> None:
    journal = MemoryJournal(lag_bytes_max=2500)
    loop = started(journal)
    journal.fill()
    with pytest.raises(FailStop, match="log_lag_bytes_max"):
        loop.process(arrival(session) for session in range(1, 400))


def test_the_invariants_are_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    async def main() -> None:
        loop = started()
        loop.check_interval_records = 10
        monkeypatch.setattr(loop_module.invariants, "check", lambda state: looked.append(state.seq))
        for session in range(1, 31):
            loop.process([arrival(session)])

    trio.run(main)
    assert looked == [10, 20, 30]


def test_progress_wakes_who_waits_for_a_record() -> None:
    async def main() -> None:
        loop = started()
        heard: list[int] = []

        async def listen() -> None:
            await loop.progress()
            heard.append(loop.state.seq)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            await wait_all_tasks_blocked()
            loop.process([Tick()])
            await wait_all_tasks_blocked()
            assert heard == []
            loop.process([arrival(1)])
        assert heard == [2]

    trio.run(main)
