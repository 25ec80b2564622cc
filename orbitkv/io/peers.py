"""Who is at the other end of a socket, and when that process is gone.

A page may be reused only when nobody can read it any more, and the last word on that is the operating
system's: a pidfd that becomes readable. A pid alone is not enough, because the system reuses it. So:

- SO_PEERPIDFD (Linux 6.5) gives the process that connected, without a race;
- else `pidfd_open`, believed only if the start time that the client gave in its greeting is the one that
  /proc shows for that pid, while the pidfd says that the process still lives;
- else the end of the process cannot be seen: its copies are held until an operator says so.

This file decides nothing about pages; it only tells processes apart and watches them.
"""

import errno
import os
import select
import socket
import struct
from collections import deque
from typing import Final

import attrs

from orbitkv.io.host import started_ticks

SO_PEERPIDFD: Final = 77
"""Not named by Python's socket module."""
_CREDENTIALS: Final = struct.Struct("3i")
UNOBSERVABLE_MAX: Final = 65536
"""Most processes remembered whose end cannot be seen."""
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@attrs.frozen(slots=True)
class Credentials:
    """What the kernel noted when the peer called connect()."""

    pid: int
    uid: int


@attrs.define(slots=True, eq=False)
class Peer:
    """One process that has connected, however many connections it has."""

    process: int
    pid: int
    uid: int
    pidfd: int
    """-1 when its end cannot be observed."""
    identity: tuple[int, int] | None
    """(pid, start time); None when /proc does not tell."""

    @property
    def end_observable(self) -> bool:
        return self.pidfd >= 0


def peer_credentials(sock: socket.socket) -> Credentials:
    pid, uid, _gid = _CREDENTIALS.unpack(
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return Credentials(pid, uid)


def is_over(pidfd: int) -> bool:
    """Whether the process behind a pidfd has ended. Never blocks."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


class ProcessTable:
    """Gives each living process one number, and keeps its pidfd until it ends."""

    def __init__(self, *, peer_pidfd: bool = True, pidfd_open: bool = True) -> None:
        """The two ways may be switched off, as on kernels that lack them."""
        self._peer_pidfd = peer_pidfd
        self._pidfd_open = pidfd_open
        self._by_identity: dict[tuple[int, int], Peer] = {}
        self._by_pidfd: dict[int, Peer] = {}
        self._unobservable: deque[tuple[int, int]] = deque()
        self._last_process = 0

    def meet(self, sock: socket.socket, told_ticks: int) -> tuple[Peer, bool]:
        """(the process at the other end, whether it is new here).

        `told_ticks`: its start time by its own account, 0 if it gave none.
        Raises ProcessLookupError when it is gone already, OSError when descriptors have run out.
        """
        credentials = peer_credentials(sock)
        pidfd, identity = self._look(sock, credentials.pid, told_ticks)
        known = None if identity is None else self._by_identity.get(identity)
        if known is not None:
            if pidfd >= 0:
                os.close(pidfd)
            return known, False
        self._last_process += 1
        peer = Peer(self._last_process, credentials.pid, credentials.uid, pidfd, identity)
        if identity is not None:
            self._remember(identity, peer)
        if pidfd >= 0:
            self._by_pidfd[pidfd] = peer
        return peer, True

    def _look(self, sock: socket.socket, pid: int, told_ticks: int) -> tuple[int, tuple[int, int] | None]:
        """(pidfd or -1, identity or None): only what is beyond doubt."""
        pidfd, certain = self._open_pidfd(sock, pid)
        ticks = started_ticks(pid) if pid > 0 else 0
        if pidfd >= 0 and is_over(pidfd):
            os.close(pidfd)
            raise ProcessLookupError(errno.ESRCH, "the process that connected has ended")
        # From here on /proc spoke of the process behind the pidfd, for it still lived afterwards.
        same = ticks > 0 and ticks == told_ticks
        if pidfd >= 0 and not certain and not same:
            # Whoever has that pid now need not be who wrote the greeting.
            os.close(pidfd)
            pidfd = -1
        return pidfd, ((pid, ticks) if ticks and (pidfd >= 0 or same) else None)

    def _open_pidfd(self, sock: socket.socket, pid: int) -> tuple[int, bool]:
        """(pidfd or -1, whether it is certainly the process that connected)."""
        if self._peer_pidfd:
            try:
                return sock.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD), True
            except OSError as error:
                if error.errno in (errno.ESRCH, errno.EINVAL):
                    raise ProcessLookupError(error.errno, "the process that connected has ended") from error
                if error.errno in _EXHAUSTED:
                    raise
                self._peer_pidfd = False
        if self._pidfd_open and pid > 0:
            try:
                return os.pidfd_open(pid), False
            except OSError as error:
                if error.errno in (errno.ESRCH, *_EXHAUSTED):
                    raise
                self._pidfd_open = False
        return -1, False

    def _remember(self, identity: tuple[int, int], peer: Peer) -> None:
        self._by_identity[identity] = peer
        if not peer.end_observable:
            # Nobody will tell when it ends, so the oldest is forgotten instead; it would merely be met anew.
            self._unobservable.append(identity)
            if len(self._unobservable) > UNOBSERVABLE_MAX:
                self._by_identity.pop(self._unobservable.popleft(), None)

    def ended(self, pidfd: int) -> Peer:
        """Forget a process whose pidfd has become readable; the descriptor is closed."""
        peer = self._by_pidfd.pop(pidfd)
        if peer.identity is not None:
            self._by_identity.pop(peer.identity, None)
        os.close(pidfd)
        return peer

    def is_pidfd(self, fd: int) -> bool:
        return fd in self._by_pidfd

    def __len__(self) -> int:
        """Processes that are being watched."""
        return len(self._by_pidfd)

    def close(self) -> None:
        for pidfd in self._by_pidfd:
            os.close(pidfd)
        self._by_pidfd.clear()
        self._by_identity.clear()
