"""The engine's side of OrbitKV: one object per rank process, usable from any of its threads.

Synchronous, because engines are; no event loop, no thread of its own. It connects when first used,
connects again by itself when the manager was restarted, and never waits for a manager that is not there.
After a fork the child is a client of its own and does not touch what the parent holds.

What it must not do: decide anything. Which pages hit, which are wanted, what a sync is worth are the
manager's answers.
"""

import itertools
import os
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final

import numpy as np

from orbitkv.adapters.answers import QueryAnswer, Registration, SyncReceipt, Waiting, read_answer
from orbitkv.adapters.client_errors import (
    CallTimedOut,
    ConnectionLost,
    LimitExceeded,
    OrbitError,
    RequestRefused,
)
from orbitkv.adapters.connection import Build, check_request
from orbitkv.adapters.hints import STALE_SECONDS, HintCounts, HintRefusal, Hints
from orbitkv.adapters.namespace import Namespace
from orbitkv.adapters.questions import query_builds
from orbitkv.adapters.restore import PoolMapping, RestoreView
from orbitkv.adapters.saver import Saver
from orbitkv.adapters.saves import SavePlan, SaveResult
from orbitkv.adapters.session import (
    BACKOFF_FIRST_SECONDS,
    BACKOFF_LAST_SECONDS,
    ManagerSession,
    RankIdentity,
    Report,
)
from orbitkv.adapters.timeline import EngineTimeline
from orbitkv.events.geometry import GroupGeometry
from orbitkv.events.outcomes import Refusal, SyncOutcome
from orbitkv.io import wire
from orbitkv.io.wire import QueryPart, QueryStatus

__all__ = ["CacheManagerClient", "HintRefusal", "QueryPart", "QueryStatus"]

TIMEOUT_SECONDS: Final = 5.0
BOARD_REFRESH_SECONDS: Final = 0.1
"""How long the board alone is believed: a manager that died no longer writes it."""
WAITING_MAX: Final = 1024
"""Most loading answers remembered for the board; more are polled by asking."""
UNREPORTED_MAX: Final = 1024
"""Most syncs waiting to be acknowledged; then no restore begins until some are."""


