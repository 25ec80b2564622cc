"""A hint and its end. Both are one-way: whatever becomes of them, the client hears nothing.

What the kernel makes of a hint stands in the log. A refused one leaves no record and no answer, so it is
counted here, by reason: else nobody could find out why an engine's hints never come to anything.
"""

import attrs

from orbitkv.events.commands import CancelHint, Command, WarmPrefix
from orbitkv.io import wire
from orbitkv.manager.kernel.state import State
from orbitkv.manager.kernel.turn import Refused
from orbitkv.manager.shell.loop import StepResult
from orbitkv.manager.shell.requests.base import Asked
from orbitkv.manager.shell.requests.queries import body_hash, query_part


@attrs.define(slots=True)
class HintedPrefix(Asked[wire.WarmPrefix]):
    def ask(self, state: State) -> Command | None:
        """None while the log takes no more: a hint would be new work, and there is no promise to keep."""
        if self.desk.admission.stopped:
            self.desk.admission.unlogged_hints += 1
            return None
        message = self.message
        return WarmPrefix(
            session=self.session,
            request=message.request,
            attempt=message.attempt,
            ticket=message.ticket,
            revision=message.revision,
            parts=tuple(query_part(state, self.session, part) for part in message.parts),
            body=body_hash(message.parts),
        )

    def reply(self, state: State, result: StepResult | None) -> None:
        return None

    def refused(self, refused: Refused) -> None:
        self.desk.admission.refuse_hint(refused.reason)


@attrs.define(slots=True)
class WithdrawnHint(Asked[wire.CancelHint]):
    """Ends something, so it goes through whatever the log does."""

    def ask(self, state: State) -> Command:
        return CancelHint(self.session, self.message.ticket)

    def reply(self, state: State, result: StepResult | None) -> None:
        return None

    def refused(self, refused: Refused) -> None:
        return None
