"""The manager's end of one connection: what has been received in order, what waits to be sent.

Knows sockets and framing, but nothing of other connections and nothing of what messages mean.
Every trouble of the peer's making is a `LinkBroken` with the cause to report; none is anything else.
"""

import socket
from collections import deque
from typing import Final

import msgspec

from orbitkv.events.outcomes import SessionEnd
from orbitkv.io import wire
from orbitkv.io.framing import FramingError, decode_request, encode_message
from orbitkv.io.peers import Peer

DESCRIPTORS_MAX: Final = 4
"""Room for descriptors that come with one message; one is used, more are trouble."""
_CONTROL_BYTES: Final = socket.CMSG_SPACE(DESCRIPTORS_MAX * 4)
_RECEIVE_FLAGS: Final = socket.MSG_CMSG_CLOEXEC


class LinkBroken(Exception):
    """The connection is of no more use."""

    def __init__(self, cause: SessionEnd, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause


class Link:
    __slots__ = (
        "_calls",
        "_outbox",
        "_outbox_bytes",
        "_pieces",
        "_registered",
        "doom",
        "fd",
        "mask",
        "peer",
        "session",
        "sock",
    )

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.session = 0
        """0 until it has been greeted."""
        self.peer: Peer | None = None
        self.mask = 0
        """What the channel's epoll watches it for."""
        self.doom: LinkBroken | None = None
        """Why it is to be ended, once that is certain."""
        self._calls = 0
        self._registered = False
        self._pieces: list[wire.ExtendQuery] = []
        self._outbox: deque[bytes] = deque()
        self._outbox_bytes = 0

    # --- receiving --------------------------------------------------------------------------------

    def receive(self, buffer: bytearray, view: memoryview) -> tuple[wire.Request, int] | None:
        """(next request, descriptor that came with it or -1), or None when there is none at present.

        `view` is a view of `buffer`, which holds one byte more than the longest message.
        Raises LinkBroken.
        """
        if self.doom is not None:
            raise self.doom
        descriptor = -1
        try:
            if self._registered:
                # Descriptors that come uninvited are closed by the kernel.
                count = self.sock.recv_into(buffer)
            else:
                count, descriptor = self.receive_descriptor(buffer)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            # It closed without reading all. The kernel says so once; what it had sent comes after that.
            return self.receive(buffer, view)
        except OSError as error:
            raise LinkBroken(SessionEnd.BROKEN, f"receiving failed: {error}") from error
        if count == 0:
            raise LinkBroken(SessionEnd.BROKEN, "the connection ended")
        try:
            request = self._accept(decode_request(view[:count]), descriptor)
        except FramingError as error:
            close_descriptor(descriptor)
            raise LinkBroken(SessionEnd.POISONED, str(error)) from error
        return request, descriptor

    def receive_descriptor(self, buffer: bytearray) -> tuple[int, int]:
        """(bytes received, the descriptor that came along or -1). Raises OSError, LinkBroken."""
        count, ancillary, flags, _ = self.sock.recvmsg_into([buffer], _CONTROL_BYTES, _RECEIVE_FLAGS)
        if not ancillary and not flags & socket.MSG_CTRUNC:
            return count, -1
        descriptors: list[int] = []
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                whole = len(data) - len(data) % 4
                descriptors.extend(memoryview(data)[:whole].cast("i"))
        if len(descriptors) != 1 or flags & socket.MSG_CTRUNC:
            for descriptor in descriptors:
                close_descriptor(descriptor)
            raise LinkBroken(
                SessionEnd.POISONED,
                "descriptors did not arrive whole: more than one was sent, or the manager has none left "
                "(raise its limit with `ulimit -n`)",
            )
        return count, descriptors[0]

    def _accept(self, request: wire.Request, descriptor: int) -> wire.Request:
        if request.call != self._calls + 1:
            raise FramingError(f"request number {request.call} after {self._calls}: out of order")
        self._calls += 1
        if descriptor >= 0 and type(request) is not wire.RegisterRank:
            raise FramingError("a descriptor with a message that takes none")
        if self._pieces or type(request) is wire.ExtendQuery:
            return self._assemble(request)
        if type(request) is wire.SubmitQuery and request.pieces:
            raise FramingError("a query that counts on pieces which did not come")
        return request

    def _assemble(self, request: wire.Request) -> wire.Request:
        """Pieces wait here; the query that they belong to comes out whole."""
        pieces = self._pieces
        if type(request) is wire.ExtendQuery:
            if len(pieces) == wire.QUERY_PIECES_MAX:
                raise FramingError(f"a query in more than {wire.QUERY_PIECES_MAX + 1} pieces")
            pieces.append(request)
            return request
        if type(request) is not wire.SubmitQuery or request.pieces != len(pieces):
            raise FramingError(f"{len(pieces)} pieces of a query, and then not that query")
        keys = [list[bytes]() for _ in request.parts]
        for piece in pieces:
            if piece.part >= len(keys):
                raise FramingError(f"a piece of part {piece.part} of a query with {len(keys)} parts")
            keys[piece.part] += piece.keys
        pieces.clear()
        parts = [
            msgspec.structs.replace(part, keys=lead + part.keys)
            for part, lead in zip(request.parts, keys, strict=True)
        ]
        return msgspec.structs.replace(request, parts=parts, pieces=0)

    # --- sending ----------------------------------------------------------------------------------

    def send(self, reply: wire.Reply) -> bool:
        """Whether it left at once; else it waits in the outbox. Raises LinkBroken."""
        data = encode_message(reply)
        if type(reply) is wire.Registered:
            self._registered = True
        if not self._outbox and self._try_send(data):
            return True
        self._outbox.append(data)
        self._outbox_bytes += len(data)
        return False

    def flush(self) -> bool:
        """Whether the outbox is empty now. Raises LinkBroken."""
        while self._outbox:
            if not self._try_send(self._outbox[0]):
                return False
            self._outbox_bytes -= len(self._outbox.popleft())
        return True

    def _try_send(self, data: bytes) -> bool:
        try:
            self.sock.send(data)
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError):
            # Nobody listens any more. What was said before can still be read: the reading end ends the link.
            pass
        except OSError as error:
            raise LinkBroken(SessionEnd.BROKEN, f"sending failed: {error}") from error
        return True

    def condemn(self, broken: LinkBroken) -> None:
        """Let the next round end this link. The shutdown makes epoll report it, also to a waiting task."""
        self.doom = broken
        self._outbox.clear()
        self._outbox_bytes = 0
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the peer was faster

    @property
    def outbox_messages(self) -> int:
        return len(self._outbox)

    @property
    def outbox_bytes(self) -> int:
        return self._outbox_bytes

    def __repr__(self) -> str:
        return f"Link(session={self.session}, calls={self._calls}, outbox={len(self._outbox)})"


def close_descriptor(descriptor: int) -> None:
    if descriptor >= 0:
        socket.close(descriptor)
