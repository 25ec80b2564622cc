"""How a client stays connected: lazily, by itself, and without ever waiting for a manager that is not there.

One lock, one connection. A broken connection is forgotten and the next call makes a new one, registers
the rank again and delivers the syncs that were not acknowledged. While no manager answers, calls fail
at once with the last trouble, and at growing intervals one of them tries anew.
"""

import os
import threading
import time
import weakref
from collections import deque
from typing import Final, TypeVar

import attrs

from orbitkv.adapters.answers import Registration, SyncReceipt
from orbitkv.adapters.client_errors import (
    ChannelPoisoned,
    ClientClosed,
    ConnectionLost,
    LimitExceeded,
    OrbitError,
    refused,
)
from orbitkv.adapters.connection import Build, CallReply, Connection, check_request
from orbitkv.adapters.namespace import Namespace
from orbitkv.adapters.restore import PoolMapping
from orbitkv.adapters.saves import SaveTable
from orbitkv.adapters.staging import StagingWindow
from orbitkv.events.geometry import GroupGeometry
from orbitkv.io import wire
from orbitkv.io.host import this_host

BACKOFF_FIRST_SECONDS: Final = 0.05
BACKOFF_LAST_SECONDS: Final = 5.0
POISONINGS_MAX: Final = 3
"""So many connections one sync may spoil before it is given up."""

_Answer = TypeVar("_Answer", bound=CallReply)


@attrs.frozen(kw_only=True)
class RankIdentity:
    """What a rank says of itself when it registers."""

    instance: str
    rank: int
    world_size: int
    namespace: Namespace
    groups: tuple[GroupGeometry, ...]
    staging_bytes: int
    hash_process_dependent: bool

    def registration(self, call: int, staging_bytes: int) -> wire.RegisterRank:
        """`staging_bytes`: of the window that is really there."""
        return wire.RegisterRank(
            call,
            self.instance,
            self.rank,
            self.world_size,
            this_host(),
            self.namespace.digest,
            self.namespace.document,
            self.hash_process_dependent,
            self.groups,
            staging_bytes,
        )


@attrs.define(slots=True, eq=False)
class Report:
    """A sync on its way to the manager."""

    build: Build
    receipt: SyncReceipt = attrs.field(factory=lambda: SyncReceipt(acknowledged=False))
    poisonings: int = 0
    """Connections that ended in the place of its answer."""


