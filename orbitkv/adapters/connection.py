"""One connection of a client to the manager: ask and be answered.

Synchronous, and of one thread at a time: the client's lock sees to that. One-way messages are the
exception: any thread may send one while another waits for an answer, so that nobody's hint stands in line
behind a question. A lock keeps call numbers and messages in one order, and is not held while waiting for an
answer (but between the pieces of one query, which must follow each other).

A connection is never mended. When anything about it is in doubt it is closed with a named error, and the
client makes another.
"""

import mmap
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from orbitkv.adapters.client_errors import (
    CallTimedOut,
    ChannelPoisoned,
    ConnectionLost,
    LimitExceeded,
)
from orbitkv.adapters.handshake import lost, poisoned, shake_hands, timed_out
from orbitkv.io import wire
from orbitkv.io.framing import FramingError, decode_reply, decode_request, encode_message

Build: TypeAlias = Callable[[int], wire.Request]
"""Makes a request out of its call number."""
Notice: TypeAlias = wire.SlicesCopied | wire.PagesSealed
CallReply: TypeAlias = (
    wire.ErrorReply
    | wire.Done
    | wire.Registered
    | wire.QueryAnswered
    | wire.RestoreBegun
    | wire.SyncTaken
    | wire.SaveBegun
    | wire.SaveCommitted
    | wire.StatusReport
)

TELLING_WAIT_SECONDS: Final = 0.001
"""How long a one-way message waits for another thread to finish sending; then it is not sent."""

_READ_BACK_BYTES_MAX: Final = 1024
"""Longer ones are page lists, which are checked where they are made; reading them back takes too long."""

SentHint: TypeAlias = tuple[int, int, float]
"""(ticket, revision, when it was sent: monotonic seconds)"""


