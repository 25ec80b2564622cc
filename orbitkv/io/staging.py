"""A client's staging window: memory of another process that the manager copies saved pages out of.

The window must be sealed against shrinking, because touching a page that its owner has cut off would
kill the manager with SIGBUS. It need not be sealed against writing: what is copied is hashed in the
pool afterwards, so an engine that goes on scribbling harms nothing but its own page.
This module maps and checks; it never writes to the window.
"""

import fcntl
import mmap
import os

import numpy as np
import numpy.typing as npt


def map_staging(fd: int, staging_bytes: int) -> npt.NDArray[np.uint8]:
    """A read-only array over the window. Closes the descriptor, also when it refuses.

    The mapping ends when the array and every slice of it have gone. Raises ValueError for a
    descriptor that is no window (says why), OSError when the kernel does not map it.
    """
    try:
        _check(fd, staging_bytes)
        window = mmap.mmap(fd, staging_bytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
    finally:
        os.close(fd)
    return np.frombuffer(window, np.uint8)


def _check(fd: int, staging_bytes: int) -> None:
    if staging_bytes <= 0:
        raise ValueError(
            f"a staging window of {staging_bytes} bytes holds nothing: set staging_bytes above 0"
        )
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise ValueError(
            "the staging descriptor is no memory file: create it with memfd_create(MFD_ALLOW_SEALING)"
        ) from error
    if not seals & fcntl.F_SEAL_SHRINK:
        raise ValueError(
            "the staging window can still be cut short, which would crash the manager: "
            "add F_SEAL_SHRINK to it before it is sent"
        )
    size_bytes = os.fstat(fd).st_size
    if size_bytes < staging_bytes:
        raise ValueError(
            f"the staging window has {size_bytes} bytes and was announced with {staging_bytes}: "
            "give the memory file its size before it is sealed and sent"
        )
