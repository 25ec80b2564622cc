"""The journal as the loop sees it: appends that never wait, trouble that heals, nothing lost or torn."""

import errno
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from orbitkv.events import codec
from orbitkv.events.frame import LogError
from orbitkv.events.record import Record
from orbitkv.events.scan import Stop
from orbitkv.io.clock import SystemClock
from orbitkv.io.journal import FileJournal
from orbitkv.io.journal_thread import JournalSettings
from orbitkv.io.segment_writer import FileCalls
from orbitkv.io.segments import LogDirectory
from orbitkv.manager.ports import Clock, Journal, JournalFull
from replay.log import Log
from tests.disks import small_disk
from tests.log import samples
from tests.log.sick import SickCalls

BRISK = JournalSettings(
    gather_s=0.0, linger_s=0.0, retry_interval_s=0.01, sync_interval_s=0.02, close_timeout_s=0.2
)


@attrs.define
class StoppedClock:
    now_ns: int = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def unix_ns(self) -> int:
        return self.now_ns + 1000


def begin(
    path: Path,
    calls: FileCalls | None = None,
    settings: JournalSettings = BRISK,
    clock: Clock | None = None,
) -> tuple[LogDirectory, FileJournal]:
    directory = LogDirectory.open(path, calls)
    log = FileJournal.begin(
        directory,
        clock or SystemClock(),
        incarnation=1,
        kernel_revision=7,
        snapshot=samples.EMPTY_STATE,
        settings=settings,
    )
    return directory, log


@asynccontextmanager
async def journal(
    path: Path,
    calls: FileCalls | None = None,
    settings: JournalSettings = BRISK,
    clock: Clock | None = None,
) -> AsyncIterator[FileJournal]:
    directory, opened = begin(path, calls, settings, clock)
    try:
        yield opened
    finally:
        await opened.aclose()
        directory.close()


def append(to: Journal, first_seq: int, last_seq: int, pages: int = 4) -> None:
    to.append(first_seq, last_seq, codec.encode_records(samples.records(first_seq, last_seq, pages)))


def read(path: Path) -> tuple[list[Record], list[str], list[Stop]]:
    """Every record, what is wrong with the log, and how each segment ends."""
    log = Log.open(path)
    records: list[Record] = []
    stops: list[Stop] = []
    for segment in log.segments():
        for frame in segment.frames():
            records += frame.records
        stops.append(segment.ending.stop)
    return records, [str(trouble) for trouble in log.troubles], stops


def append_until_refused(to: Journal, appended: list[int]) -> None:
    """Goes on behind the last of `appended`, and adds to it."""
    while True:
        append(to, appended[-1] + 1, appended[-1] + 1)
        appended.append(appended[-1] + 1)


def fill(path: Path) -> None:
    """Take all space of a filesystem; ends with its ENOSPC."""
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1000))


async def until(condition: Callable[[], bool]) -> None:
    """For what another thread does without telling: nothing orders on how long this takes."""
    with trio.fail_after(20):
        while not condition():  # noqa: ASYNC110  # the thread has no event to give
            await trio.sleep(0.002)


def test_what_is_appended_is_written_synced_and_sealed(tmp_path: Path) -> None:
    async def main() -> None:
        async with journal(tmp_path) as log:
            append(log, 1, 1)
            append(log, 2, 5)
            await log.written(4)
            assert log.written_seq == 5
            assert read(tmp_path)[0] == samples.records(1, 5)
            await until(lambda: log.synced_seq == 5)
            assert log.lag_bytes == 0
            before_bytes = log.log_bytes
            append(log, 6, 6)
            assert log.log_bytes > before_bytes
            assert not log.trouble
        assert read(tmp_path) == (samples.records(1, 6), [], [Stop.SEALED])

    trio.run(main)


def test_a_port_is_implemented(tmp_path: Path) -> None:
    async def main() -> None:
        async with journal(tmp_path) as made:
            port: Journal = made
            assert port.written_seq == 0

    trio.run(main)


