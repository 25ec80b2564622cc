"""The manager's door: who comes in through the listener, and what those hear who do not.

Says no in words wherever it can: another user, another ABI, no room. Running out of descriptors must
not end the manager nor keep it busy: one descriptor is kept in reserve to accept a connection with, only
to turn it away; without even that the door is shut until a connection has left.
"""

import errno
import os
import socket
from typing import Final

from orbitkv.events.outcomes import SessionEnd
from orbitkv.io import wire
from orbitkv.io.framing import FramingError, OtherAbi, decode_hello, encode_greeting
from orbitkv.io.link import Link, LinkBroken, close_descriptor
from orbitkv.io.listener import Listener
from orbitkv.io.peers import peer_credentials

_SEND_BUFFER_BYTES: Final = 1 << 20
_ARRIVALS_PER_ROUND: Final = 16
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Door:
    def __init__(self, listener: Listener, connections_max: int) -> None:
        self.refused_connections = 0
        self.shut = False
        """No connection can be accepted, not even to be turned away, until descriptors are free again."""
        self._listener = listener
        self._connections_max = connections_max
        self._reserve = -1
        self._keep_reserve()

    def fileno(self) -> int:
        return self._listener.socket.fileno()

    def arrivals(self, connections: int) -> list[socket.socket]:
        """Those who may stay, for the caller to keep; `connections` are there already."""
        admitted: list[socket.socket] = []
        for _ in range(_ARRIVALS_PER_ROUND):
            try:
                sock, _address = self._listener.socket.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._refuse_from_reserve()
                    break
                if error.errno != errno.ECONNABORTED:
                    raise
                continue
            if self._may_stay(sock, connections + len(admitted)):
                admitted.append(sock)
        return admitted

    def open_again(self) -> None:
        """A descriptor may have become free."""
        self._keep_reserve()
        self.shut = self._reserve < 0

    def _keep_reserve(self) -> None:
        try:
            self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._reserve = -1

    def _refuse_from_reserve(self) -> None:
        if self._reserve >= 0:
            os.close(self._reserve)
        try:
            sock, _address = self._listener.socket.accept()
        except OSError:
            self.shut = True  # somebody else was faster; trying on would only keep the manager busy
        else:
            self._turn_away(
                sock,
                wire.ChannelRefusal.TOO_MANY_CONNECTIONS,
                "The manager has no file descriptors left for another connection. "
                "Raise its limit with `ulimit -n`, or close connections that are not needed.",
            )
        self._keep_reserve()

    def _may_stay(self, sock: socket.socket, connections: int) -> bool:
        sock.setblocking(False)
        uid = peer_credentials(sock).uid
        if uid != os.geteuid():
            self._turn_away(
                sock,
                wire.ChannelRefusal.FOREIGN_USER,
                f"The manager runs as user {os.geteuid()} and does not talk to user {uid}. "
                "Run the engine and the manager as the same user.",
            )
            return False
        if connections >= self._connections_max:
            self._turn_away(
                sock,
                wire.ChannelRefusal.TOO_MANY_CONNECTIONS,
                f"The manager already has {self._connections_max} connections. "
                "Close some, or raise --sessions-max.",
            )
            return False
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        except OSError:
            pass  # the default holds one message, which is enough
        return True

    def _turn_away(self, sock: socket.socket, refusal: wire.ChannelRefusal, sentence: str) -> None:
        self.refused_connections += 1
        refuse(sock, refusal, sentence)
        sock.close()

    def hello(self, link: Link, buffer: bytearray, view: memoryview) -> wire.Hello | None:
        """The greeting of a new connection; None when it has not come yet. Raises LinkBroken."""
        try:
            count, descriptor = link.receive_descriptor(buffer)
        except BlockingIOError:
            return None
        except OSError as error:
            raise LinkBroken(SessionEnd.BROKEN, f"receiving failed: {error}") from error
        close_descriptor(descriptor)
        if count == 0:
            raise LinkBroken(SessionEnd.BROKEN, "the connection ended")
        try:
            return decode_hello(view[:count])
        except OtherAbi as error:
            self.refused_connections += 1
            refuse(
                link.sock,
                wire.ChannelRefusal.OTHER_ABI,
                f"The manager speaks channel ABI {wire.CHANNEL_ABI}, this client ABI {error.theirs}. "
                "Install the same OrbitKV version for the engine and for the manager.",
            )
            raise LinkBroken(SessionEnd.BROKEN, str(error)) from error
        except FramingError as error:
            raise LinkBroken(SessionEnd.POISONED, str(error)) from error

    def close(self) -> None:
        close_descriptor(self._reserve)
        self._listener.close()

    def __repr__(self) -> str:
        return f"Door({str(self._listener.path)!r}, {'shut' if self.shut else 'open'})"


def refuse(sock: socket.socket, refusal: wire.ChannelRefusal, sentence: str) -> None:
    """Say no before anything else was said."""
    try:
        sock.send(encode_greeting(wire.NotWelcome(refusal, refusal.name, sentence, refusal.retry_helps)))
    except OSError:
        pass  # it is being turned away; if it does not hear why, that is its loss
