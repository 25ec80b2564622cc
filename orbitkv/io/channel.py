"""The manager's end of the channel: many clients, one waiter.

All sockets, the listener and the pidfds of the clients' processes stand in one epoll set, and one trio
task waits on its descriptor. A round takes at most one message from each ready socket, so nobody gets
a second turn before all had one; the whole round is one batch for the caller. Replies go out without
waiting; what does not fit into a socket waits in a bounded outbox, and meanwhile that socket is not read.

What comes from a client can cost that client its session and nothing more. No message is understood
here beyond its framing (and the pieces of a long query); what to answer is the caller's to decide.
"""

import math
import os
import select
import socket
from collections.abc import Iterator
from typing import Final

import attrs
import trio

from orbitkv.events.outcomes import SessionEnd
from orbitkv.io import wire
from orbitkv.io.board import Board
from orbitkv.io.door import Door, refuse
from orbitkv.io.framing import encode_greeting
from orbitkv.io.link import Link, LinkBroken
from orbitkv.io.listener import Listener
from orbitkv.io.peers import Peer, ProcessTable
from orbitkv.manager.ports import Connected, Disconnected, Inbound, ProcessEnded, Request

_READ: Final = select.EPOLLIN
_WRITE: Final = select.EPOLLOUT
_DOOR_SHUT_SECONDS: Final = 1.0
"""How long a door that was shut for want of descriptors stays shut, unless a connection leaves before."""


@attrs.frozen(slots=True)
class ChannelLimits:
    connections_max: int = 1024
    batch_messages_max: int = 4
    """Sockets served in one round, one message each. Replies leave when their batch is done, so a long one
    makes the first wait for the last, and whoever is late to ask again misses a whole round: with 64 and
    eight busy clients the luckiest got 1.7 times the share of the unluckiest, with 4 about 1.1 times."""
    rounds_unyielded_max: int = 8
    """Rounds that may follow each other before other tasks of the manager get their turn."""
    outbox_messages_max: int = 1024
    outbox_bytes_max: int = 4 << 20
    """A session whose outbox grows beyond either is closed."""
    greeting_seconds_max: float = 5.0
    """A connection that has said nothing for so long is closed."""


@attrs.frozen(slots=True)
class Greeter:
    """What a client is told when it is let in."""

    version: str
    incarnation: int
    pool_bytes: int
    pool_fd: int
    """For reading only; sent to every client. Taken over by the channel."""
    board: Board


