"""A client that says whatever a test wants, well-formed or not."""

import os
import socket
from collections.abc import Sequence
from pathlib import Path

from orbitkv.io import wire
from orbitkv.io.framing import decode_reply, decode_welcome, encode_greeting, encode_message
from orbitkv.io.host import started_ticks


class RawClient:
    def __init__(self, path: Path, timeout_s: float = 10.0) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(timeout_s)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.socket.connect(str(path))
        self.calls = 0

    def hello(self) -> None:
        self.send_bytes(encode_greeting(wire.Hello(os.getpid(), "here", started_ticks())))

    def welcome(self) -> wire.Welcome | wire.NotWelcome:
        data, descriptors, _, _ = socket.recv_fds(self.socket, 1 << 16, 4)
        for descriptor in descriptors:
            os.close(descriptor)
        return decode_welcome(data)

    def send_bytes(self, data: bytes, descriptors: Sequence[int] = ()) -> None:
        if descriptors:
            socket.send_fds(self.socket, [data], list(descriptors))
        else:
            self.socket.send(data)

    def send(self, request: wire.Request, descriptors: Sequence[int] = ()) -> None:
        self.send_bytes(encode_message(request), descriptors)

    def status(self) -> None:
        """The simplest request in order."""
        self.calls += 1
        self.send(wire.ReadStatus(self.calls))

    def receive(self) -> wire.Reply:
        try:
            return decode_reply(self.socket.recv(1 << 18))
        except ConnectionResetError:  # said once when the manager closes early; its last words come after
            return decode_reply(self.socket.recv(1 << 18))

    def ended(self) -> bool:
        """Whether the manager has closed; drops what is still in the socket."""
        try:
            while self.socket.recv(1 << 18):
                pass
        except ConnectionResetError:
            return self.ended()
        return True

    def close(self) -> None:
        self.socket.close()
