"""The thread that writes and syncs the log: the half of the journal that may wait for a device.

It gathers what was queued within some milliseconds into one write (group commit), and syncs with a
bounded lag. Trouble (no space, EIO, a read-only remount) is not an error of whoever queued: what was
queued stays, `trouble` says why, and the thread tries again until the device takes it.
What a failed sync means is told in `segment_writer`. Knows nothing of records.
"""

import heapq
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import attrs
import trio

from orbitkv.events.config import MIB
from orbitkv.events.frame import (
    FRAME_HEAD_BYTES,
    SEGMENT_FRAMES_BYTES_MAX,
    LogError,
    SegmentHeader,
    SegmentName,
)
from orbitkv.io.log_housekeeping import Housekeeper
from orbitkv.io.segment_writer import PendingFrame, SegmentWriter, explain
from orbitkv.io.segments import LogDirectory
from orbitkv.manager.ports import JournalFull


@attrs.frozen(slots=True, kw_only=True)
class JournalSettings:
    log_bytes_max: int = 8192 * MIB
    """Size of the directory; beyond it the oldest finished segments go."""
    segment_bytes: int = attrs.field(
        default=64 * MIB, validator=attrs.validators.le(SEGMENT_FRAMES_BYTES_MAX)
    )
    """Frames of one segment, its snapshot not counted."""
    segment_seconds: float = 3600.0
    sync_interval_s: float = 0.1
    """Longest time that a written frame waits for its sync to begin."""
    sync_bytes_max: int = 4 * MIB
    """Most bytes written and not synced before a sync begins; also the most written at once."""
    lag_bytes_max: int = 64 * MIB
    """Most bytes kept in memory while they cannot be written."""
    gather_s: float = 0.004
    """How long a frame that somebody waits for waits for company before it is written."""
    linger_s: float = 0.05
    """The same while nobody waits. Each turn of this thread takes the interpreter from the loop, and on a
    busy machine the loop's processor with it: with turns of 4 ms the log took a tenth of the manager's CPU,
    with these a twentieth. A process that ends without warning loses the records of about so long."""
    gather_bytes_max: int = 1 * MIB
    """So many bytes wait for no more company."""
    retry_interval_s: float = 0.5
    close_timeout_s: float = 5.0
    """How long closing waits for a device that takes nothing."""


@attrs.frozen(slots=True)
class Roll:
    """A new segment is to begin behind everything that was queued before."""

    header: SegmentHeader
    """All but the previous checksum, which is known once the segment before is sealed."""
    snapshot: bytes


_Waiter: TypeAlias = tuple[int, int, trio.Event, trio.lowlevel.TrioToken]