def test_frames_must_follow_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with journal(tmp_path) as log:
            append(log, 1, 2)
            for first_seq, last_seq in ((2, 2), (4, 4), (3, 2)):
                with pytest.raises(ValueError, match="seq 3 is next"):
                    log.append(first_seq, last_seq, b"")
            with pytest.raises(ValueError, match="seq 3 is next"):
                log.roll(b"", 5)

    trio.run(main)


def test_segments_roll_by_size_and_each_begins_with_its_snapshot(tmp_path: Path) -> None:
    async def main() -> None:
        settings = attrs.evolve(BRISK, segment_bytes=2000)
        async with journal(tmp_path, settings=settings) as log:
            assert not log.segment_full
            for seq in range(1, 200):
                if log.segment_full:
                    log.roll(b"state before %d" % seq, seq)
                    assert not log.segment_full
                append(log, seq, seq, pages=50)
                await log.written(seq)
        found = Log.open(tmp_path)
        seqs, segments = [], 0
        for segment in found.segments():
            segments += 1
            first_seq = segment.header.first_seq
            assert segment.snapshot == (
                samples.EMPTY_STATE if first_seq == 1 else b"state before %d" % first_seq
            )
            seqs += [record.seq for frame in segment.frames() for record in frame.records]
        assert found.troubles == []
        assert seqs == list(range(1, 200))
        assert segments > 5

    trio.run(main)


