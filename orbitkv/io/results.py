"""What a byte count or an errno from the device means, in the words of the ports."""

import errno
import os
import time

from orbitkv.events.outcomes import ReadOutcome, WriteOutcome
from orbitkv.io.engine import Finished
from orbitkv.manager.ports import PageRead, PageWrite, ReadDone, WriteDone


def read_done(finished: Finished, read: PageRead, outcome: ReadOutcome) -> ReadDone:
    """A read of full length, with the verdict on what it brought."""
    return ReadDone(read.token, outcome, finished.result, _elapsed_us(finished))


def read_missed(finished: Finished, read: PageRead) -> ReadDone:
    """A read that brought less than the image."""
    if finished.result < 0:
        detail = os.strerror(-finished.result)
        return ReadDone(read.token, ReadOutcome.FAILED, 0, _elapsed_us(finished), detail)
    detail = f"{finished.result} of {read.image_bytes} bytes"
    return ReadDone(read.token, ReadOutcome.SHORT, finished.result, _elapsed_us(finished), detail)


def write_done(finished: Finished, write: PageWrite) -> WriteDone:
    if finished.result < 0:
        return write_failed(write.token, -finished.result, _elapsed_us(finished))
    if finished.result != write.image_bytes:
        detail = f"{finished.result} of {write.image_bytes} bytes"
        return WriteDone(write.token, WriteOutcome.SHORT, _elapsed_us(finished), detail)
    return WriteDone(write.token, WriteOutcome.WRITTEN, _elapsed_us(finished))


def write_failed(token: int, number: int | None, elapsed_us: int = 0) -> WriteDone:
    """A write that the device, or the directory around it, refused with this errno."""
    outcome = WriteOutcome.NO_SPACE if number in (errno.ENOSPC, errno.EDQUOT) else WriteOutcome.FAILED
    return WriteDone(token, outcome, elapsed_us, os.strerror(number or errno.EIO))


def _elapsed_us(finished: Finished) -> int:
    return (time.monotonic_ns() - finished.submitted_ns) // 1000
