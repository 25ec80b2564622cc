"""Submit, poll and cancel a query."""

import struct
from collections.abc import Sequence

import attrs
import xxhash

from orbitkv.events.commands import CancelQuery, Command, PollQuery, QueryPart, SubmitQuery
from orbitkv.events.ids import NONE_U32
from orbitkv.events.outcomes import Refusal
from orbitkv.events.record import Record
from orbitkv.io import wire
from orbitkv.io.tokens import HandleKind
from orbitkv.manager.kernel.state import State
from orbitkv.manager.kernel.turn import Refused
from orbitkv.manager.kernel.views import (
    QueryStatus,
    find_operation,
    group_layout,
    pool_offsets,
    query_view,
    resolve_keys,
)
from orbitkv.manager.shell.admission import RequestKey
from orbitkv.manager.shell.loop import StepResult
from orbitkv.manager.shell.requests.base import Asked, Desk

_STATUS = {
    QueryStatus.LOADING: wire.QueryStatus.LOADING,
    QueryStatus.READY: wire.QueryStatus.READY,
    QueryStatus.MISSED: wire.QueryStatus.MISSED,
    QueryStatus.BYPASSED: wire.QueryStatus.BYPASSED,
    QueryStatus.RETIRED: wire.QueryStatus.RETIRED,
}
_PART = struct.Struct("<IIII")
_UNKNOWN = NONE_U32.to_bytes(4, "little")


def resolved(
    state: State, session: int, group: int, keys: Sequence[bytes]
) -> tuple[bytes, tuple[bytes, ...]]:
    """Page numbers and unknown keys. All are unknown where the group is not served; the kernel says why."""
    layout = group_layout(state, session, group)
    if layout is None:
        return _UNKNOWN * len(keys), tuple(keys)
    return resolve_keys(state, layout.space, keys)


def query_part(state: State, session: int, part: wire.QueryPart) -> QueryPart:
    """A part of a query or a hint, its keys resolved as far as they are known now."""
    pages, unknown = resolved(state, session, part.group, part.keys)
    return QueryPart(part.group, part.page_tokens, part.trailing, pages, unknown)


def body_hash(parts: Sequence[wire.QueryPart]) -> int:
    """64 bits that tell one query body from another."""
    digest = xxhash.xxh3_64()
    for part in parts:
        digest.update(_PART.pack(part.group, part.page_tokens, part.trailing, len(part.keys)))
        digest.update(bytes(map(len, part.keys)))
        digest.update(b"".join(part.keys))
    return digest.intdigest()


def query_answer(desk: Desk, state: State, call: int, operation: int) -> wire.QueryAnswered:
    """Where the operation stands right now."""
    view = query_view(state, operation)
    handle = desk.handles.seal(HandleKind.OPERATION, operation)
    if view.status is QueryStatus.LOADING:
        cell, word = desk.board.watch(operation)
        return wire.QueryAnswered(call, wire.QueryStatus.LOADING, handle, cell, word)
    if view.status is not QueryStatus.READY or view.buffers is None:
        return wire.QueryAnswered(call, _STATUS[view.status], handle)
    return wire.QueryAnswered(
        call,
        wire.QueryStatus.READY,
        handle,
        boundary_tokens=view.boundary_tokens,
        hits=tuple(pages for _, _, pages in view.parts),
        lease=desk.handles.seal(HandleKind.LEASE, view.lease),
        offsets=pool_offsets(state, view.buffers),
    )


@attrs.define(slots=True)
class AskedQuery(Asked[wire.SubmitQuery]):
    def ask(self, state: State) -> Command | None:
        message = self.message
        if self._answered_without_record(state):
            return None
        return SubmitQuery(
            session=self.session,
            request=message.request,
            attempt=message.attempt,
            ticket=message.ticket,
            revision=message.revision,
            parts=tuple(query_part(state, self.session, part) for part in message.parts),
            body=body_hash(message.parts),
        )

    def reply(self, state: State, result: StepResult | None) -> wire.Reply:
        message = self.message
        operation = None
        if result is not None:
            operation = find_operation(state, self.session, message.request, message.attempt)
        if operation is None:
            return wire.QueryAnswered(message.call, wire.QueryStatus.MISSED)
        return query_answer(self.desk, state, message.call, operation)

    def refused(self, refused: Refused) -> wire.Reply | None:
        if refused.reason is Refusal.BUSY:
            return wire.QueryAnswered(self.message.call, wire.QueryStatus.BUSY)
        return super().refused(refused)

    def _answered_without_record(self, state: State) -> bool:
        """While the log is stopped new queries miss, and stay missed for the instance's other ranks."""
        admission = self.desk.admission
        session = state.sessions.get(self.session)
        if session is None or session.instance < 0:
            return False
        message = self.message
        key: RequestKey = (session.instance, message.request, message.attempt, message.revision)
        if admission.was_missed_unlogged(key):
            return True
        known = find_operation(state, self.session, message.request, message.attempt)
        if known is not None or not admission.stopped:
            return False
        admission.miss_unlogged(key)
        return True


@attrs.define(slots=True)
class AskedPoll(Asked[wire.PollQuery]):
    _operation: int = attrs.field(default=0, init=False)

    def ask(self, state: State) -> Command:
        self._operation = self.desk.operation_of(self.message.operation)
        return PollQuery(self.session, self._operation)

    def reply(self, state: State, result: StepResult | None) -> wire.Reply:
        return query_answer(self.desk, state, self.message.call, self._operation)


@attrs.define(slots=True)
class AskedCancel(Asked[wire.CancelQuery]):
    def ask(self, state: State) -> Command:
        return CancelQuery(self.session, self.desk.operation_of(self.message.operation))

    def reply(self, state: State, result: StepResult | None) -> wire.Reply:
        return wire.Done(self.message.call, int(isinstance(result, Record)))
