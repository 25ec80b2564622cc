"""One link between two processes of an engine: whole messages over a SEQPACKET socket pair.

Small and blocking; waiting is done elsewhere, on `fileno()`. Not for the manager's channel, which has
its own rules and its own peers.
"""

import socket
import struct
from typing import Generic, TypeVar

import msgspec

MESSAGE_BYTES_MAX = 192 * 1024
"""Below the smallest socket buffer in use (208 KiB), which bounds a packet."""
SEND_TIMEOUT_S = 30
"""A peer that takes nothing for so long is taken for dead."""

_encoder = msgspec.msgpack.Encoder()
Incoming = TypeVar("Incoming")


class LinkClosed(Exception):
    """The other side is gone, or takes nothing any more."""


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Link(Generic[Incoming]):
    """`incoming` is the union of messages that the other side may send."""

    def __init__(self, peer: socket.socket, incoming: object) -> None:
        # Not settimeout: with it, Python waits before a receive that must not wait.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_TIMEOUT_S, 0))
        self._socket = peer
        self._decoder: msgspec.msgpack.Decoder[Incoming] = msgspec.msgpack.Decoder(incoming)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: msgspec.Struct) -> None:
        """May be called by several threads. Raises LinkClosed."""
        try:
            self._socket.send(encode(message))
        except OSError as error:
            raise LinkClosed(str(error)) from error

    def receive(self) -> Incoming:
        """Wait for one message, without a limit. Raises LinkClosed."""
        try:
            return self._decode(self._socket.recv(MESSAGE_BYTES_MAX))
        except OSError as error:
            raise LinkClosed(str(error)) from error

    def receive_nowait(self) -> Incoming | None:
        """One message, or None when none is there. Raises LinkClosed."""
        try:
            return self._decode(self._socket.recv(MESSAGE_BYTES_MAX, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return None
        except OSError as error:
            raise LinkClosed(str(error)) from error

    def _decode(self, data: bytes) -> Incoming:
        if not data:
            raise LinkClosed("the other side closed the link")
        return self._decoder.decode(data)

    def close(self) -> None:
        self._socket.close()


def encode(message: msgspec.Struct) -> bytes:
    """Raises ValueError for a message longer than a packet may be."""
    data = _encoder.encode(message)
    if len(data) > MESSAGE_BYTES_MAX:
        raise ValueError(
            f"{type(message).__name__} has {len(data)} bytes, a packet at most {MESSAGE_BYTES_MAX}"
        )
    return data