def test_segments_roll_by_age(tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        settings = attrs.evolve(BRISK, segment_seconds=10)
        async with journal(tmp_path, settings=settings, clock=clock) as log:
            clock.now_ns = 10_000_000_000
            assert not log.segment_full, "an empty segment does not roll"
            append(log, 1, 1)
            assert log.segment_full
            log.roll(b"later", 2)
            append(log, 2, 2)
            await log.written(2)
            assert not log.segment_full
            clock.now_ns = 19_999_999_999
            assert not log.segment_full
            clock.now_ns = 20_000_000_000
            assert log.segment_full

    trio.run(main)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_trouble_is_named_frames_are_kept_and_it_heals_by_itself(tmp_path: Path, error: int) -> None:
    async def main() -> None:
        calls = SickCalls()
        async with journal(tmp_path, calls) as log:
            append(log, 1, 3)
            await log.written(3)
            calls.write_error = error
            append(log, 4, 4)
            await until(lambda: bool(log.trouble))
            assert os.strerror(error) in log.trouble
            assert "log_path" in log.trouble
            assert not log.segment_full
            append(log, 5, 9)
            assert log.lag_bytes > 0
            assert read(tmp_path)[:2] == (samples.records(1, 3), [])
            calls.write_error = 0
            await log.written(9)
            await until(lambda: not log.trouble)
        assert read(tmp_path) == (samples.records(1, 9), [], [Stop.SEALED])

    trio.run(main)


def test_a_disk_that_fills_in_the_middle_of_a_frame_leaves_no_torn_frame(tmp_path: Path) -> None:
    async def main() -> None:
        calls = SickCalls()
        async with journal(tmp_path, calls) as log:
            for seq in range(1, 40):
                calls.room_bytes = seq
                append(log, seq, seq)
                await until(lambda: bool(log.trouble))
                records, troubles, stops = read(tmp_path)
                assert (len(records), troubles) == (seq - 1, [])
                assert stops[0] in (Stop.OPEN, Stop.TORN), "only a write in progress may be half there"
                calls.room_bytes = 1 << 20
                await log.written(seq)
        assert read(tmp_path) == (samples.records(1, 39), [], [Stop.SEALED])

    trio.run(main)


def test_a_failed_sync_is_survived_with_nothing_lost(tmp_path: Path) -> None:
    async def main() -> None:
        calls = SickCalls()
        async with journal(tmp_path, calls) as log:
            append(log, 1, 2)
            await until(lambda: log.synced_seq == 2)
            calls.sync_error = errno.EIO
            append(log, 3, 4)
            await log.written(4)
            await until(lambda: bool(log.trouble))
            append(log, 5, 5)
            calls.sync_error = 0
            await log.written(5)
            await until(lambda: log.synced_seq == 5)
            assert not log.trouble
        assert read(tmp_path) == (samples.records(1, 5), [], [Stop.SEALED])

    trio.run(main)


@pytest.mark.parametrize("sick", ["write", "sync"])
def test_trouble_while_rolling_heals(tmp_path: Path, sick: str) -> None:
    async def main() -> None:
        calls = SickCalls()
        async with journal(tmp_path, calls) as log:
            append(log, 1, 2)
            await until(lambda: log.synced_seq == 2)
            if sick == "write":
                calls.write_error = errno.ENOSPC
            else:
                calls.sync_error = errno.EIO
            log.roll(b"state", 3)
            append(log, 3, 3)
            await until(lambda: bool(log.trouble))
            calls.write_error = calls.sync_error = 0
            await log.written(3)
        assert read(tmp_path) == (samples.records(1, 3), [], [Stop.SEALED, Stop.SEALED])

    trio.run(main)


def test_memory_is_bounded_and_refused_frames_can_be_offered_again(tmp_path: Path) -> None:
    async def main() -> None:
        calls = SickCalls()
        settings = attrs.evolve(BRISK, lag_bytes_max=2000)
        async with journal(tmp_path, calls, settings) as log:
            calls.write_error = errno.ENOSPC
            append(log, 1, 1)
            await until(lambda: bool(log.trouble))
            appended: list[int] = [1]
            with pytest.raises(JournalFull, match=r"bytes of log wait in memory.*No space left"):
                append_until_refused(log, appended)
            assert 1000 < log.lag_bytes <= 2000
            calls.write_error = 0
            last_seq = appended[-1]
            await log.written(last_seq)
            append(log, last_seq + 1, last_seq + 1)
        assert read(tmp_path) == (samples.records(1, last_seq + 1), [], [Stop.SEALED])

    trio.run(main)


def test_closing_on_a_dead_device_ends_in_time_and_says_what_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        calls = SickCalls()
        directory, log = begin(tmp_path, calls)
        append(log, 1, 1)
        await log.written(1)
        calls.write_error = errno.ENOSPC
        append(log, 2, 2)
        with pytest.raises(JournalFull, match=r"items of log were not written: .*No space"):
            await log.aclose()
        directory.close()
        with pytest.raises(JournalFull, match="not written"):
            await log.written(2)
        with pytest.raises(JournalFull, match="nothing more"):
            append(log, 3, 3)
        assert read(tmp_path) == (samples.records(1, 1), [], [Stop.OPEN])

    trio.run(main)


def test_a_bug_in_the_thread_reaches_the_loop(tmp_path: Path) -> None:
    class Broken(FileCalls):
        def pwritev(self, fd: int, buffers: object, offset: int) -> int:
            if offset:
                raise RuntimeError("a bug")
            return super().pwritev(fd, buffers, offset)  # type: ignore[arg-type]  # only the test is loose

    async def main() -> None:
        directory, log = begin(tmp_path, Broken())
        append(log, 1, 1)
        with pytest.raises(JournalFull, match="a bug"):
            await log.written(1)
        assert "a bug" in log.trouble
        with pytest.raises(JournalFull, match="a bug"):
            append(log, 2, 2)
        with pytest.raises(RuntimeError, match="a bug"):
            await log.aclose()
        directory.close()

    trio.run(main)


def test_appends_never_wait_for_the_device(tmp_path: Path) -> None:
    class Stuck(FileCalls):
        gate = threading.Event()

        def fdatasync(self, fd: int) -> None:
            if os.fstat(fd).st_size > 300:
                assert self.gate.wait(30)
            super().fdatasync(fd)

    async def main() -> None:
        calls = Stuck()
        async with journal(tmp_path, calls) as log:
            append(log, 1, 1, pages=400)
            await log.written(1)
            for seq in range(2, 500):
                append(log, seq, seq)
            assert log.synced_seq == 0
            calls.gate.set()
            await log.written(499)
        assert read(tmp_path) == (samples.records(1, 499), [], [Stop.SEALED])

    trio.run(main)


def test_waiting_can_be_cancelled(tmp_path: Path) -> None:
    async def main() -> None:
        calls = SickCalls()
        async with journal(tmp_path, calls) as log:
            calls.write_error = errno.ENOSPC
            append(log, 1, 1)
            with trio.move_on_after(0.02) as scope:
                await log.written(1)
            assert scope.cancelled_caught
            calls.write_error = 0
            await log.written(1)

    trio.run(main)


def test_frames_gather_into_one_write_until_somebody_waits(tmp_path: Path) -> None:
    async def main() -> None:
        calls = SickCalls()
        settings = attrs.evolve(BRISK, linger_s=3600.0)
        async with journal(tmp_path, calls, settings) as log:
            begun_writes = calls.writes
            for seq in range(1, 101):
                append(log, seq, seq)
            with trio.fail_after(20):
                await log.written(50)
            assert log.written_seq == 100
            assert calls.writes == begun_writes + 1
            append(log, 101, 101)
            # Not even an hour of lingering delays the sync of what was written before.
            await until(lambda: log.synced_seq == 101)
            append(log, 102, 102)
        assert read(tmp_path) == (samples.records(1, 102), [], [Stop.SEALED])

    trio.run(main)


def test_old_segments_are_compressed_and_dropped_while_writing(tmp_path: Path) -> None:
    async def main() -> None:
        settings = attrs.evolve(BRISK, segment_bytes=4000, log_bytes_max=6000)
        async with journal(tmp_path, settings=settings) as log:
            for seq in range(1, 400):
                if log.segment_full:
                    log.roll(b"state", seq)
                append(log, seq, seq, pages=60)
                await log.written(seq)
            assert log.housekeeping_trouble == ""
            await until(lambda: not (tmp_path / "00000001-00000001.orbitlog").exists())
        records, troubles, _ = read(tmp_path)
        assert troubles == []
        assert records[0].seq > 1
        assert records[-1].seq == 399

    trio.run(main)


def test_a_successor_continues_the_chain(tmp_path: Path) -> None:
    async def main() -> None:
        async with journal(tmp_path) as log:
            append(log, 1, 5)
        directory = LogDirectory.open(tmp_path)
        recovery = directory.recover()
        assert recovery.predecessor is not None
        directory.close_chain(recovery.predecessor, codec.encode_records([samples.record(6)]))
        with pytest.raises(ValueError, match="incarnation 1"):
            FileJournal.begin(directory, SystemClock(), incarnation=1, kernel_revision=7, snapshot=b"")
        second = FileJournal.begin(
            directory, SystemClock(), incarnation=2, kernel_revision=7, snapshot=samples.EMPTY_STATE
        )
        append(second, 1, 2)
        await second.aclose()
        directory.close()
        expected = [*samples.records(1, 6), *samples.records(1, 2)]
        assert read(tmp_path) == (expected, [], [Stop.SEALED, Stop.SEALED])

    trio.run(main)


def test_a_log_that_cannot_be_begun_is_named(tmp_path: Path) -> None:
    calls = SickCalls()
    directory = LogDirectory.open(tmp_path, calls)
    calls.room_bytes = 0
    with pytest.raises(LogError, match=r"the log cannot be used: .*No space left.*free space"):
        FileJournal.begin(directory, SystemClock(), incarnation=1, kernel_revision=7, snapshot=b"")
    directory.close()


def test_a_really_full_disk() -> None:
    """The same as above without anything pretended: a 1 MiB filesystem that somebody else fills."""

    async def main(disk: Path) -> None:
        async with journal(disk / "log") as log:
            append(log, 1, 1)
            await log.written(1)
            ballast = disk / "ballast"
            with pytest.raises(OSError, match="No space"):
                fill(ballast)
            seq = 1
            with trio.fail_after(20):
                while not log.trouble:
                    seq += 1
                    append(log, seq, seq, pages=300)
                    await trio.sleep(0.001)
            assert "No space left on device" in log.trouble
            ballast.unlink()
            await log.written(seq)
        assert read(disk / "log") == (
            [samples.record(1), *samples.records(2, seq, pages=300)],
            [],
            [Stop.SEALED],
        )

    with small_disk(1 << 20) as disk:
        trio.run(main, disk)