class CacheManagerClient:
    """Every method raises OrbitError (see `client_errors`); each request waits `timeout_s` at most.

    Hints and stages are the exception: they wait for nothing and raise nothing.
    """

    def __init__(
        self,
        socket_path: str | os.PathLike[str],
        *,
        instance: str,
        namespace: Namespace,
        groups: Sequence[GroupGeometry] = (),
        rank: int = 0,
        world_size: int = 1,
        staging_bytes: int = 0,
        hash_process_dependent: bool = False,
        timeout_s: float = TIMEOUT_SECONDS,
        hint_stale_s: float = STALE_SECONDS,
        timeline_write: Callable[[str], None] | None = None,
    ) -> None:
        """`instance`: the engine's name, the same for all its ranks.

        `groups`: the slices that this rank holds. `rank`: 0 .. world_size-1, or SCHEDULER_RANK for a process
        that asks but holds no KV. `staging_bytes`: 0 when this process saves nothing. `hint_stale_s`: the
        manager's `hint_lifetime`. `timeline_write` takes the lines of `cache_timeline`, which else go to
        stderr. Does not connect yet.
        """
        identity = RankIdentity(
            instance=instance,
            rank=rank,
            world_size=world_size,
            namespace=namespace,
            groups=tuple(groups),
            staging_bytes=staging_bytes,
            hash_process_dependent=hash_process_dependent,
        )
        self._session = ManagerSession(os.fspath(socket_path), timeout_s, identity)
        self._saver = Saver(self._session)
        self._tickets = itertools.count(1)
        self._hints = Hints(self._session, self._tickets.__next__, hint_stale_s)
        self._waiting: dict[bytes, Waiting] = {}
        self.timeline = EngineTimeline(instance, rank, timeline_write)

    # --- being known ----------------------------------------------------------------------------------

    def register(self) -> Registration:
        """Make this rank known. Waits up to `timeout_s` for a manager, and for a rank that another process
        still holds (a predecessor that is about to end); not for the other ranks.

        Raises RequestRefused when the manager does not take it, for example for another geometry.
        """
        session = self._session
        deadline = time.monotonic() + session.timeout_s
        pause = BACKOFF_FIRST_SECONDS
        while True:
            try:
                with session.lock:
                    if not session.wants_registration:
                        session.wants_registration = True
                        session.forget()  # a connection that has not registered, if there is one
                    session.retry_now()
                    session.live()
                    return self._read_registration()
            except OrbitError as error:
                if not error.retry_helps or time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, BACKOFF_LAST_SECONDS)

    def registration(self) -> Registration:
        """How the registration stands now."""
        with self._session.lock:
            return self._read_registration()

    def wait_until_sealed(self, timeout_s: float) -> Registration:
        """Wait until all ranks have registered. Raises CallTimedOut."""
        deadline = time.monotonic() + timeout_s
        pause = 0.005
        while True:
            registration = self.registration()
            if registration.sealed:
                return registration
            if time.monotonic() + pause > deadline:
                raise CallTimedOut(
                    f"The instance is not complete after {timeout_s:g} s: not all its ranks have registered. "
                    "Start the missing ones, or correct world_size."
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.1)

    def _read_registration(self) -> Registration:
        session = self._session
        connection = session.live()
        if session.registration is not None and session.registration.sealed:
            return session.registration
        registered = session.expect(session.ask(wire.ReadRegistration, again=True), wire.Registered)
        return session.note_registered(session.connection or connection, registered)

    def tend(self) -> bool:
        """For idle times: takes in notices, reconnects, resends syncs. Whether there is a connection.

        Costs one system call when all is well. Never raises for the manager's absence.
        """
        session = self._session
        with session.lock:
            try:
                connection = session.live()
                session.drain(connection)
                session.resend(connection)
            except ConnectionLost:
                session.forget()
                return False
            except OrbitError:
                return False
            return True

    @property
    def pool(self) -> PoolMapping | None:
        """The manager's pool, for reading; None before the first connection. Another after a restart."""
        return self._session.pool

    def reconnect(self) -> None:
        """Drop the connection, and with it what was asked over it; the next call makes another.

        For a manager that does not answer: what it does late is nobody's answer any more. Syncs that were
        not acknowledged are kept and sent again.
        """
        with self._session.lock:
            self._session.forget()

    def close(self) -> None:
        """Say goodbye and let go. Idempotent. Views of the pool that are still held stay readable memory."""
        with self._session.lock:
            self._session.close()

    # --- asking ---------------------------------------------------------------------------------------

    def query(self, request: str, attempt: int, parts: Sequence[QueryPart], revision: int = 0) -> QueryAnswer:
        """Which prefix of these pages can be restored? All ranks that ask with the same (request, attempt)
        are given the same operation, decision and lease.

        A higher `revision` replaces the earlier question. More than 4,096 keys are sent in pieces. The
        request's hint, if this client sent one, is cancelled first.
        """
        builds = query_builds(request, attempt, revision, parts, self._tickets.__next__)
        self._hints.cancel(request, attempt)
        answer = self._answer(builds)
        self.timeline.asked(answer.operation, request, attempt)
        return answer

    def poll(self, operation: bytes) -> QueryAnswer:
        """The answer by now. While nothing has moved this is a read of the manager's board, not a call."""
        waiting = self._waiting.get(operation)
        if (
            waiting is not None
            and waiting.connection.board_word(waiting.answer.cell) == waiting.answer.word
            and time.monotonic() < waiting.refresh_at
            and waiting.connection is self._session.connection
        ):
            return waiting.answer
        return self._answer((lambda call: wire.PollQuery(call, operation),), operation)

    def cancel(self, operation: bytes) -> bool:
        """Drop interest. False when it had ended already; cancelling twice is harmless."""
        self._waiting.pop(operation, None)
        self.timeline.cancelled(operation)
        return self._let_go(lambda call: wire.CancelQuery(call, operation))

    def release(self, lease: bytes) -> bool:
        """This rank will not copy (a scheduler: no rank that has not begun will). False when it had ended."""
        return self._let_go(lambda call: wire.ReleaseLease(call, lease))

    def _answer(self, builds: Sequence[Build], operation: bytes = b"") -> QueryAnswer:
        session = self._session
        with session.lock:
            try:
                reply = session.ask(*builds, again=True)
            except RequestRefused as no:
                self._waiting.pop(operation, None)
                if no.refusal == Refusal.BUSY:
                    return QueryAnswer(QueryStatus.BUSY)
                if no.refusal == Refusal.RETIRED:
                    return QueryAnswer(QueryStatus.RETIRED, operation)
                raise
            answer = read_answer(session.expect(reply, wire.QueryAnswered))
            self._note_waiting(answer)
            return answer

    def _note_waiting(self, answer: QueryAnswer) -> None:
        waiting = self._waiting
        if answer.status is not QueryStatus.LOADING or answer.cell == wire.NO_CELL:
            waiting.pop(answer.operation, None)
            return
        if len(waiting) >= WAITING_MAX:
            waiting.pop(next(iter(waiting)))
        waiting[answer.operation] = Waiting(
            answer, self._session.live(), time.monotonic() + BOARD_REFRESH_SECONDS
        )

    def _let_go(self, build: Build) -> bool:
        session = self._session
        try:
            with session.lock:
                return session.expect(session.ask(build, again=True), wire.Done).count > 0
        except RequestRefused as no:
            if no.refusal in (Refusal.RETIRED, wire.ChannelRefusal.OTHER_INCARNATION):
                return False
            raise

    # --- hinting --------------------------------------------------------------------------------------

    def warm_prefix(
        self, request: str, attempt: int, parts: Sequence[QueryPart], revision: int = 0
    ) -> int | HintRefusal:
        """A queued request will miss these pages in GPU memory: its ticket, or why nothing was sent.

        For the callback of an engine's queue: one message, no answer, no promise. Costs at most that message,
        waits for nothing, connects to nothing, raises nothing; trouble is logged and counted. Sends whatever
        the switches say. At most 16 are out at once; each ends with its request's query, with `cancel_hint`,
        or after `hint_stale_s`. A higher `revision` replaces the request's earlier hint.
        """
        return self._hints.warm(request, attempt, parts, revision)

    def cancel_hint(self, request: str, attempt: int) -> bool:
        """The request left the queue without a query. False when no hint of it was out: cancelling twice is
        harmless. As quick and as quiet as `warm_prefix`.
        """
        return self._hints.cancel(request, attempt)

    @property
    def hint_counts(self) -> HintCounts:
        """Hints that were sent, and those that were not, by reason, since this client was made."""
        return self._hints.counts

    # --- restoring ------------------------------------------------------------------------------------

    def begin_restore(self, lease: bytes) -> RestoreView:
        """From here until `report_sync` the pages stay in place for this rank to copy."""
        session = self._session
        with session.lock:
            if len(session.unreported) >= UNREPORTED_MAX:
                raise LimitExceeded(
                    f"{UNREPORTED_MAX} syncs are waiting for the manager to acknowledge them, and no further "
                    "restore begins until it does. Look whether the manager answers."
                )
            if not (session.registration and session.registration.sealed):
                self._read_registration()
            reply = session.ask(lambda call: wire.BeginRestore(call, lease), again=False)
            begun = session.expect(reply, wire.RestoreBegun)
            if session.registration is None or session.pool is None:
                raise session.distrust("began a restore for a rank that is not registered")
            offsets = np.frombuffer(begun.offsets, "<u8")
            view = RestoreView(lease, session.pool, begun.parts, offsets, session.registration.layouts)
            if view.reaches_beyond_pool():
                raise session.distrust("named a page beyond the end of its pool")
        self.timeline.restore_begun(lease, begun.request, begun.attempt, len(view))
        return view

    def report_sync(
        self,
        lease: bytes,
        outcome: SyncOutcome,
        ranges: Sequence[tuple[int, int]],
        layers: int,
        copied_bytes: int,
        elapsed_us: int,
    ) -> SyncReceipt:
        """This rank's copies for the lease have ended.

        `ranges`: half-open ranges of positions in the page list, ascending. Never lost: a report that could
        not be delivered is sent again by later calls, and the manager counts it once. Raises LimitExceeded
        for what can be no report; then nothing was reported, and the pages are still held.
        """
        fields = (lease, outcome, tuple(ranges), layers, copied_bytes, elapsed_us)
        check_request(wire.ReportSync(1, *fields))
        if outcome is SyncOutcome.SUCCEEDED:
            self.timeline.synced(lease, copied_bytes, elapsed_us)
        report = Report(lambda call: wire.ReportSync(call, *fields))
        session = self._session
        with session.lock:
            session.unreported.append(report)
            for _ in range(2):
                try:
                    session.resend(session.live())
                    break
                except ConnectionLost:
                    session.forget()
                except OrbitError:
                    break  # a later call sends it
        return report.receipt

    # --- saving ---------------------------------------------------------------------------------------

    def begin_save(self, group: int, keys: Sequence[bytes]) -> SavePlan:
        """Offer pages; the plan says which are wanted, and where to put this rank's slices of them.

        Pages for which no staging slot is free are dropped and counted, at once.
        """
        with self._session.lock:
            return self._saver.begin(group, keys)

    def commit_save(self, plan: SavePlan) -> SaveResult:
        """The slots are filled: the manager may fetch them. Their credits return when it has.

        Returns at once. Raises SaveGivenUp when the plan's connection is gone.
        """
        with self._session.lock:
            return self._saver.commit(plan)

    def abort_save(self, plan: SavePlan) -> None:
        """Nothing of it will be filled. Idempotent."""
        with self._session.lock:
            self._saver.abort(plan)

    def wait_saved(self, plan: SavePlan, timeout_s: float) -> bool:
        """Wait until a committed plan is sealed or given up; False when it takes longer, or was lost.

        For tests and orderly ends: a forward pass never waits for this.
        """
        return self._saver.wait_saved(plan, timeout_s)

    @property
    def staging_credits(self) -> dict[int, int]:
        """Free staging slots by group, as far as is known without asking."""
        with self._session.lock:
            saves = self._session.saves
            return (
                {} if saves is None else {group: saves.window.credits(group) for group in saves.window.slots}
            )

    # --- telling --------------------------------------------------------------------------------------

    def report_stage(
        self, request: str, attempt: int, stage: str, at_unix_ns: int = 0, monotonic_ns: int = 0
    ) -> bool:
        """A fact about a request, for the log and the timeline. Never raises OrbitError, waits for nothing,
        connects to nothing.

        False when it was not sent to the manager. Times are now unless given.
        """
        at, monotonic = at_unix_ns or time.time_ns(), monotonic_ns or time.monotonic_ns()
        self.timeline.say(stage, request, attempt, at_unix_ns=at, monotonic_ns=monotonic)
        connection = self._session.connection
        if connection is None or not connection.begin_telling():
            return False
        try:
            check_request(wire.ReportStage(1, request, attempt, stage, at, monotonic))
            return connection.tell(wire.ReportStage, request, attempt, stage, at, monotonic)
        except OrbitError:
            return False
        finally:
            connection.sending.release()

    def __enter__(self) -> "CacheManagerClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"CacheManagerClient({self._session.socket_path!r}, {self._session!r})"
