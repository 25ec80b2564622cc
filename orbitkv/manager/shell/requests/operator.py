"""What an operator asks over the channel: how is it, drop what nobody holds, that process is gone."""

import attrs

from orbitkv.events.commands import Command, DropDram, ReleaseProcess
from orbitkv.events.facts import PagesEvicted
from orbitkv.events.record import Record
from orbitkv.io import wire
from orbitkv.manager.kernel.columns import column_length
from orbitkv.manager.kernel.state import State
from orbitkv.manager.shell.loop import StepResult
from orbitkv.manager.shell.requests.base import Asked


def evicted_pages(result: StepResult | None) -> int:
    if not isinstance(result, Record):
        return 0
    return sum(column_length(event.buffers) for event in result.events if isinstance(event, PagesEvicted))


@attrs.define(slots=True)
class AskedCleanup(Asked[wire.DropDram]):
    def ask(self, state: State) -> Command:
        return DropDram()

    def reply(self, state: State, result: StepResult | None) -> wire.Reply:
        return wire.Done(self.message.call, evicted_pages(result))


@attrs.define(slots=True)
class AskedProcessRelease(Asked[wire.ReleaseProcess]):
    def ask(self, state: State) -> Command:
        return ReleaseProcess(self.message.process, by_operator=True)

    def reply(self, state: State, result: StepResult | None) -> wire.Reply:
        return wire.Done(self.message.call, int(isinstance(result, Record)))


@attrs.define(slots=True)
class AskedStatus(Asked[wire.ReadStatus]):
    def ask(self, state: State) -> None:
        return None

    def reply(self, state: State, result: StepResult | None) -> wire.Reply:
        return wire.StatusReport(self.message.call, self.desk.status())
