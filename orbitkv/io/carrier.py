"""Copies and checksums off the event loop: staging windows to pool, and the trailers of full pages.

A few worker threads take jobs in order of submission. They spend their time in `np.copyto` and xxhash,
both of which let go of the GIL, so the loop goes on. Results are handed over in batches: a worker
wakes the loop once, and whatever has gathered by then is one answer of `completions()`.

How many jobs can wait is bounded by who submits: saves by the staging space of the clients, seals by
the pages of the pool. A job keeps the window that it reads from mapped, so a client may detach or die
at any time. What a page means and whether anybody still wants it is not known here.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import attrs
import numpy as np
import numpy.typing as npt
import trio

from orbitkv.events.ids import TRAILER_BYTES
from orbitkv.events.outcomes import CopyOutcome
from orbitkv.io.image import seal
from orbitkv.io.staging import map_staging
from orbitkv.manager.ports import CarrierDone, CopyDone, PageSeal, SealDone, SliceCopy

WORKERS_MAX = 4
"""More threads than this share one memory channel's bandwidth and gain nothing."""

Job = Callable[[], CarrierDone]


class Carrier:
    """Implements `ports.Carrier` over a writable view of the pool. To be made inside a trio run.

    Threads start with the first job and end in `aclose()`.
    """

    def __init__(self, pool: memoryview, workers: int | None = None) -> None:
        self._view = pool
        self._pool = np.frombuffer(pool, np.uint8)
        self._workers_max = workers or min(WORKERS_MAX, os.cpu_count() or 1)
        self._windows: dict[int, npt.NDArray[np.uint8]] = {}
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._inbox = _Inbox()
        self._in_flight = 0
        self._closed = False

    @property
    def in_flight(self) -> int:
        """Submitted and not yet returned by `completions()`."""
        return self._in_flight

    def attach_staging(self, session: int, fd: int, staging_bytes: int) -> None:
        """Takes over the descriptor. Raises ValueError with a reason, OSError."""
        self._windows[session] = map_staging(fd, staging_bytes)

    def detach_staging(self, session: int) -> None:
        """Copies submitted before still end as COPIED; later ones end as SOURCE_GONE."""
        self._windows.pop(session, None)

    def submit_copies(self, copies: Sequence[SliceCopy]) -> None:
        self._submit([_copy_job(self._windows.get(copy.session), self._pool, copy) for copy in copies])

    def submit_seals(self, seals: Sequence[PageSeal]) -> None:
        self._submit([_seal_job(self._view, page) for page in seals])

    async def completions(self) -> Sequence[CarrierDone]:
        """At least one result. Raises what a job raised: that is a broken invariant, not a bad page."""
        done = await self._inbox.receive()
        self._in_flight -= len(done)
        return done

    async def aclose(self) -> None:
        """Ends when every job that was submitted has ended, then unmaps the windows."""
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        with trio.CancelScope(shield=True):
            for thread in self._threads:
                await trio.to_thread.run_sync(thread.join)
        self._threads.clear()
        self._windows.clear()

    def _submit(self, jobs: Sequence[Job]) -> None:
        assert not self._closed, "the carrier is closed"
        while len(self._threads) < min(self._workers_max, self._in_flight + len(jobs)):
            thread = threading.Thread(target=self._work, name="orbitkv-carrier", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._in_flight += len(jobs)
        for job in jobs:
            self._jobs.put(job)

    def _work(self) -> None:
        while self._work_once():
            pass

    def _work_once(self) -> bool:
        """A function of its own, so that an idle worker keeps no window mapped through its last job."""
        job = self._jobs.get()
        if job is None:
            return False
        try:
            self._inbox.put(job())
        except Exception as error:
            self._inbox.fail(error)
        return True


@attrs.define(slots=True)
class _Inbox:
    """From worker threads to one waiting task."""

    _done: deque[CarrierDone] = attrs.Factory(deque)
    _failure: Exception | None = None
    _woken: trio.Event = attrs.Factory(trio.Event)
    _loop: trio.lowlevel.TrioToken = attrs.Factory(trio.lowlevel.current_trio_token)

    def put(self, done: CarrierDone) -> None:
        """Called by workers."""
        self._done.append(done)
        self._wake()

    def fail(self, error: Exception) -> None:
        """Called by workers."""
        self._failure = error
        self._wake()

    async def receive(self) -> list[CarrierDone]:
        await trio.lowlevel.checkpoint()
        while not self._done:
            if self._failure is not None:
                raise self._failure
            self._woken = trio.Event()
            await self._woken.wait()
        return [self._done.popleft() for _ in range(len(self._done))]

    def _wake(self) -> None:
        try:
            self._loop.run_sync_soon(self._set, idempotent=True)
        except trio.RunFinishedError:
            pass  # the loop is gone, and with it everybody who could want the result

    def _set(self) -> None:
        self._woken.set()


def _copy_job(window: npt.NDArray[np.uint8] | None, pool: npt.NDArray[np.uint8], copy: SliceCopy) -> Job:
    """Where the slice lies in the window is the client's word, where it goes is the manager's."""
    start = time.monotonic_ns()
    end = copy.pool_offset + copy.padded_bytes
    assert copy.pool_offset >= 0, f"a slice would be copied to before the pool: {copy}"
    assert end <= len(pool), f"a slice would be copied to beyond the pool: {copy}"
    assert 0 < copy.payload_bytes <= copy.padded_bytes, f"a slice longer than its place: {copy}"
    source_end = copy.staging_offset + copy.payload_bytes
    if window is None or copy.staging_offset < 0 or source_end > len(window):
        return lambda: CopyDone(copy.token, CopyOutcome.SOURCE_GONE, _since_us(start))
    source = window[copy.staging_offset : source_end]
    target = pool[copy.pool_offset : end]

    def run() -> CarrierDone:
        np.copyto(target[: copy.payload_bytes], source)
        target[copy.payload_bytes :] = 0
        return CopyDone(copy.token, CopyOutcome.COPIED, _since_us(start))

    return run


def _seal_job(pool: memoryview, page: PageSeal) -> Job:
    start = time.monotonic_ns()
    end = page.pool_offset + page.footprint_bytes + TRAILER_BYTES
    assert page.pool_offset >= 0, f"a page would be sealed before the pool: {page}"
    assert end <= len(pool), f"a page would be sealed beyond the pool: {page}"

    def run() -> CarrierDone:
        seal(pool[page.pool_offset : end], page.identity)
        return SealDone(page.token, _since_us(start))

    return run


def _since_us(start_ns: int) -> int:
    return (time.monotonic_ns() - start_ns) // 1000
