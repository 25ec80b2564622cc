"""What the channel brought, as inputs of the loop, in an order that is fair.

Completions and the clock have tasks of their own and never stand in this line. Between two turns of
clients those tasks get to run: a turn is at most `TURN_MESSAGES_MAX` messages, and the channel gives at
most one message of a session in a round. Back-pressure is not reading the sockets meanwhile.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs
import trio

from orbitkv.events.commands import CloseSession, Command, OpenSession, ReleaseProcess
from orbitkv.io import wire
from orbitkv.manager.kernel.state import State
from orbitkv.manager.kernel.turn import Refused
from orbitkv.manager.ports import Channel, Connected, Disconnected, Inbound, ProcessEnded, Request
from orbitkv.manager.shell.loop import Input, Loop, Question, StepResult
from orbitkv.manager.shell.requests.base import Asked, Desk, error_reply
from orbitkv.manager.shell.requests.hints import HintedPrefix, WithdrawnHint
from orbitkv.manager.shell.requests.operator import AskedCleanup, AskedProcessRelease, AskedStatus
from orbitkv.manager.shell.requests.queries import AskedCancel, AskedPoll, AskedQuery
from orbitkv.manager.shell.requests.restores import AskedRelease, AskedRestore, AskedSync
from orbitkv.manager.shell.requests.saves import AskedAbort, AskedCommit, AskedSave
from orbitkv.manager.shell.requests.sessions import (
    AskedGoodbye,
    AskedRegistration,
    AskedSealing,
    ReportedStage,
)

TURN_MESSAGES_MAX = 64
"""Messages of clients between two chances for completions and the clock."""

_ASKED: dict[type, type[Asked[Any]]] = {
    wire.SubmitQuery: AskedQuery,
    wire.PollQuery: AskedPoll,
    wire.CancelQuery: AskedCancel,
    wire.BeginRestore: AskedRestore,
    wire.ReportSync: AskedSync,
    wire.ReleaseLease: AskedRelease,
    wire.BeginSave: AskedSave,
    wire.CommitSave: AskedCommit,
    wire.AbortSave: AskedAbort,
    wire.RegisterRank: AskedRegistration,
    wire.ReadRegistration: AskedSealing,
    wire.ReportStage: ReportedStage,
    wire.CloseSession: AskedGoodbye,
    wire.DropDram: AskedCleanup,
    wire.ReleaseProcess: AskedProcessRelease,
    wire.ReadStatus: AskedStatus,
    wire.WarmPrefix: HintedPrefix,
    wire.CancelHint: WithdrawnHint,
}


@attrs.define(slots=True)
class Arrival(Question):
    """A connection that was let in by the channel; the kernel may still be full, or leaving."""

    desk: Desk
    connected: Connected

    def command(self, state: State) -> Command:
        connected = self.connected
        return OpenSession(
            session=connected.session,
            process=connected.process,
            pid=connected.pid,
            uid=connected.uid,
            end_observable=connected.end_observable,
        )

    def answer(self, state: State, result: StepResult | None) -> Callable[[], None] | None:
        return partial(self._turn_away, result) if isinstance(result, Refused) else None

    def _turn_away(self, refused: Refused) -> None:
        self.desk.send(self.connected.session, 0, error_reply(0, refused.reason, refused.detail))
        self.desk.channel.close_session(self.connected.session)


def inputs(desk: Desk, inbound: Sequence[Inbound]) -> Iterator[Input]:
    """The same things in the loop's words, order kept."""
    for item in inbound:
        match item:
            case Request():
                kind = _ASKED[type(item.message)]
                yield kind(desk, item.session, item.message, item.descriptor)
            case Connected():
                yield Arrival(desk, item)
            case Disconnected():
                yield CloseSession(item.session, item.cause)
            case ProcessEnded():
                yield ReleaseProcess(item.process)


async def run_clients(loop: Loop, channel: Channel, desk: Desk) -> None:
    """Let clients have their turns until cancelled."""
    taken = 0
    while True:
        inbound = await channel.receive()
        loop.process(inputs(desk, inbound))
        taken += len(inbound)
        if taken >= TURN_MESSAGES_MAX:
            taken = 0
            await trio.lowlevel.checkpoint()
