"""What all requests share: the desk they are answered at, and how a refusal is told."""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

import attrs

from orbitkv.events.commands import Command
from orbitkv.events.outcomes import Refusal
from orbitkv.io import wire
from orbitkv.io.tokens import HandleKind, HandleRefused, TokenSealer
from orbitkv.manager.kernel.state import State
from orbitkv.manager.kernel.turn import Refused
from orbitkv.manager.ports import Carrier, Channel
from orbitkv.manager.shell.admission import Admission
from orbitkv.manager.shell.board import OperationBoard
from orbitkv.manager.shell.loop import Question, StepResult


@attrs.define(slots=True)
class Desk:
    """What requests need beside the state."""

    channel: Channel
    carrier: Carrier
    handles: TokenSealer
    board: OperationBoard
    admission: Admission
    status: Callable[[], str]
    """How the manager is, as JSON."""

    def send(self, session: int, call: int, reply: wire.Reply) -> None:
        try:
            self.channel.send(session, reply)
        except ValueError as too_long:
            self.channel.send(
                session,
                error_reply(call, Refusal.MALFORMED, f"the answer cannot be sent: {too_long}; ask for less"),
            )

    def operation_of(self, handle: bytes) -> int:
        """Raises Denied."""
        return self._open(HandleKind.OPERATION, handle)

    def lease_of(self, handle: bytes) -> int:
        """Raises Denied."""
        return self._open(HandleKind.LEASE, handle)

    def _open(self, kind: HandleKind, handle: bytes) -> int:
        try:
            return self.handles.open(kind, handle)
        except HandleRefused as refused:
            raise Denied(refused.refusal, str(refused)) from refused


class Denied(Exception):
    """The request gets no further than the channel's edge."""

    def __init__(self, reason: Refusal | wire.ChannelRefusal, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


def error_reply(call: int, reason: Refusal | wire.ChannelRefusal, sentence: str) -> wire.ErrorReply:
    return wire.ErrorReply(call, int(reason), reason.name, sentence, reason.retry_helps)


Message = TypeVar("Message", bound=wire.Request)


@attrs.define(slots=True)
class Asked(Question, Generic[Message]):
    """One request of one session."""

    desk: Desk
    session: int
    message: Message
    descriptor: int = -1
    _denied: Denied | None = attrs.field(default=None, init=False)

    def command(self, state: State) -> Command | None:
        try:
            return self.ask(state)
        except Denied as denied:
            self._denied = denied
            return None

    def answer(self, state: State, result: StepResult | None) -> Callable[[], None] | None:
        reply = self._reply(state, result)
        return None if reply is None else partial(self.desk.send, self.session, self.message.call, reply)

    def _reply(self, state: State, result: StepResult | None) -> wire.Reply | None:
        if self._denied is not None:
            return error_reply(self.message.call, self._denied.reason, str(self._denied))
        if isinstance(result, Refused):
            return self.refused(result)
        return self.reply(state, result)

    @abstractmethod
    def ask(self, state: State) -> Command | None:
        """The command; None if the state has the answer already. Raises Denied."""

    @abstractmethod
    def reply(self, state: State, result: StepResult | None) -> wire.Reply | None:
        """The answer, right after the step; None for a request that has none."""

    def refused(self, refused: Refused) -> wire.Reply | None:
        return error_reply(self.message.call, refused.reason, refused.detail)
