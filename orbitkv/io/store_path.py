"""Takes possession of the store's directory: it exists, it can be written, and nobody else has it.

The claim is an flock on a lock file, so it ends with the process however that ends; a lock file left by
a killed manager means nothing.
"""

import errno
import fcntl
import os
from pathlib import Path

from orbitkv.io.errors import StoreError

LOCK_NAME = "lock"
_HOLDER_BYTES = 20
_MEND = "set ssd_path to a directory on a local disk that this user can write"


class StoreClaim:
    """Holds the lock from construction to `close`. Raises StoreError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _make_directory(path)
        self._descriptor = _open_lock(path)
        try:
            self._lock()
        except BaseException:
            os.close(self._descriptor)
            raise

    def close(self) -> None:
        os.close(self._descriptor)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as refused:
            holder = os.pread(self._descriptor, _HOLDER_BYTES, 0).decode("ascii", "replace").strip()
            raise _lock_error(self.path, refused, holder) from None
        try:
            # Always as long, so that an old lock file on a full disk is overwritten in place.
            os.pwrite(self._descriptor, b"%-*d\n" % (_HOLDER_BYTES - 1, os.getpid()), 0)
        except OSError as refused:
            raise StoreError(f"the SSD path {self.path} {path_trouble(refused)}") from None


def _make_directory(path: Path) -> None:
    """Only the last part of the path is made: a missing parent is more likely an unmounted disk."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        raise StoreError(f"the SSD path {path} is not a directory: {_MEND}") from None
    except FileNotFoundError:
        raise StoreError(
            f"the SSD path {path} cannot be made because {path.parent} does not exist: "
            f"mount or make {path.parent}, or {_MEND}"
        ) from None
    except OSError as refused:
        raise StoreError(f"the SSD path {path} cannot be made ({refused.strerror}): {_MEND}") from None


def _open_lock(path: Path) -> int:
    try:
        return os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as refused:
        raise StoreError(f"the SSD path {path} {path_trouble(refused)}") from None


def path_trouble(refused: OSError) -> str:
    """What is wrong with the store's directory, why, and what mends it; completes 'the SSD path X ...'."""
    match refused.errno:
        case errno.EROFS:
            return f"is on a file system mounted read-only: remount it, or {_MEND}"
        case errno.EACCES | errno.EPERM:
            return (
                f"cannot be written by this user ({refused.strerror}): change its owner or mode, or {_MEND}"
            )
        case errno.ENOSPC | errno.EDQUOT:
            return f"has no space left ({refused.strerror}): free some, lower ssd_bytes, or {_MEND}"
        case _:
            return f"cannot be used ({refused.strerror}): {_MEND}"


def _lock_error(path: Path, refused: OSError, holder: str) -> StoreError:
    if refused.errno in (errno.EWOULDBLOCK, errno.EACCES):
        who = f"process {holder}" if holder else "another process"
        return StoreError(
            f"the SSD path {path} is in use by {who}: one manager owns it at a time; "
            f"stop that one, or set ssd_path to another directory"
        )
    return StoreError(f"the SSD path {path} cannot be locked ({refused.strerror}): {_MEND}")