class ManagerSession:
    """Everything is used with `lock` held, but `lock` and `counting` themselves, and `connection` by who
    only tells it something.

    After a fork the child's copy is empty and connects anew; the parent's connection is not touched.
    """

    def __init__(self, socket_path: str, timeout_s: float, identity: RankIdentity | None) -> None:
        self.socket_path = socket_path
        self.timeout_s = timeout_s
        self.identity = identity
        self.closed = False
        self.wants_registration = False
        """Whether a new connection registers by itself."""
        self.pool: PoolMapping | None = None
        self._start_afresh()
        _sessions.add(self)

    def _start_afresh(self) -> None:
        """What belongs to one process and must not be shared over a fork."""
        self.lock = threading.Lock()
        self.counting = threading.Lock()
        """For counts that any thread adds to; held for nothing else."""
        self.connection: Connection | None = None
        self.registration: Registration | None = None
        self.saves: SaveTable | None = None
        self.unreported: deque[Report] = deque()
        self._retry_at = 0.0
        self._backoff_s = BACKOFF_FIRST_SECONDS
        self._trouble: OrbitError | None = None

    # --- connected or not -----------------------------------------------------------------------------

    def live(self) -> Connection:
        """The connection, made anew if need be. Raises what stands in the way, at once."""
        if self.connection is not None:
            return self.connection
        if self.closed:
            raise ClientClosed("This client was closed. Make a new one.")
        if self._trouble is not None and time.monotonic() < self._retry_at:
            raise self._trouble.with_traceback(None)
        try:
            connection = self._connect()
        except OrbitError as error:
            self._trouble = error
            self._retry_at = time.monotonic() + self._backoff_s
            self._backoff_s = min(2 * self._backoff_s, BACKOFF_LAST_SECONDS)
            raise
        self._trouble = None
        self._backoff_s = BACKOFF_FIRST_SECONDS
        return connection

    def retry_now(self) -> None:
        """The next `live()` tries, however lately the last one failed."""
        self._retry_at = 0.0

    def _connect(self) -> Connection:
        connection = Connection(self.socket_path, self.timeout_s)
        try:
            welcome = connection.welcome
            if self.pool is None or not self.pool.shows(connection.pool_fd):
                self.pool = PoolMapping(connection.pool_fd, welcome.pool_bytes, welcome.incarnation)
            if self.wants_registration:
                self._register_on(connection)
            self.resend(connection)
        except OSError as error:
            self._discard(connection)
            raise LimitExceeded(
                f"The pool or the staging window could not be mapped: {error}. "
                "Raise this process's limits on address space and descriptors, or lower staging_bytes."
            ) from error
        except BaseException:
            self._discard(connection)
            raise
        self.connection = connection
        return connection

    def _register_on(self, connection: Connection) -> None:
        identity = self.identity
        if identity is None:
            raise LimitExceeded(
                "An operator's client does not register. Use CacheManagerClient for an engine."
            )
        window = StagingWindow(identity.groups, identity.staging_bytes) if identity.staging_bytes else None
        self.saves = None if window is None else SaveTable(window)
        staging_bytes = 0 if window is None else window.staging_bytes
        check_request(identity.registration(1, staging_bytes))
        reply = connection.ask(
            lambda call: identity.registration(call, staging_bytes),
            descriptors=() if window is None else (window.fd,),
        )
        self.note_registered(connection, self.expect(reply, wire.Registered))

    def note_registered(self, connection: Connection, registered: wire.Registered) -> Registration:
        self.registration = Registration(
            connection.welcome.session,
            connection.welcome.incarnation,
            registered.instance,
            registered.sealed,
            {layout.group: layout for layout in registered.groups},
        )
        return self.registration

    def forget(self) -> None:
        """Let the connection go; the next call makes another. Idempotent."""
        if self.connection is not None:
            self._discard(self.connection)

    def _discard(self, connection: Connection) -> None:
        connection.close()
        if self.saves is not None:
            self.saves.window.close()
        self.connection = None
        self.registration = None
        self.saves = None

    def close(self) -> None:
        """Say goodbye and let go for good. Idempotent."""
        if self.connection is not None:
            try:
                self.connection.ask(wire.CloseSession)
            except OrbitError:
                pass  # it is being closed either way
        self.forget()
        self.closed = True
        self.pool = None

    def abandon(self) -> None:
        """In a child, right after the fork: what came from the parent is the parent's."""
        connection, saves = self.connection, self.saves
        self.pool = None
        self._start_afresh()
        if connection is not None:
            connection.abandon()
        if saves is not None:
            saves.window.close()

    # --- asking ---------------------------------------------------------------------------------------

    def ask(self, *builds: Build, again: bool) -> CallReply:
        """The reply to the last request. Raises OrbitError, also for a refusal.

        `again`: asking twice does no harm, so after a broken connection it is asked once more. What
        certainly did not reach the manager is always asked again.
        """
        connection = self.live()
        try:
            reply = connection.ask(*builds)
        except ConnectionLost as lost:
            self.forget()
            if lost.sent and not again:
                raise
            connection = self.live()
            try:
                reply = connection.ask(*builds)
            except ConnectionLost:
                self.forget()
                raise
        if connection.notices:
            self.take_notices(connection)
        if type(reply) is wire.ErrorReply:
            raise refused(reply)
        return reply

    def expect(self, reply: CallReply, kind: type[_Answer]) -> _Answer:
        """The reply, if it is of this kind. Raises RequestRefused, or ChannelPoisoned and lets go."""
        if isinstance(reply, kind):
            return reply
        if isinstance(reply, wire.ErrorReply):
            raise refused(reply)
        raise self.distrust(f"answered with {type(reply).__name__} where {kind.__name__} was due")

    def distrust(self, did: str) -> ChannelPoisoned:
        """The manager is not what it should be: close, and say so."""
        self.forget()
        return ChannelPoisoned(
            f"The manager at {self.socket_path} {did}; the connection was closed. "
            "Reconnect required: the next call does that. If it happens again, compare both versions."
        )

    def drain(self, connection: Connection) -> None:
        """Take in what has arrived by itself. Raises ConnectionLost and lets go."""
        try:
            connection.drain()
        except ConnectionLost:
            self.forget()
            raise
        self.take_notices(connection)

    def take_notices(self, connection: Connection) -> None:
        if self.saves is not None:
            for notice in connection.notices:
                if isinstance(notice, wire.SlicesCopied):
                    self.saves.copied(notice)
                else:
                    self.saves.sealed(notice)
        connection.notices.clear()

    def resend(self, connection: Connection) -> None:
        """Deliver syncs, oldest first. Raises ConnectionLost, CallTimedOut; what is not delivered stays."""
        while self.unreported:
            report = self.unreported[0]
            try:
                reply = connection.ask(report.build)
            except ChannelPoisoned as poisoned:
                report.poisonings += 1
                if report.poisonings == POISONINGS_MAX:
                    # It would take all later ones with it. Its pages are held until this process ends.
                    report.receipt = SyncReceipt(acknowledged=False, refused=str(poisoned))
                    self.unreported.popleft()
                raise
            if isinstance(reply, wire.ErrorReply):
                if reply.retry_helps:
                    return  # for example: other ranks have not come back yet
                report.receipt = SyncReceipt(acknowledged=True, refused=reply.sentence)
            else:
                taken = self.expect(reply, wire.SyncTaken)
                report.receipt = SyncReceipt(True, taken.late, taken.repeated)
            self.unreported.popleft()

    def __repr__(self) -> str:
        if self.closed:
            return "ManagerSession(closed)"
        return f"ManagerSession({self.connection or 'not connected'}, unreported={len(self.unreported)})"


_sessions: "weakref.WeakSet[ManagerSession]" = weakref.WeakSet()


def _abandon_all() -> None:
    for session in list(_sessions):
        session.abandon()


os.register_at_fork(after_in_child=_abandon_all)
