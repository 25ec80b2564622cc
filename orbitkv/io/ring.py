"""The io_uring engine: submits in the event loop's thread, and wakes it through the ring's own descriptor.

The only module that imports liburing. What that package does not say, and this module works around:

- Its waiting calls keep the GIL, so it is only ever polled; the loop waits on `fileno()`.
- It reaches shared memory through `Iovec([memoryview])` alone, and each such Iovec leaks its buffer
  export. So one is built per place in the pool and length, and kept: the pool's geometry bounds them.
- It protects no buffer. The pool outlives the ring, and a place is its submitter's until it is reaped.
- Reading `cqe.res` raises OSError for a negative result, so it is caught entry by entry.
- A full submission queue answers None; the queue has room for TRANSFERS_MAX, and the store keeps to it.
- Set-up flags are 0: with DEFER_TASKRUN the descriptor never becomes readable, SQPOLL burns a core.

Without O_DIRECT a read that hits the page cache would be copied inside the submitting call, so buffered
transfers are marked IOSQE_ASYNC and done by the kernel's own workers.
"""

import errno
import os
import select
import time
from collections.abc import Callable, Sequence

import liburing

from orbitkv.io.engine import TRANSFERS_MAX, Finished, Transfer
from orbitkv.manager.ports import PageRead, PageWrite

RETRY_S = 0.002
"""Wait before a batch that the kernel had no memory for is offered again."""

PROBE_TIMEOUT_MS = 2000
_REFUSED = {
    errno.EPERM: "a container profile or the sysctl kernel.io_uring_disabled forbids it",
    errno.EACCES: "a container profile or the sysctl kernel.io_uring_disabled forbids it",
    errno.ENOSYS: "this kernel or sandbox has no io_uring",
    errno.ENOMEM: "the locked-memory limit (ulimit -l) is too small for a ring",
}


def why_refused() -> str:
    """What the host says against io_uring, in words; empty if a read through a ring came back."""
    ring = liburing.Ring()
    try:
        liburing.io_uring_queue_init(TRANSFERS_MAX, ring, 0)
    except OSError as refused:
        return _in_words(refused)
    try:
        return _try_read(ring)
    except OSError as refused:
        return _in_words(refused)
    finally:
        liburing.io_uring_queue_exit(ring)


def _try_read(ring: liburing.Ring) -> str:
    descriptor = os.memfd_create("probe")
    try:
        os.pwrite(descriptor, b"probe", 0)
        buffer = bytearray(5)
        sqe = liburing.io_uring_get_sqe(ring)
        liburing.io_uring_prep_read(sqe, descriptor, buffer, 0)
        liburing.io_uring_submit(ring)
        waiting = select.poll()
        waiting.register(ring.ring_fd, select.POLLIN)
        waiting.poll(PROBE_TIMEOUT_MS)
        cqe = liburing.Cqe()
        results = [cqe[0].res for _ in liburing.CqeIter(ring, cqe)]
        return "" if results and buffer == b"probe" else "a read was accepted and did not come back"
    finally:
        os.close(descriptor)


def _in_words(refused: OSError) -> str:
    name = errno.errorcode.get(refused.errno or 0, "no error number")
    why = _REFUSED.get(refused.errno or 0, refused.strerror or "it gave no reason")
    return f"{name}, {why}"


class RingEngine:
    name = "io_uring"

    def __init__(self, descriptor: int, pool_view: memoryview, *, direct: bool) -> None:
        """`descriptor` is the page file, opened as `direct` says. Raises OSError if there can be no ring."""
        self._descriptor = descriptor
        self._pool_view = pool_view
        self._sqe_flags = 0 if direct else liburing.IOSQE_ASYNC
        self._iovecs: dict[tuple[int, int], liburing.Iovec] = {}
        self._pending: dict[int, tuple[Transfer, int]] = {}
        self._serial = 0
        self._unsubmitted = False
        self._ring = liburing.Ring()
        self._cqe = liburing.Cqe()
        liburing.io_uring_queue_init(TRANSFERS_MAX, self._ring, 0)

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    @property
    def patience_s(self) -> float | None:
        return RETRY_S if self._unsubmitted else None

    def fileno(self) -> int:
        descriptor: int = self._ring.ring_fd
        return descriptor

    def submit(self, reads: Sequence[PageRead], writes: Sequence[PageWrite]) -> None:
        within = len(self._pending) + len(reads) + len(writes)
        assert within <= TRANSFERS_MAX, f"{within} transfers in flight, more than {TRANSFERS_MAX}"
        now_ns = time.monotonic_ns()
        self._prepare(liburing.io_uring_prep_readv, reads, now_ns)
        self._prepare(liburing.io_uring_prep_writev, writes, now_ns)
        self._enter()

    def reap(self) -> list[Finished]:
        finished: list[Finished] = []
        cqe, pending = self._cqe, self._pending
        for _ in liburing.CqeIter(self._ring, cqe):
            entry = cqe[0]
            transfer, submitted_ns = pending.pop(entry.user_data)
            try:
                result: int = entry.res
            except OSError as refused:
                result = -(refused.errno or errno.EIO)
            finished.append(Finished(transfer, result, submitted_ns))
        if finished:
            liburing.io_uring_cq_advance(self._ring, len(finished))
        if self._unsubmitted:
            self._enter()
        return finished

    def close(self) -> None:
        assert not self._pending, f"{len(self._pending)} transfers still own their buffers"
        liburing.io_uring_queue_exit(self._ring)

    def _prepare(self, prepare: Callable[..., None], transfers: Sequence[Transfer], now_ns: int) -> None:
        for transfer in transfers:
            sqe = liburing.io_uring_get_sqe(self._ring)
            iovec = self._iovec(transfer.pool_offset, transfer.image_bytes)
            prepare(sqe, self._descriptor, iovec, transfer.file_offset)
            if self._sqe_flags:
                sqe.flags = self._sqe_flags
            self._serial += 1
            sqe.user_data = self._serial
            self._pending[self._serial] = (transfer, now_ns)

    def _iovec(self, pool_offset: int, length: int) -> liburing.Iovec:
        place = (pool_offset, length)
        iovec = self._iovecs.get(place)
        if iovec is None:
            view = self._pool_view[pool_offset : pool_offset + length]
            assert view.nbytes == length, f"the pool ends before {pool_offset} + {length}"
            iovec = self._iovecs[place] = liburing.Iovec([view])
        return iovec

    def _enter(self) -> None:
        """Give the kernel what is prepared. It may take a part of it, or be short of memory for now."""
        try:
            while liburing.io_uring_sq_ready(self._ring) and liburing.io_uring_submit(self._ring):
                pass
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as refused:
            if refused.errno not in (errno.EBUSY, errno.ENOMEM):
                raise
        self._unsubmitted = liburing.io_uring_sq_ready(self._ring) > 0
