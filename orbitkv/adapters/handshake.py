"""How a client gets a connection: connect, say hello, receive the welcome with the pool and the board.

Everything that can stand in the way has its own error here, because this is where a user's mistakes
show first: no manager, another version, another user, no descriptors left.
"""

import errno
import os
import socket
import struct
from pathlib import Path
from typing import Final

import attrs

from orbitkv.adapters.client_errors import (
    CallTimedOut,
    ChannelPoisoned,
    ConnectionLost,
    LimitExceeded,
    ManagerUnavailable,
    NotWelcome,
)
from orbitkv.io import wire
from orbitkv.io.framing import FramingError, OtherAbi, decode_welcome, encode_greeting
from orbitkv.io.host import started_ticks, this_host

_TIMEVAL: Final = struct.Struct("@ll")
_SEND_BUFFER_BYTES: Final = 1 << 20
_DESCRIPTORS: Final = 2


@attrs.frozen(slots=True)
class Greeted:
    """A connection that was let in. Whoever takes it closes the socket and both descriptors."""

    socket: socket.socket
    welcome: wire.Welcome
    pool_fd: int
    board_fd: int


def shake_hands(path: str, timeout_s: float) -> Greeted:
    """Raises ManagerUnavailable, NotWelcome, ConnectionLost, CallTimedOut, LimitExceeded."""
    sock = _connect(path, timeout_s)
    try:
        _say_hello(sock, path, timeout_s)
        data, descriptors, truncated = _hear(sock, path, timeout_s)
        try:
            welcome = _understand(data, path)
            if len(descriptors) != _DESCRIPTORS:
                raise _without_descriptors(path, truncated)
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
    except BaseException:
        sock.close()
        raise
    return Greeted(sock, welcome, descriptors[0], descriptors[1])


def _connect(path: str, timeout_s: float) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        # Timeouts of the kernel, not of Python: those would cost a poll() before each call.
        timeout = _timeval(timeout_s)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        sock.connect(path)
    except OSError as error:
        sock.close()
        raise ManagerUnavailable(
            f"No manager answers at {path}: {_connect_trouble(error, path)}. "
            f"Start one with `orbitkv serve --socket-path {path}`, or give the path of the one that runs."
        ) from error
    return sock


def _timeval(seconds: float) -> bytes:
    microseconds = max(int(seconds * 1_000_000), 1)  # 0 would mean: wait for ever
    return _TIMEVAL.pack(microseconds // 1_000_000, microseconds % 1_000_000)


def _connect_trouble(error: OSError, path: str) -> str:
    match error.errno:
        case errno.ENOENT:
            return "there is no such socket"
        case errno.ECONNREFUSED if not Path(path).is_socket():
            return "that is no socket"
        case errno.ECONNREFUSED:
            return "nobody listens there any more"
        case errno.EACCES | errno.EPERM:
            return "it belongs to another user"
        case errno.EPROTOTYPE:
            return "what listens there is no OrbitKV manager"
        case errno.EAGAIN:
            return "it does not accept connections in time"
        case _:
            return str(error.strerror or error)


def _say_hello(sock: socket.socket, path: str, timeout_s: float) -> None:
    try:
        sock.send(encode_greeting(wire.Hello(os.getpid(), this_host(), started_ticks())))
    except BlockingIOError as error:
        raise timed_out(path, "take the greeting", timeout_s) from error
    except OSError:
        pass  # the manager may have said why before it closed: that is read next


def _hear(sock: socket.socket, path: str, timeout_s: float) -> tuple[bytes, list[int], bool]:
    """(packet, descriptors, whether some did not fit)."""
    try:
        return _receive(sock)
    except ConnectionResetError:
        pass  # said once when the manager closes early; its last words can still be read
    except BlockingIOError as error:
        raise timed_out(path, "answer the greeting", timeout_s) from error
    try:
        return _receive(sock)
    except OSError as error:
        raise lost(path, f"receiving failed ({error.strerror})") from error


def _receive(sock: socket.socket) -> tuple[bytes, list[int], bool]:
    data, descriptors, flags, _ = socket.recv_fds(
        sock, wire.MESSAGE_BYTES_MAX + 1, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
    )
    return data, list(descriptors), bool(flags & socket.MSG_CTRUNC)


def _understand(data: bytes, path: str) -> wire.Welcome:
    if not data:
        raise lost(path, "the manager closed it instead of a welcome")
    try:
        welcome = decode_welcome(data)
    except OtherAbi as error:
        raise NotWelcome(
            f"The manager at {path} speaks channel ABI {error.theirs}, this client ABI {wire.CHANNEL_ABI}. "
            "Install the same OrbitKV version for the engine and for the manager.",
            wire.ChannelRefusal.OTHER_ABI,
            False,
        ) from error
    except FramingError as error:
        raise poisoned(path, str(error)) from error
    if isinstance(welcome, wire.NotWelcome):
        raise NotWelcome(welcome.sentence, welcome.refusal, welcome.retry_helps)
    return welcome


def _without_descriptors(path: str, truncated: bool) -> Exception:
    if truncated:
        return LimitExceeded(
            "The pool could not be received: this process has no file descriptors left. "
            "Raise its limit with `ulimit -n`."
        )
    return poisoned(path, "a welcome without the pool and the board")


def lost(path: str, why: str, *, sent: bool = True) -> ConnectionLost:
    return ConnectionLost(
        f"The connection to the manager at {path} ended: {why}. "
        "The next call reconnects; if that fails, look at the manager's output.",
        sent=sent,
    )


def poisoned(path: str, what: str) -> ChannelPoisoned:
    return ChannelPoisoned(
        f"The connection to the manager at {path} was closed: it sent {what}. "
        "Reconnect required; the next call does that. If it happens again, compare both versions."
    )


def timed_out(path: str, what: str, timeout_s: float) -> CallTimedOut:
    return CallTimedOut(
        f"The manager at {path} did not {what} within {timeout_s:g} s. "
        "It is overloaded, stopped or hanging: look at its /health, or raise timeout_s."
    )
