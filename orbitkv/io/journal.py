"""The log as the manager's loop sees it: it hands over bytes and goes on.

Implements `ports.Journal`. Nothing here waits for a device (`journal_thread` does), and nothing here
knows what a record means. While the device is in trouble, frames are kept in memory, `trouble` says
why, and the log goes on by itself when the device does. Only when the bound in memory is met, `append`
raises JournalFull; whoever wants to see that coming looks at `trouble` and `lag_bytes`.
"""

import attrs
import trio

from orbitkv.events.config import SECOND_NS
from orbitkv.events.frame import FRAME_HEAD_BYTES, HEADER_BYTES, SegmentHeader
from orbitkv.io.journal_thread import JournalSettings, JournalThread, Roll
from orbitkv.io.segment_writer import PendingFrame
from orbitkv.io.segments import LogDirectory, explained
from orbitkv.manager.ports import Clock


class FileJournal:
    """The log of one incarnation. Made by `begin`; for the loop's thread alone."""

    def __init__(
        self, thread: JournalThread, clock: Clock, settings: JournalSettings, header: SegmentHeader
    ) -> None:
        self._thread = thread
        self._clock = clock
        self._settings = settings
        self._header = header
        self._next_seq = header.first_seq
        self._segment_bytes = 0
        self._segment_begun_ns = clock.monotonic_ns()
        self._log_bytes = 0

    @classmethod
    def begin(
        cls,
        directory: LogDirectory,
        clock: Clock,
        *,
        incarnation: int,
        kernel_revision: int,
        snapshot: bytes,
        settings: JournalSettings | None = None,
    ) -> "FileJournal":
        """Write the incarnation's first segment (blocking) and start the thread. Raises LogError.

        `snapshot` is that of the empty state; the first record has seq 1. The directory must have been
        recovered and the old chain closed; its lock stays with the caller, who closes it after `aclose`.
        """
        if incarnation <= directory.last_incarnation:
            raise ValueError(f"incarnation {incarnation}: this log has seen {directory.last_incarnation}")
        header = SegmentHeader(
            log_id=directory.log_id,
            incarnation=incarnation,
            number=1,
            first_seq=1,
            wall_offset_ns=clock.unix_ns() - clock.monotonic_ns(),
            kernel_revision=kernel_revision,
            previous_checksum=directory.previous_checksum,
        )
        settings = settings or JournalSettings()
        with explained(directory.path):
            thread = JournalThread(directory, settings, header, snapshot)
        journal = cls(thread, clock, settings, header)
        journal._log_bytes = HEADER_BYTES + FRAME_HEAD_BYTES + len(snapshot)
        thread.start()
        return journal

    def append(self, first_seq: int, last_seq: int, payload: bytes) -> None:
        """Queue one log frame. Never blocks. Raises JournalFull when the bound in memory is met."""
        if first_seq != self._next_seq or last_seq < first_seq:
            raise ValueError(f"frame of seqs {first_seq} to {last_seq}, seq {self._next_seq} is next")
        self._thread.put(PendingFrame(first_seq, last_seq, payload))
        self._next_seq = last_seq + 1
        self._segment_bytes += FRAME_HEAD_BYTES + len(payload)
        self._log_bytes += FRAME_HEAD_BYTES + len(payload)

    @property
    def segment_full(self) -> bool:
        """True when the next frame should start a new segment. Never while the log is in trouble."""
        if not self._segment_bytes or self._thread.rolls_queued or self._thread.trouble:
            return False
        if self._segment_bytes >= self._settings.segment_bytes:
            return True
        age_ns = self._clock.monotonic_ns() - self._segment_begun_ns
        return age_ns >= self._settings.segment_seconds * SECOND_NS

    def roll(self, snapshot: bytes, next_seq: int) -> None:
        """Seal the current segment and begin the next one with this snapshot of the state."""
        if next_seq != self._next_seq:
            raise ValueError(f"roll at seq {next_seq}, seq {self._next_seq} is next")
        now_ns = self._clock.monotonic_ns()
        self._header = attrs.evolve(
            self._header,
            number=self._header.number + 1,
            first_seq=next_seq,
            wall_offset_ns=self._clock.unix_ns() - now_ns,
        )
        self._thread.put(Roll(self._header, snapshot))
        self._segment_bytes = 0
        self._segment_begun_ns = now_ns
        self._log_bytes += HEADER_BYTES + 2 * FRAME_HEAD_BYTES + len(snapshot)

    async def written(self, seq: int) -> None:
        """Wait until the frame with this seq is in the file. Raises JournalFull if it never will be."""
        await self._thread.wait_written(seq)

    @property
    def written_seq(self) -> int:
        return self._thread.written_seq

    @property
    def synced_seq(self) -> int:
        """Every record up to here survives a power loss."""
        return self._thread.writer.synced_seq

    @property
    def lag_bytes(self) -> int:
        """Bytes appended and not yet synced."""
        return self._thread.queued_bytes + self._thread.writer.unsynced_bytes

    @property
    def log_bytes(self) -> int:
        """Bytes that this incarnation has put into the log, before compression; never falls."""
        return self._log_bytes

    @property
    def trouble(self) -> str:
        """Why the log cannot be written at present, in words; empty when it can."""
        return self._thread.trouble

    @property
    def housekeeping_trouble(self) -> str:
        """Why old segments cannot be compressed or dropped, in words; writing goes on meanwhile."""
        return self._thread.housekeeper.trouble

    async def aclose(self) -> None:
        """Write, sync and seal everything, then close. Shielded from cancellation. Idempotent.

        Raises JournalFull if the device does not take it within `close_timeout_s`.
        """
        self._thread.close()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._thread.join)
        if self._thread.failure is not None:
            raise self._thread.failure
