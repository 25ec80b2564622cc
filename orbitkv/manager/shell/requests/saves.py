"""Offer pages for saving, hand over their slices, or take the offer back."""

import attrs

from orbitkv.events.commands import AbortSave, BeginSave, Command, CommitSave
from orbitkv.events.facts import CopiesStarted, SavesDropped
from orbitkv.events.ids import NONE_U32
from orbitkv.events.outcomes import SaveDrop
from orbitkv.events.record import Record
from orbitkv.io import wire
from orbitkv.manager.kernel.columns import pack
from orbitkv.manager.kernel.state import State
from orbitkv.manager.kernel.views import generations, save_plan
from orbitkv.manager.shell.loop import StepResult
from orbitkv.manager.shell.requests.base import Asked
from orbitkv.manager.shell.requests.queries import resolved


@attrs.define(slots=True)
class AskedSave(Asked[wire.BeginSave]):
    _command: BeginSave | None = attrs.field(default=None, init=False)

    def ask(self, state: State) -> Command | None:
        message = self.message
        if self.desk.admission.stopped:
            self.desk.admission.unlogged_save_pages += len(message.keys)
            return None
        pages, unknown = resolved(state, self.session, message.group, message.keys)
        self._command = BeginSave(
            session=self.session,
            group=message.group,
            pages=pages,
            unknown=unknown,
            uncredited_pages=message.uncredited_pages,
            credit_pages=message.credit_pages,
        )
        return self._command

    def reply(self, state: State, result: StepResult | None) -> wire.Reply:
        message = self.message
        if self._command is None:
            dropped = ((int(SaveDrop.DEGRADED), len(message.keys)),)
            return wire.SaveBegun(message.call, b"", b"", b"", dropped)
        plan = save_plan(state, self._command)
        wanted = [position for position, buffer in enumerate(plan) if buffer != NONE_U32]
        return wire.SaveBegun(
            message.call,
            positions=pack(wanted),
            buffers=pack([plan[position] for position in wanted]),
            generations=generations(state, [plan[position] for position in wanted]),
            dropped=self._dropped(result),
        )

    def _dropped(self, result: StepResult | None) -> tuple[tuple[int, int], ...]:
        """Offered pages only: those that the engine had dropped before are its own count."""
        if not isinstance(result, Record):
            return ()
        counts: dict[int, int] = {}
        for event in result.events:
            if isinstance(event, SavesDropped):
                counts[event.reason] = counts.get(event.reason, 0) + event.count
        counts[SaveDrop.NO_CREDIT] = counts.get(SaveDrop.NO_CREDIT, 0) - self.message.uncredited_pages
        return tuple((int(reason), count) for reason, count in counts.items() if count > 0)


@attrs.define(slots=True)
class AskedCommit(Asked[wire.CommitSave]):
    def ask(self, state: State) -> Command:
        message = self.message
        return CommitSave(self.session, message.buffers, message.staging_offsets, message.generations)

    def reply(self, state: State, result: StepResult | None) -> wire.Reply:
        accepted = b""
        if isinstance(result, Record):
            accepted = b"".join(event.buffers for event in result.events if isinstance(event, CopiesStarted))
        return wire.SaveCommitted(self.message.call, accepted)


@attrs.define(slots=True)
class AskedAbort(Asked[wire.AbortSave]):
    def ask(self, state: State) -> Command:
        return AbortSave(self.session, self.message.buffers, self.message.generations)

    def reply(self, state: State, result: StepResult | None) -> wire.Reply:
        return wire.Done(self.message.call)
