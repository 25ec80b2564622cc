"""A large state's snapshot must not look like a log that lags."""

from pathlib import Path

import trio

from orbitkv.io.clock import SystemClock
from orbitkv.io.journal import FileJournal
from orbitkv.io.journal_thread import JournalSettings
from orbitkv.io.segments import LogDirectory

SNAPSHOT_BYTES = 8 << 20


def test_a_snapshot_larger_than_the_bound_in_memory_leaves_room_for_frames(tmp_path: Path) -> None:
    async def main() -> None:
        directory = LogDirectory.open(tmp_path / "log")
        settings = JournalSettings(lag_bytes_max=1 << 20, segment_bytes=1 << 20)
        journal = FileJournal.begin(
            directory, SystemClock(), incarnation=1, kernel_revision=1, snapshot=b"", settings=settings
        )
        journal.append(1, 1, b"x" * 1000)
        journal.roll(bytes(SNAPSHOT_BYTES), 2)
        assert journal.lag_bytes < 1 << 20, "admission goes on"
        for seq in range(2, 500):
            journal.append(seq, seq, b"x" * 1000)
        await journal.written(499)
        await journal.aclose()
        directory.close()
        assert sum(path.stat().st_size for path in directory.path.glob("*.orbitlog*")) > 500_000

    trio.run(main)