class Connection:
    """Connects and shakes hands. Raises ManagerUnavailable, NotWelcome, ConnectionLost, CallTimedOut."""

    def __init__(self, path: str, timeout_s: float) -> None:
        self.path = path
        self.timeout_s = timeout_s
        self.notices: list[Notice] = []
        """Came in between replies; the client takes them out."""
        self.hints: dict[tuple[str, int], SentHint] = {}
        """By (request, attempt), oldest first: hints that were sent over it. They end with it.

        Changed with `sending` held only.
        """
        self.sending = threading.RLock()
        """Held while messages are numbered and sent, and while the socket is closed."""
        self._calls = 0
        self._buffer = bytearray(wire.MESSAGE_BYTES_MAX + 1)
        self._view = memoryview(self._buffer)
        greeted = shake_hands(path, timeout_s)
        self._socket = greeted.socket
        self.welcome = greeted.welcome
        self.pool_fd = greeted.pool_fd
        try:
            self._board = _map_board(greeted.board_fd, self.welcome.board_cells)
        except BaseException:
            self.close()
            raise

    # --- asking -------------------------------------------------------------------------------------

    def ask(self, *builds: Build, descriptors: Sequence[int] = ()) -> CallReply:
        """Send each request in turn and return the answer to the last.

        An ErrorReply ends the sequence and is returned. Raises ConnectionLost, CallTimedOut, LimitExceeded.
        """
        if len(builds) == 1:
            return self._await_reply(self._send(builds[0], descriptors))
        with self.sending:
            for build in builds:
                reply = self._await_reply(self._send(build, descriptors))
                if type(reply) is wire.ErrorReply:
                    break
        return reply

    def begin_telling(self) -> bool:
        """Take `sending`, if other threads let go of it soon. False when one takes too long."""
        return self.sending.acquire(timeout=TELLING_WAIT_SECONDS)

    def tell(self, kind: Callable[..., wire.Request], *fields: object) -> bool:
        """Send a one-way request of these fields. False when there is no room for it now: it is not sent.

        For any thread, with `sending` held. Raises LimitExceeded, and ConnectionLost, which leaves the
        connection for its next caller to find broken: another thread may be waiting on it.
        """
        call = self._calls + 1
        try:
            self._socket.send(encode_message(kind(call, *fields)), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            raise lost(self.path, f"sending failed ({error.strerror})", sent=False) from error
        except ValueError as error:
            raise _too_long(error) from error
        self._calls = call
        return True

    def drain(self) -> None:
        """Take in what has arrived by itself, without waiting. Raises ConnectionLost."""
        while True:
            try:
                reply = self._receive(socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            self._sort(reply, self._calls + 1)

    def board_word(self, cell: int) -> int:
        """What stands in a cell of the board now; 0 for a cell that it does not have."""
        return self._board[cell] if cell < len(self._board) else 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """Only this process's end is closed: a parent that shares the descriptor keeps its connection."""
        self._close_socket()
        if self.pool_fd >= 0:
            os.close(self.pool_fd)
            self.pool_fd = -1

    def abandon(self) -> None:
        """In a child, right after the fork: a thread that held the lock is the parent's."""
        self.sending = threading.RLock()
        self.close()

    # --- one message --------------------------------------------------------------------------------

    def _send(self, build: Build, descriptors: Sequence[int]) -> int:
        with self.sending:
            call = self._calls + 1
            data = _encode(build(call))
            try:
                if descriptors:
                    socket.send_fds(self._socket, [data], list(descriptors))
                else:
                    self._socket.send(data)
            except BlockingIOError as error:
                raise self._timed_out("take the request") from error
            except OSError as error:
                raise self._lost(f"sending failed ({error.strerror})", sent=False) from error
            self._calls = call
            return call

    def _await_reply(self, call: int) -> CallReply:
        deadline = 0.0
        while True:
            try:
                reply = self._receive(0)
            except BlockingIOError as error:
                raise self._timed_out("answer") from error
            mine = self._sort(reply, call)
            if mine is not None:
                return mine
            # Each arrival starts the socket's own timeout anew, so a stream of notices needs this one.
            deadline = deadline or time.monotonic() + self.timeout_s
            if time.monotonic() > deadline:
                raise self._timed_out("answer")

    def _sort(self, reply: wire.Reply, call: int) -> CallReply | None:
        """The reply if it answers `call`; notices are kept, answers to calls that timed out are dropped."""
        if isinstance(reply, wire.SlicesCopied | wire.PagesSealed):
            self.notices.append(reply)
            return None
        if reply.call == call:
            return reply
        if reply.call == 0 and isinstance(reply, wire.ErrorReply):
            self.close()
            raise ChannelPoisoned(reply.sentence)
        if reply.call > call or reply.call < 1:
            raise self._poisoned(f"an answer to call {reply.call}, which was not made")
        return None

    def _receive(self, flags: int) -> wire.Reply:
        """Raises BlockingIOError when nothing comes in time."""
        try:
            count = self._receive_bytes(flags)
        except BlockingIOError:
            raise
        except OSError as error:
            raise self._lost(f"receiving failed ({error.strerror})") from error
        if count == 0:
            raise self._lost("the manager closed it")
        if count > wire.MESSAGE_BYTES_MAX:
            raise self._poisoned(f"a reply of more than {wire.MESSAGE_BYTES_MAX} bytes")
        try:
            return decode_reply(self._view[:count])
        except FramingError as error:
            raise self._poisoned(str(error)) from error

    def _receive_bytes(self, flags: int) -> int:
        try:
            return self._socket.recv_into(self._buffer, 0, flags)
        except ConnectionResetError:
            # The manager closed without reading all. The kernel says so once; its last words come after.
            return self._socket.recv_into(self._buffer, 0, flags)

    # --- trouble --------------------------------------------------------------------------------------

    def _lost(self, why: str, *, sent: bool = True) -> ConnectionLost:
        self._close_socket()
        return lost(self.path, why, sent=sent)

    def _poisoned(self, why: str) -> ChannelPoisoned:
        self._close_socket()
        return poisoned(self.path, why)

    def _close_socket(self) -> None:
        with self.sending:  # else its number could be another file's by the time a one-way message is sent
            self._socket.close()

    def _timed_out(self, what: str) -> CallTimedOut:
        return timed_out(self.path, what, self.timeout_s)

    def __repr__(self) -> str:
        return f"Connection(session={self.welcome.session}, incarnation={self.welcome.incarnation})"


def _encode(request: wire.Request) -> bytes:
    """Raises LimitExceeded. What is short is read back first: garbage would cost the connection."""
    try:
        data = encode_message(request)
    except (ValueError, OverflowError) as error:
        raise _too_long(error) from error
    if len(data) <= _READ_BACK_BYTES_MAX:
        _read_back(data)
    return data


def check_request(request: wire.Request) -> None:
    """Raises LimitExceeded for a request that no manager would understand, whatever its length."""
    data = _encode(request)
    if len(data) > _READ_BACK_BYTES_MAX:
        _read_back(data)


def _read_back(data: bytes) -> None:
    try:
        decode_request(data)
    except FramingError as error:
        raise LimitExceeded(
            f"The request was not sent, as no manager would understand it: {error}. "
            "Correct the value that the caller gave."
        ) from error


def _too_long(error: ValueError | OverflowError) -> LimitExceeded:
    return LimitExceeded(f"The request was not sent: {error}. Ask in smaller pieces.")


def _map_board(fd: int, cells: int) -> memoryview:
    """u64 words of the board, for reading. Closes the descriptor."""
    try:
        if cells == 0:
            return memoryview(b"").cast("Q")
        return memoryview(mmap.mmap(fd, cells * 8, mmap.MAP_SHARED, mmap.PROT_READ)).cast("Q")
    finally:
        os.close(fd)
