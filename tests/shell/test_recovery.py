"""A successor closes its predecessor's chain and serves what the SSD still holds."""

import time

import numpy as np
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from orbitkv.events import facts
from orbitkv.events.codec import encode_records
from orbitkv.events.config import GIB, MIB, KernelConfig
from orbitkv.events.outcomes import ReadOutcome
from orbitkv.io import wire
from orbitkv.manager.kernel import invariants
from orbitkv.manager.kernel.snapshot import snapshot
from orbitkv.manager.kernel.state import new_state
from orbitkv.manager.ports import RecoveredSegment
from orbitkv.manager.shell.loop import Loop
from orbitkv.manager.shell.recovery import UnreadablePredecessor, close_predecessor, recovery_commands
from orbitkv.manager.shell.start import NO_STORE, next_incarnation, start_incarnation
from tests.doubles import Medium, MemoryJournal, SettableClock
from tests.shell.world import World, page, play

EMPTY = snapshot(new_state())


def killed(world: World) -> list[bytes]:
    """The frames that a successor finds."""
    world.journal.crash()
    return [frame.payload for frame in world.journal.frames]


def test_a_killed_managers_chain_is_closed_with_everything_ended() -> None:
    frames: list[bytes] = []

    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1, 2])
        await engine.restore((await engine.query([1])).lease)
        frames.extend(killed(world))

    play(story)
    closing = close_predecessor(EMPTY, frames, lost_tail=True)
    assert closing is not None
    events = closing.record.events
    assert isinstance(events[-1], facts.IncarnationClosed)
    assert events[-1].lost_tail
    assert any(isinstance(event, facts.LeaseEnded) for event in events)
    frames.append(encode_records([closing.record]))
    assert close_predecessor(EMPTY, frames, lost_tail=False) is None, "it is closed once"


def test_a_predecessor_that_does_not_fold_is_named() -> None:
    with pytest.raises(UnreadablePredecessor, match="replay verify"):
        close_predecessor(EMPTY, [b"\xc1 no records"], lost_tail=False)


def test_pages_of_a_killed_manager_are_served_from_the_ssd() -> None:
    media: list[Medium] = []

    async def first(world: World) -> None:
        engine = await world.engine()
        await engine.save([1, 2, 3])
        media.append(world.medium.after_kill())

    async def second(world: World) -> None:
        engine = await world.engine()
        answer = await engine.query([1, 2, 3])
        assert answer.status == wire.QueryStatus.LOADING
        ready = await engine.poll(answer.operation)
        begun = await engine.restore(ready.lease)
        assert engine.restored(begun) == [page(1), page(2), page(3)]
        assert [read.identity.incarnation for read in world.store.reads] == [1, 1, 1]

    play(first)
    play(second, medium=media[0], incarnation=2)


def test_a_page_that_does_not_verify_is_a_miss_once_and_its_slot_is_given_up() -> None:
    async def story(world: World) -> None:
        engine = await world.engine()
        await engine.save([1])
        await world.forget_dram()
        world.store.faults.script_read(0, ReadOutcome.CORRUPT)
        loading = await engine.query([1])
        assert (await engine.poll(loading.operation)).status == wire.QueryStatus.MISSED
        await wait_all_tasks_blocked()
        assert world.medium.current.quarantined == {(0, 0)}
        assert (await engine.query([1], request="next")).status == wire.QueryStatus.MISSED
        assert len(world.store.reads) == 1, "the next request does not try it again"

    play(story)


def test_an_incarnation_is_above_all_that_log_or_ssd_have_seen() -> None:
    assert next_incarnation(0, ()) == 1
    assert next_incarnation(4, ()) == 5
    assert next_incarnation(0, [segment(0, 3, incarnation=9)]) == 10


def test_a_segment_comes_in_pieces_that_fit_a_frame() -> None:
    commands = list(recovery_commands([segment(0, 5000), segment(1, 0)]))
    assert [len(command.keys) for command in commands] == [2048, 2048, 904, 0]
    assert all(len(command.slots) == 4 * len(command.keys) for command in commands)
    assert all(len(command.generations) == 8 * len(command.keys) for command in commands)


def segment(number: int, slots: int, incarnation: int = 1) -> RecoveredSegment:
    first = number * 16384
    u32 = np.dtype("<u4")
    return RecoveredSegment(
        segment=number,
        slot_bytes=12288,
        slots=np.arange(first, first + slots, dtype=u32).tobytes(),
        spaces=np.zeros(slots, u32).tobytes(),
        scopes=((b"n" * 16, 0),),
        keys=tuple((first + place).to_bytes(32, "big") for place in range(slots)),
        generations=np.arange(first + 1, first + slots + 1, dtype="<u8").tobytes(),
        incarnations=np.full(slots, incarnation, u32).tobytes(),
        footprints=np.full(slots, 2, u32).tobytes(),
        quarantined=b"",
    )


def test_a_hundred_thousand_slots_are_usable_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    config = KernelConfig(
        pool_bytes=64 * MIB,
        superblock_bytes=16 * MIB,
        query_budget_bytes=48 * MIB,
        instance_query_budget_bytes=48 * MIB,
        ssd_bytes=4 * GIB,
    )
    directory = [segment(number, 16384) for number in range(6)] + [segment(6, 1696)]

    async def main() -> None:
        loop = Loop(new_state(), MemoryJournal(lag_bytes_max=GIB), SettableClock())
        begun = time.perf_counter()
        pages = start_incarnation(loop, 2, config, NO_STORE, "host", directory)
        took_s = time.perf_counter() - begun
        with capsys.disabled():
            print(f"\n100,000 recovered slots: {took_s:.2f} s in the kernel and the log")
        assert pages == 100_000
        invariants.check(loop.state)
        assert took_s < 5, "the aim is 2 s with the directory's reading; this machine is shared"

    trio.run(main)
