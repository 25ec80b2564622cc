"""The SSD store: moves page images between pool and page file, checks what it reads, keeps the directory.

Implements `ports.PageStore`. It has no task of its own: `submit_*` hands batches to the engine at once,
and whoever awaits `completions()` drives the rest. On each wake the device is given its next transfers
before anything is checked, so the disk reads on while the processor hashes.

A write takes its slot out of the directory first and puts it in after the data: a slot being overwritten
is never listed. Nothing submitted is taken back. The store decides nothing about pages: which slot, which
page, whether to quarantine is the kernel's business.
"""

import select
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import trio

from orbitkv.events.config import MIB
from orbitkv.events.ids import TRAILER_BYTES
from orbitkv.events.outcomes import ReadOutcome, WriteOutcome
from orbitkv.io.doorbell import Doorbell
from orbitkv.io.engine import TRANSFERS_MAX, Finished, IoEngine
from orbitkv.io.image import verify
from orbitkv.io.lanes import Lanes
from orbitkv.io.results import read_done, read_missed, write_done, write_failed
from orbitkv.io.store_files import StoreFiles
from orbitkv.io.store_geometry import StoreGeometry
from orbitkv.io.threads import ThreadEngine
from orbitkv.io.verifier import Check, Verifier
from orbitkv.manager.ports import PageRead, PageWrite, ReadDone, RecoveredSegment, StoreInfo, WriteDone

INLINE_CHECK_BYTES_MAX = MIB
"""Larger images are checked in a thread: from here on a check costs the loop more than a hand-over."""
CHECK_BATCH_BYTES_MAX = 4 * MIB
"""Most that one call of `completions()` checks in the loop before it returns what it has."""


def open_store(
    path: Path,
    *,
    pool_view: memoryview,
    capacity_bytes: int,
    segment_bytes: int,
    slots_per_segment_max: int,
    io_engine: str = "auto",
    io_direct: str = "auto",
    inflight_bytes_max: int = 32 * MIB,
) -> "SsdStore":
    """Open or create the store in the directory `path`. Raises StoreError, which names the setting to mend.

    `pool_view` is the whole pool, writable, its first byte aligned to 4 KiB; it must outlive the store.
    `io_engine` is auto, io_uring or threads; `io_direct` is auto, on or off. `inflight_bytes_max` bounds
    what the device holds at once; anything beyond waits in the store.
    """
    geometry = StoreGeometry(capacity_bytes, segment_bytes, slots_per_segment_max)
    files = StoreFiles(path, geometry, io_engine=io_engine, io_direct=io_direct)
    try:
        engine = make_engine(files, pool_view)
        return SsdStore(files, engine, pool_view, inflight_bytes_max=inflight_bytes_max)
    except BaseException:
        files.close()
        raise


def make_engine(files: StoreFiles, pool_view: memoryview) -> IoEngine:
    """The engine that was chosen for these files, between them and this pool. Raises OSError."""
    if files.choice.engine == ThreadEngine.name:
        return ThreadEngine(files.page_file.descriptor, pool_view)
    # Only here, so that a host without liburing still has its fallback.
    from orbitkv.io.ring import RingEngine

    return RingEngine(files.page_file.descriptor, pool_view, direct=files.choice.direct)


