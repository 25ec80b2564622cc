"""A process that writes a log until it is killed. Says on its output what has been written.

    python -m tests.log.writing_process LOG

As a manager does: recovers the log, closes the chain of the one before, and begins its own.
"""

import sys
from pathlib import Path

import trio

from orbitkv.events.codec import encode_records
from orbitkv.io.clock import SystemClock
from orbitkv.io.journal import FileJournal
from orbitkv.io.journal_thread import JournalSettings
from orbitkv.io.segments import LogDirectory
from tests.log import samples


async def main(path: Path) -> None:
    directory = LogDirectory.open(path)
    recovery = directory.recover()
    if recovery.predecessor is not None:
        record = samples.record(recovery.predecessor.next_seq)
        directory.close_chain(recovery.predecessor, encode_records([record]))
    incarnation = directory.last_incarnation + 1
    journal = FileJournal.begin(
        directory,
        SystemClock(),
        incarnation=incarnation,
        kernel_revision=7,
        snapshot=samples.EMPTY_STATE,
        settings=JournalSettings(gather_s=0.0, segment_bytes=20_000, sync_interval_s=0.005),
    )
    seq = 1
    while True:
        for _ in range(20):
            if journal.segment_full:
                journal.roll(b"state", seq)
            last_seq = seq + seq % 7
            journal.append(seq, last_seq, encode_records(samples.records(seq, last_seq, pages=seq % 90)))
            seq = last_seq + 1
        await journal.written(seq - 1)
        print(incarnation, journal.written_seq, flush=True)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
