"""The manager's door: one socket path, at most one living manager behind it.

A lock file beside the path says who lives there, because a socket file alone does not: it stays when
a process is killed. The lock goes with its holder, however that ends. A path whose lock is free is
probed all the same (a manager may run without a lock file), then a leftover is replaced.
"""

import errno
import fcntl
import os
import socket
import stat
from pathlib import Path
from typing import Final

PATH_BYTES_MAX: Final = 107
"""What the kernel takes for a unix socket's path."""
_BACKLOG: Final = 128


class ListenError(Exception):
    """The manager cannot listen there. The text says what, why and what mends it."""


class Listener:
    """Raises ListenError when the path cannot be had."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if len(os.fsencode(self.path)) > PATH_BYTES_MAX:
            raise ListenError(
                f"Cannot listen at {self.path}: a unix socket's path has at most {PATH_BYTES_MAX} bytes. "
                "Choose a shorter one with --socket-path."
            )
        self._lock_fd = _take_lock(self.path)
        try:
            _clear_leftover(self.path)
            self.socket = _bind(self.path)
            self._inode = os.stat(self.path).st_ino
        except BaseException:
            _drop_lock(self.path, self._lock_fd)
            raise

    def close(self) -> None:
        """Take the path away if it is still ours, and free it for the next manager."""
        self.socket.close()
        try:
            if os.lstat(self.path).st_ino == self._inode:
                os.unlink(self.path)
        except OSError:
            pass  # somebody else removed it: it is gone, which is what was wanted
        _drop_lock(self.path, self._lock_fd)

    def __repr__(self) -> str:
        return f"Listener({str(self.path)!r})"


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _take_lock(path: Path) -> int:
    lock = _lock_path(path)
    while True:
        try:
            fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ListenError(
                f"Cannot listen at {path}: {lock} cannot be opened ({error.strerror}). "
                "Make the folder exist and writable for this user, or choose another with --socket-path."
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(fd, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise ListenError(
                f"Cannot listen at {path}: another manager (pid {holder}) lives there and holds {lock}. "
                "Stop that one, or choose another place with --socket-path."
            ) from error
        if _is_current(lock, fd):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode("ascii"), 0)
            return fd
        os.close(fd)  # its last holder removed it between our open and our lock


def _is_current(lock: Path, fd: int) -> bool:
    try:
        return os.stat(lock).st_ino == os.fstat(fd).st_ino
    except FileNotFoundError:
        return False


def _drop_lock(path: Path, fd: int) -> None:
    try:
        os.unlink(_lock_path(path))  # while it is held, so that nobody locks a file that is going away
    except OSError:
        pass
    os.close(fd)


def _clear_leftover(path: Path) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ListenError(
            f"Cannot listen at {path}: something that is no socket stands there. "
            "Move it away, or choose another path with --socket-path."
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except OSError as error:
            if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
                try:
                    os.unlink(path)
                except FileNotFoundError:
                    pass
                return
            why = "a living process listens there that is not this user's or not of this kind"
            if error.errno == errno.EAGAIN:
                why = "a living process listens there and is too busy to answer"
        else:
            why = "another manager answers there, without a lock file"
    raise ListenError(
        f"Cannot listen at {path}: {why}. Stop that process, or choose another path with --socket-path."
    )


def _bind(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.setblocking(False)
        # Linux takes the mode of the socket's own inode for the file that bind() makes: never wider.
        os.fchmod(listener.fileno(), 0o600)
        listener.bind(os.fspath(path))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(
            f"Cannot listen at {path}: {error.strerror}. "
            "Make the folder exist and writable for this user, or choose another with --socket-path."
        ) from error
    return listener
