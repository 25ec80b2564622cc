"""Carrier, journal, pool and clock doubles: honest by default, and wrong where they are told to be."""

import os

import msgspec
import pytest
import trio
import trio.testing

from orbitkv.events.codec import encode_records
from orbitkv.events.commands import Tick
from orbitkv.events.outcomes import CopyOutcome
from orbitkv.events.record import Record
from orbitkv.manager.ports import (
    Carrier,
    Clock,
    CopyDone,
    Journal,
    JournalFull,
    PageIdentity,
    PageSeal,
    Pool,
    SliceCopy,
)
from tests.doubles import CompletionFault, MemoryCarrier, MemoryJournal, PlainPool, SettableClock

# --- carrier ------------------------------------------------------------------------------------------


def window(content):
    fd = os.memfd_create("test")
    os.write(fd, content)
    return fd


def carrier_with_window(**options):
    pool = memoryview(bytearray(b"\xff" * 65536))
    carrier = MemoryCarrier(pool, **options)
    port: Carrier = carrier
    port.attach_staging(1, window(b"x" * 8192), 8192)
    return carrier, pool


def copies(*tokens):
    return [SliceCopy(token, 1, 0, 0, 5000, 8192) for token in tokens]


def test_copies_and_seals_are_done_and_reported():
    carrier, pool = carrier_with_window()
    carrier.submit_copies(copies(4))
    carrier.submit_seals([PageSeal(5, 0, 8192, PageIdentity(bytes(16), 0, b"key", 1, 7))])
    done = trio.run(carrier.completions)
    assert [one.token for one in done] == [4, 5]
    assert bytes(pool[:8192]) == (b"x" * 5000).ljust(8192, b"\0")
    assert bytes(pool[8192:8200]) == b"key\x07\0\0\0\0"
    trio.run(carrier.aclose)


def test_a_source_that_is_gone_is_reported():
    carrier, _ = carrier_with_window()
    carrier.submit_copies([SliceCopy(1, 1, 4096, 0, 5000, 8192)])
    carrier.detach_staging(1)
    carrier.submit_copies(copies(2))
    assert [one.outcome for one in carrier.completions_nowait()] == [CopyOutcome.SOURCE_GONE] * 2


def test_completions_are_lost_delayed_and_doubled():
    carrier, pool = carrier_with_window()
    carrier.script = {1: CompletionFault.LOSE, 2: CompletionFault.DELAY, 3: CompletionFault.DOUBLE}
    carrier.script[5] = CompletionFault.DELAY
    carrier.submit_copies(copies(1, 2, 3, 4, 5))
    assert [one.token for one in carrier.completions_nowait()] == [3, 3, 4]
    assert pool[0] == ord("x"), "the work of a lost completion was done"
    carrier.release()
    assert [one.token for one in carrier.completions_nowait()] == [5, 2]
    assert carrier.lost == [CopyDone(1, CopyOutcome.COPIED, 50)]


def test_a_seed_draws_the_same_faults_again():
    def heard(seed):
        faults = {CompletionFault.LOSE: 0.2, CompletionFault.DOUBLE: 0.2}
        carrier, _ = carrier_with_window(seed=seed, probabilities=faults)
        carrier.submit_copies(copies(*range(100)))
        return [one.token for one in carrier.completions_nowait()]

    assert heard(1) == heard(1)
    assert heard(1) != heard(2)


# --- journal ------------------------------------------------------------------------------------------


def payload(*seqs):
    return encode_records([Record(seq, seq * 10, Tick(), ()) for seq in seqs])


def test_a_journal_keeps_records_and_segments():
    journal = MemoryJournal(frames_per_segment=2)
    port: Journal = journal
    port.append(1, 2, payload(1, 2))
    assert not port.segment_full
    port.append(3, 3, payload(3))
    assert port.segment_full
    port.roll(b"state", 4)
    port.append(4, 4, payload(4))
    assert [record.seq for record in journal.records] == [1, 2, 3, 4]
    assert [(segment.next_seq, len(segment.frames)) for segment in journal.segments] == [(1, 2), (4, 1)]
    assert (port.written_seq, port.lag_bytes) == (4, 0)
    assert port.log_bytes == sum(len(frame.payload) for frame in journal.frames)


def test_a_gap_is_a_broken_promise():
    journal = MemoryJournal()
    journal.append(1, 3, payload(1, 2, 3))
    with pytest.raises(AssertionError, match="expected seq 4"):
        journal.append(5, 5, payload(5))
    with pytest.raises(AssertionError, match="must begin at 4"):
        journal.roll(b"", 9)


def test_a_stalled_journal_lets_nobody_believe_in_its_frames():
    journal = MemoryJournal()
    waited = []

    async def wait():
        await journal.written(2)
        waited.append(journal.written_seq)

    async def main():
        journal.append(1, 1, payload(1))
        journal.stall()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            journal.append(2, 2, payload(2))
            await trio.testing.wait_all_tasks_blocked()
            assert waited == []
            assert journal.lag_bytes == len(payload(2))
            journal.resume()
        assert waited == [2]

    trio.run(main)


def test_a_full_disk_is_said_and_ends_in_a_refusal_until_there_is_room():
    journal = MemoryJournal(lag_bytes_max=len(payload(1)) * 2)
    journal.fill()
    journal.append(1, 1, payload(1))
    journal.append(2, 2, payload(2))
    assert "no space" in journal.trouble
    with pytest.raises(JournalFull, match="no space"):
        journal.append(3, 3, payload(3))
    journal.resume()
    journal.append(3, 3, payload(3))
    assert (journal.trouble, journal.written_seq) == ("", 3)


def test_a_crash_loses_what_was_not_written():
    journal = MemoryJournal()
    journal.append(1, 1, payload(1))
    journal.stall()
    journal.append(2, 2, payload(2))
    assert [record.seq for record in journal.crash()] == [1]
    assert msgspec.to_builtins(journal.records[0])[0] == 1


# --- pool and clock --------------------------------------------------------------------------------------


def test_a_pool_prepares_stalls_and_fails():
    pool = PlainPool(8192)
    port: Pool = pool
    pool.failures[1] = OSError(12, "no memory")
    pool.stall()

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(port.prepare_superblock, 0)
            await trio.testing.wait_all_tasks_blocked()
            assert (pool.preparing, pool.prepared) == ([0], [])
            pool.release()
        with pytest.raises(OSError, match="no memory"):
            await port.prepare_superblock(1)
        await port.prepare_superblock(1)

    trio.run(main)
    assert pool.prepared == [0, 1]
    pool.view[:3] = b"abc"
    fd = port.reader_fd()
    assert os.pread(fd, 3, 0) == b"abc"
    with pytest.raises(OSError):
        os.pwrite(fd, b"x", 0)
    os.close(fd)


def test_time_moves_when_told():
    clock = SettableClock(now_ns=5)
    port: Clock = clock
    wall = port.unix_ns()
    clock.advance(7)
    assert (port.monotonic_ns(), port.unix_ns()) == (12, wall + 7)
    clock.step_wall(-100)
    assert (port.monotonic_ns(), port.unix_ns()) == (12, wall - 93)
    with pytest.raises(AssertionError):
        clock.advance(-1)