class SsdStore:
    """See `ports.PageStore`. One task at a time may wait in `completions()`."""

    def __init__(
        self,
        files: StoreFiles,
        engine: IoEngine,
        pool_view: memoryview,
        *,
        inflight_bytes_max: int,
        check: Check | None = verify,
        inline_check_bytes_max: int = INLINE_CHECK_BYTES_MAX,
    ) -> None:
        """Takes over `files` and `engine`. `check` None believes the device: only ever for measuring."""
        self._files = files
        self._directory = files.directory
        self._engine = engine
        self._lanes = Lanes(inflight_bytes_max=inflight_bytes_max, transfers_max=TRANSFERS_MAX)
        self._inline_check_bytes_max = inline_check_bytes_max
        self._doorbell = Doorbell()
        self._is_checked = check is not None
        self._verifier = Verifier(pool_view, check or verify, self._doorbell)
        self._unchecked: deque[tuple[Finished, PageRead]] = deque()
        self._done: list[ReadDone | WriteDone] = []
        self._in_flight = 0
        self._either = select.epoll()
        self._either.register(engine.fileno(), select.EPOLLIN)
        self._either.register(self._doorbell.fileno(), select.EPOLLIN)
        self._waiting = False
        self._waiter_left = trio.Event()
        self._syncing = trio.Lock()
        self._closed = False

    @property
    def info(self) -> StoreInfo:
        choice, geometry = self._files.choice, self._files.geometry
        return StoreInfo(
            engine=choice.engine,
            direct=choice.direct,
            reason="; ".join(filter(None, (choice.reason, self._directory.reset_reason))),
            path=str(self._files.path),
            capacity_bytes=geometry.page_file_bytes,
            segment_bytes=geometry.segment_bytes,
        )

    @property
    def in_flight(self) -> int:
        """Submitted and not yet returned by `completions()`."""
        return self._in_flight

    def recovered(self) -> Sequence[RecoveredSegment]:
        """What the directory held when the store was opened; to be asked once, at start."""
        return self._directory.recovered(self._files.page_file.size_bytes)

    def submit_reads(self, reads: Sequence[PageRead]) -> None:
        self._expect_open()
        self._in_flight += len(reads)
        self._lanes.add_reads(reads)
        self._fill()

    def submit_writes(self, writes: Sequence[PageWrite]) -> None:
        self._expect_open()
        self._in_flight += len(writes)
        self._lanes.add_writes([write for write in writes if self._unlist(write)])
        self._fill()

    async def completions(self) -> Sequence[ReadDone | WriteDone]:
        """At least one result. Cancelling it loses none. Raises ClosedResourceError when the store closes."""
        self._expect_open()
        if self._waiting:
            raise trio.BusyResourceError("another task already waits for this store's completions")
        self._waiting = True
        try:
            if self._unchecked or self._done:
                await trio.lowlevel.checkpoint()
            while not self._done:
                if not self._unchecked:
                    await self._wait()
                self._collect()
        finally:
            self._waiting = False
            if self._closed:
                self._waiter_left.set()
        done, self._done = self._done, []
        self._in_flight -= len(done)
        return done

    def format_segment(self, segment: int, slot_bytes: int) -> None:
        self._files.format_segment(segment, slot_bytes)

    def clear_slots(self, segment: int, slot_indices: Sequence[int], *, quarantine: bool) -> None:
        change = self._directory.quarantine if quarantine else self._directory.clear
        change(segment, slot_indices)

    async def sync(self) -> None:
        async with self._syncing:
            self._expect_open()
            await trio.to_thread.run_sync(self._files.sync)

    async def aclose(self) -> None:
        """Drain, flush, close. Results that nobody has fetched are dropped. Raises OSError after closing."""
        if self._closed:
            return
        self._closed = True
        with trio.CancelScope(shield=True):
            await self._dismiss_waiter()
            while self._lanes.waiting or self._engine.in_flight or self._verifier.in_flight:
                await self._wait()
                self._collect()
            async with self._syncing:
                try:
                    await trio.to_thread.run_sync(self._files.sync)
                finally:
                    self._close()

    # --- driving -----------------------------------------------------------------------------------

    async def _wait(self) -> None:
        """Until the engine or the verifier has something, or the engine wants to be asked again."""
        patience_s = self._engine.patience_s
        if patience_s is None:
            await trio.lowlevel.wait_readable(self._either)
        else:
            with trio.move_on_after(patience_s):
                await trio.lowlevel.wait_readable(self._either)

    def _collect(self) -> None:
        finished = self._engine.reap()
        for each in finished:
            self._lanes.landed(each.transfer)
        if finished:
            self._fill()
        for each in finished:
            self._sort(each)
        self._check_some()
        self._doorbell.answer()
        if self._verifier.in_flight:
            self._done += [read_done(*verdict) for verdict in self._verifier.collect()]

    def _fill(self) -> None:
        reads, writes = self._lanes.take()
        if reads or writes:
            self._engine.submit(reads, writes)

    def _sort(self, finished: Finished) -> None:
        transfer = finished.transfer
        if isinstance(transfer, PageWrite):
            self._done.append(self._list(write_done(finished, transfer), transfer))
        elif finished.result != transfer.image_bytes:
            self._done.append(read_missed(finished, transfer))
        elif not self._is_checked:
            self._done.append(read_done(finished, transfer, ReadOutcome.WHOLE))
        elif transfer.image_bytes > self._inline_check_bytes_max:
            self._verifier.submit(finished, transfer)
        else:
            self._unchecked.append((finished, transfer))

    def _check_some(self) -> None:
        left_bytes = CHECK_BATCH_BYTES_MAX
        while self._unchecked and left_bytes > 0:
            finished, read = self._unchecked.popleft()
            left_bytes -= read.image_bytes
            self._done.append(read_done(finished, read, self._verifier.verdict(read)))

    # --- the directory around a write ----------------------------------------------------------------

    def _unlist(self, write: PageWrite) -> bool:
        """Take the slot out of the directory before it is overwritten; report the write as failed if not."""
        segment_end = (write.segment + 1) * self._files.geometry.segment_bytes
        assert write.file_offset + write.image_bytes <= segment_end <= self._files.geometry.page_file_bytes
        try:
            self._directory.clear(write.segment, [write.slot_index])
        except OSError as refused:
            self._done.append(write_failed(write.token, refused.errno))
            self._doorbell.ring()
            return False
        return True

    def _list(self, done: WriteDone, write: PageWrite) -> WriteDone:
        """Put the slot into the directory after it has been written; without its entry it is not."""
        if done.outcome is not WriteOutcome.WRITTEN:
            return done
        footprint_bytes = write.image_bytes - TRAILER_BYTES
        try:
            self._directory.set_written(write.segment, write.slot_index, write.identity, footprint_bytes)
        except OSError as refused:
            return write_failed(write.token, refused.errno, done.elapsed_us)
        return done

    # --- closing ---------------------------------------------------------------------------------------

    def _expect_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("the SSD store is closed")

    async def _dismiss_waiter(self) -> None:
        trio.lowlevel.notify_closing(self._either)
        if self._waiting:
            await self._waiter_left.wait()

    def _close(self) -> None:
        self._either.close()
        self._engine.close()
        self._verifier.close()
        self._doorbell.close()
        self._files.close()