class SocketChannel:
    """Implements `orbitkv.manager.ports.Channel`."""

    def __init__(
        self,
        listener: Listener,
        greeter: Greeter,
        limits: ChannelLimits | None = None,
        processes: ProcessTable | None = None,
    ) -> None:
        """Takes over all it is given. Raises OSError."""
        self._greeter = greeter
        self._limits = limits if limits is not None else ChannelLimits()
        self._door = Door(listener, self._limits.connections_max)
        self._processes = processes if processes is not None else ProcessTable()
        self._epoll = select.epoll()
        self._epoll.register(self._door.fileno(), _READ)
        self._links: dict[int, Link] = {}
        """By descriptor: all connections."""
        self._sessions: dict[int, Link] = {}
        """By session: those that have been greeted."""
        self._ungreeted: dict[int, float] = {}
        """By descriptor: until when a greeting is waited for, earliest first."""
        self._last_session = 0
        self._rounds_unyielded = 0
        self._buffer = bytearray(wire.MESSAGE_BYTES_MAX + 1)
        self._view = memoryview(self._buffer)
        self.poisoned_sessions = 0

    # --- the port ---------------------------------------------------------------------------------

    async def receive(self) -> list[Inbound]:
        while True:
            if self._rounds_unyielded >= self._limits.rounds_unyielded_max:
                self._rounds_unyielded = 0
                await trio.lowlevel.checkpoint()
            inbound = self._round()
            if inbound:
                self._rounds_unyielded += 1
                return inbound
            self._rounds_unyielded = 0
            await self._wait()

    def send(self, session: int, reply: object) -> None:
        link = self._sessions.get(session)
        if link is None:
            return
        try:
            if not link.send(reply):  # type: ignore[arg-type]  # the port cannot name the wire's types
                self._bound_outbox(link)
        except LinkBroken as broken:
            self._watch(link, _READ)
            link.condemn(broken)

    def close_session(self, session: int) -> None:
        link = self._sessions.get(session)
        if link is not None:
            self._drop(link)

    async def aclose(self) -> None:
        for link in list(self._links.values()):
            self._drop(link)
        self._epoll.close()
        self._processes.close()
        self._door.close()
        self._greeter.board.close()
        os.close(self._greeter.pool_fd)
        await trio.lowlevel.checkpoint()

    @property
    def connections(self) -> int:
        return len(self._links)

    @property
    def refused_connections(self) -> int:
        return self._door.refused_connections

    def outbox_messages(self, session: int) -> int:
        """Replies that wait for the client to read; 0 for a session that is gone."""
        link = self._sessions.get(session)
        return 0 if link is None else link.outbox_messages

    # --- rounds -----------------------------------------------------------------------------------

    async def _wait(self) -> None:
        if not self._ungreeted and not self._door.shut:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            return
        deadline = trio.current_time() + _DOOR_SHUT_SECONDS if self._door.shut else math.inf
        deadline = min(deadline, next(iter(self._ungreeted.values()), math.inf))
        with trio.move_on_at(deadline) as waited:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
        if waited.cancelled_caught and self._door.shut:
            self._open_door_again()

    def _round(self) -> list[Inbound]:
        inbound: list[Inbound] = []
        ended: list[int] = []
        links = self._links
        for fd, events in self._epoll.poll(0, self._limits.batch_messages_max):
            link = links.get(fd)
            if link is not None:
                self._serve(link, events, inbound)
            elif fd == self._door.fileno():
                self._admit()
            elif self._processes.is_pidfd(fd):
                ended.append(fd)
        for fd in ended:
            self._process_ended(fd, inbound)
        if self._ungreeted:
            self._drop_silent()
        return inbound

    def _serve(self, link: Link, events: int, inbound: list[Inbound]) -> None:
        try:
            if link.mask == _WRITE:
                if not link.flush():
                    return
                self._watch(link, _READ)
            if not link.session:
                self._greet(link, inbound)
            elif events & ~_WRITE:
                self._take_one(link, inbound)
        except LinkBroken as broken:
            self._end(link, broken.cause, str(broken), inbound)

    def _take_one(self, link: Link, inbound: list[Inbound]) -> bool:
        """Whether there was something. Raises LinkBroken."""
        received = link.receive(self._buffer, self._view)
        if received is None:
            return False
        request, descriptor = received
        if type(request) is wire.ExtendQuery:
            if not link.send(wire.Done(request.call)):
                self._bound_outbox(link)
        else:
            inbound.append(Request(link.session, request, descriptor))
        return True

    def _bound_outbox(self, link: Link) -> None:
        limits = self._limits
        if link.outbox_messages > limits.outbox_messages_max or link.outbox_bytes > limits.outbox_bytes_max:
            raise LinkBroken(
                SessionEnd.POISONED,
                f"it does not read its replies: {link.outbox_messages} of them "
                f"({link.outbox_bytes} bytes) are waiting",
            )
        self._watch(link, _WRITE)

    def _watch(self, link: Link, mask: int) -> None:
        if link.mask != mask:
            self._epoll.modify(link.fd, mask)
            link.mask = mask

    # --- the ends of connections and processes ----------------------------------------------------

    def _end(self, link: Link, cause: SessionEnd, detail: str, inbound: list[Inbound]) -> None:
        if cause is SessionEnd.POISONED:
            self.poisoned_sessions += 1
            self._say_poisoned(link, detail)
        session = link.session
        self._drop(link)
        if session:
            inbound.append(Disconnected(session, cause, detail))

    def _say_poisoned(self, link: Link, detail: str) -> None:
        """The last word, if there is room for it."""
        sentence = (
            f"The manager closed this connection: {detail}. "
            "What was sent before it stands; nothing after it counts. Reconnect required."
        )
        refusal = wire.ChannelRefusal.POISONED
        try:
            if not link.session:
                refuse(link.sock, refusal, sentence)
            elif not link.outbox_messages:
                link.send(wire.ErrorReply(0, refusal, refusal.name, sentence, refusal.retry_helps))
        except LinkBroken:
            pass

    def _drop(self, link: Link) -> None:
        self._links.pop(link.fd, None)
        self._sessions.pop(link.session, None)
        self._ungreeted.pop(link.fd, None)
        self._epoll.unregister(link.fd)
        link.sock.close()
        if self._door.shut:
            self._open_door_again()

    def _process_ended(self, pidfd: int, inbound: list[Inbound]) -> None:
        """Hear out what the process had sent; then its sessions end, then it does."""
        links = list(self._links_of(pidfd))
        for link in links:
            try:
                if self._take_one(link, inbound):
                    return  # one message a round, for the dead too; the pidfd stays readable
            except LinkBroken as broken:
                self._end(link, broken.cause, str(broken), inbound)
                continue
            # Its descriptor lives on in another process, which is not the one that was let in.
            self._end(link, SessionEnd.PROCESS_GONE, "the process ended", inbound)
        self._epoll.unregister(pidfd)
        inbound.append(ProcessEnded(self._processes.ended(pidfd).process))

    def _links_of(self, pidfd: int) -> Iterator[Link]:
        for link in self._sessions.values():
            if link.peer is not None and link.peer.pidfd == pidfd:
                yield link

    # --- letting in -------------------------------------------------------------------------------

    def _admit(self) -> None:
        for sock in self._door.arrivals(len(self._links)):
            link = Link(sock)
            link.mask = _READ
            self._epoll.register(link.fd, _READ)
            self._links[link.fd] = link
            self._ungreeted[link.fd] = trio.current_time() + self._limits.greeting_seconds_max
        if self._door.shut:
            self._epoll.modify(self._door.fileno(), 0)

    def _open_door_again(self) -> None:
        self._door.open_again()
        if not self._door.shut:
            self._epoll.modify(self._door.fileno(), _READ)

    def _greet(self, link: Link, inbound: list[Inbound]) -> None:
        """Raises LinkBroken."""
        hello = self._door.hello(link, self._buffer, self._view)
        if hello is None:
            return
        try:
            peer, new = self._processes.meet(link.sock, hello.started_ticks)
        except ProcessLookupError as error:
            raise LinkBroken(SessionEnd.PROCESS_GONE, str(error)) from error
        except OSError as error:
            self._door.refused_connections += 1
            raise LinkBroken(SessionEnd.BROKEN, f"the peer cannot be watched: {error}") from error
        if new and peer.end_observable:
            self._epoll.register(peer.pidfd, _READ)
        self._welcome(link, peer)
        inbound.append(
            Connected(link.session, peer.process, peer.pid, peer.uid, hello.host, peer.end_observable)
        )

    def _welcome(self, link: Link, peer: Peer) -> None:
        greeter = self._greeter
        welcome = wire.Welcome(
            greeter.version,
            greeter.incarnation,
            self._last_session + 1,
            greeter.pool_bytes,
            greeter.board.cells,
        )
        descriptors = [greeter.pool_fd, greeter.board.reader_fd()]
        try:
            socket.send_fds(link.sock, [encode_greeting(welcome)], descriptors)
        except OSError as error:
            raise LinkBroken(SessionEnd.BROKEN, f"sending failed: {error}") from error
        self._last_session += 1
        link.session = self._last_session
        link.peer = peer
        self._sessions[link.session] = link
        del self._ungreeted[link.fd]

    def _drop_silent(self) -> None:
        now = trio.current_time()
        for fd, deadline in list(self._ungreeted.items()):
            if deadline > now:
                return
            self._drop(self._links[fd])
            self._door.refused_connections += 1

    def __repr__(self) -> str:
        return (
            f"SocketChannel({self._door!r}, connections={len(self._links)}, "
            f"sessions={len(self._sessions)}, processes={len(self._processes)})"
        )