class JournalThread:
    """`put`, `wait_written` and `close` are for the loop; the loop may read every public attribute."""

    def __init__(
        self, directory: LogDirectory, settings: JournalSettings, header: SegmentHeader, snapshot: bytes
    ) -> None:
        """Writes the first segment (blocking). Raises OSError."""
        self.trouble = ""
        """Why the log cannot be written at present, in words."""
        self.failure: BaseException | None = None
        """What ended the thread before its time."""
        self.queued_bytes = 0
        self.rolls_queued = 0
        self.housekeeper = Housekeeper(directory.path, settings.log_bytes_max, directory.calls)
        self._directory = directory
        self._first = header
        self._settings = settings
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._queue: deque[PendingFrame | Roll] = deque()
        self._wake_at_bytes = sys.maxsize
        """So many queued bytes are worth waking the thread for: few when it is idle, never while it works."""
        self._closing = False
        self._ended = False
        self._waiters: list[_Waiter] = []
        self._waiters_made = 0
        self._oldest_unsynced_s = 0.0
        self.writer = SegmentWriter.create(directory.path, header, snapshot, directory.calls)
        self.written_seq = header.first_seq - 1
        self._thread = threading.Thread(target=self._work, name="orbitkv-journal", daemon=True)

    def start(self) -> None:
        self.housekeeper.tidy_before(SegmentName(self._first.incarnation, self._first.number))
        self._thread.start()

    def put(self, item: PendingFrame | Roll) -> None:
        """Queue it. Frames beyond the bound in memory are refused with JournalFull; a roll never is."""
        item_bytes = _queued_size(item)
        with self._lock:
            if self.failure is not None or self._closing:
                raise JournalFull(
                    f"the log takes nothing more: {self.trouble or 'it is being closed'}"
                ) from self.failure
            if isinstance(item, Roll):
                self.rolls_queued += 1
            elif self.queued_bytes + item_bytes > self._settings.lag_bytes_max:
                reason = self.trouble or "the disk is slower than the log grows"
                raise JournalFull(
                    f"{self.queued_bytes} bytes of log wait in memory, as many as may: {reason}"
                )
            self._queue.append(item)
            self.queued_bytes += item_bytes
            if isinstance(item, Roll) or self.queued_bytes >= self._wake_at_bytes:
                self._wake.notify()

    async def wait_written(self, seq: int) -> None:
        """Raises JournalFull when the thread has ended without writing it."""
        while self.written_seq < seq:
            event = trio.Event()
            with self._lock:
                if self._ended and self.written_seq < seq:
                    raise JournalFull(f"seq {seq} was not written: {self.trouble or 'the log is closed'}")
                if self.written_seq < seq:
                    self._waiters_made += 1
                    token = trio.lowlevel.current_trio_token()
                    if not self._waiters:
                        self._wake.notify()
                    heapq.heappush(self._waiters, (seq, self._waiters_made, event, token))
                else:
                    event.set()
            await event.wait()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Write, sync and seal everything, and end. Does not wait for it: `join` does."""
        with self._lock:
            self._closing = True
            self._wake.notify()

    def join(self) -> None:
        self._thread.join()
        self.housekeeper.stop()

    # --- what runs in the thread -----------------------------------------------------------------

    def _work(self) -> None:
        try:
            while self._turn():
                pass
            self._insist(self._seal)
        except BaseException as failure:
            # Also a bug must reach the loop: from now on every call raises.
            self.failure = failure
            self.trouble = self.trouble or f"the journal's thread has ended: {failure!r}"
        self.writer.close()
        with self._lock:
            self._ended = True
            waiting = self._take_waiters(sys.maxsize)
        _release(waiting)

    def _turn(self) -> bool:
        """Wait for work and do one piece of it. False when closing and nothing is left to write."""
        with self._lock:
            self._gather()
            group = self._next_group()
            if group is None and self._closing:
                return False
        if isinstance(group, Roll):
            self._insist(partial(self._change_segment, group))
        elif group is not None:
            self._insist(partial(self._write, group))
        if self._until_sync_s() <= 0:
            self._insist(self._sync)
        return True

    def _gather(self) -> None:
        """Sleep until there is a group worth writing, or a sync is due.

        It begins with lingering even when nothing is queued: a busy loop has something soon, and to be
        woken for its first frame would cost as much again as the whole turn.
        """
        if not self._waiters:
            self._linger(self._settings.linger_s)
        if self._waiters:
            self._linger(self._settings.gather_s)
        while not self._queue and not self._closing:
            remaining_s = self._until_sync_s()
            if remaining_s <= 0:
                return
            self._sleep(remaining_s, wake_at_bytes=0)

    def _linger(self, longest_s: float) -> None:
        """Sleep until there is company enough, somebody comes to wait, or a sync is due."""
        if not self._closing and not self.rolls_queued:
            self._sleep(min(longest_s, self._until_sync_s()), wake_at_bytes=self._settings.gather_bytes_max)

    def _sleep(self, longest_s: float, *, wake_at_bytes: int) -> None:
        if self.queued_bytes < wake_at_bytes or not self._queue:
            self._wake_at_bytes = wake_at_bytes
            self._wake.wait(min(longest_s, threading.TIMEOUT_MAX))
            self._wake_at_bytes = sys.maxsize

    def _next_group(self) -> list[PendingFrame] | Roll | None:
        """What stands first in the queue: frames up to a bound in bytes, or a roll. It stays there."""
        group: list[PendingFrame] = []
        group_bytes = 0
        for item in self._queue:
            if isinstance(item, Roll):
                return group or item
            group.append(item)
            group_bytes += len(item.payload)
            if group_bytes >= self._settings.sync_bytes_max:
                break
        return group or None

    def _insist(self, action: Callable[[], None]) -> None:
        """Do it, again and again until the device lets it succeed. Raises JournalFull when closing."""
        give_up_s = math.inf
        while True:
            try:
                action()
                self.trouble = ""
                return
            except OSError as error:
                trouble = explain(error, self.writer.path)
            except LogError as error:
                trouble = str(error)
            with self._lock:
                self.trouble = f"the log cannot be written: {trouble}; it is tried again by itself"
                if self._closing:
                    give_up_s = min(give_up_s, time.monotonic() + self._settings.close_timeout_s)
                    if time.monotonic() >= give_up_s:
                        raise JournalFull(f"{len(self._queue)} items of log were not written: {trouble}")
                self._pause()

    def _pause(self) -> None:
        """Before the next try. The wish to close cuts it short, once."""
        if self._closing:
            self._wake.wait(min(self._settings.retry_interval_s, self._settings.close_timeout_s / 10))
        else:
            self._wake.wait_for(lambda: self._closing, self._settings.retry_interval_s)

    def _write(self, group: list[PendingFrame]) -> None:
        if not self.writer.unsynced_bytes:
            self._oldest_unsynced_s = time.monotonic()
        self.writer.write(group)
        self._done(group)

    def _sync(self) -> None:
        self.writer.sync()

    def _seal(self) -> None:
        self.writer.seal()

    def _change_segment(self, roll: Roll) -> None:
        finished = self.writer
        finished.seal()
        header = attrs.evolve(roll.header, previous_checksum=finished.checksum)
        self.writer = SegmentWriter.create(self._directory.path, header, roll.snapshot, self._directory.calls)
        finished.close()
        self._done([roll])
        self.housekeeper.tidy_before(SegmentName(header.incarnation, header.number))

    def _done(self, items: Sequence[PendingFrame | Roll]) -> None:
        with self._lock:
            for item in items:
                self._queue.popleft()
                self.queued_bytes -= _queued_size(item)
                self.rolls_queued -= isinstance(item, Roll)
            self.written_seq = self.writer.written_seq
            waiting = self._take_waiters(self.written_seq)
        _release(waiting)

    def _until_sync_s(self) -> float:
        """Seconds until a sync is due; infinite if there is nothing to sync."""
        if not self.writer.unsynced_bytes:
            return math.inf
        if self.writer.unsynced_bytes >= self._settings.sync_bytes_max:
            return 0.0
        return self._oldest_unsynced_s + self._settings.sync_interval_s - time.monotonic()

    def _take_waiters(self, written_seq: int) -> list[_Waiter]:
        """Those who wait for a seq up to this one."""
        taken: list[_Waiter] = []
        while self._waiters and self._waiters[0][0] <= written_seq:
            taken.append(heapq.heappop(self._waiters))
        return taken


def _queued_size(item: PendingFrame | Roll) -> int:
    """A snapshot is not counted: one waits at a time, and that of 10^6 pages would leave frames no room."""
    return 0 if isinstance(item, Roll) else FRAME_HEAD_BYTES + len(item.payload)


def _release(waiting: list[_Waiter]) -> None:
    """Set the events in their loop. The loop may have ended meanwhile; then nobody waits."""
    for _, _, event, token in waiting:
        try:
            token.run_sync_soon(event.set)
        except trio.RunFinishedError:
            return
