"""What facts mean for those outside who did not ask: clients that wait, windows that are over.

Sends what the wire calls notices, and marks the board. Knows which instance saves a page, because the
fact that a page is sealed comes when the kernel has forgotten its save.
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from orbitkv.events import facts
from orbitkv.events.commands import CompleteCopies
from orbitkv.events.record import Record
from orbitkv.io import wire
from orbitkv.manager.kernel.columns import pack, unpack
from orbitkv.manager.kernel.state import State
from orbitkv.manager.ports import Carrier, Channel
from orbitkv.manager.shell.board import OperationBoard


@attrs.define(slots=True)
class Notices:
    state: State
    channel: Channel
    carrier: Carrier
    board: OperationBoard
    _savers: dict[int, int] = attrs.field(factory=dict, init=False)
    """Buffer being sealed -> instance."""
    _ended: dict[int, int] = attrs.field(factory=dict, init=False)
    """The same for the seals that ended last; whether their pages are saved is told right after."""

    def give(self, records: Sequence[Record]) -> None:
        for record in records:
            cause = record.cause
            if isinstance(cause, CompleteCopies):
                # Also for saves that were dropped meanwhile: what counts is that the window is read no more.
                self.channel.send(cause.session, wire.SlicesCopied(cause.buffers, cause.outcomes))
            for event in record.events:
                tell = _TELLERS.get(type(event))
                if tell is not None:
                    tell(self, event)

    def _moved(self, event: facts.LeaseGranted | facts.QueryEnded) -> None:
        self.board.moved(event.operation)

    def _window_over(self, event: facts.SessionClosed) -> None:
        self.carrier.detach_staging(event.session)

    def _remember_savers(self, event: facts.SealsStarted) -> None:
        for buffer in unpack(event.buffers).tolist():
            self._savers[buffer] = self.state.saves[buffer].instance

    def _forget_savers(self, event: facts.SealsEnded) -> None:
        self._ended = {buffer: self._savers.pop(buffer) for buffer in unpack(event.buffers).tolist()}

    def _sealed(self, event: facts.PagesSealed) -> None:
        by_instance: dict[int, list[int]] = {}
        for buffer in unpack(event.buffers).tolist():
            by_instance.setdefault(self._ended[buffer], []).append(buffer)
        for number, sealed in by_instance.items():
            instance = self.state.instances.get(number)
            for session in instance.open_sessions() if instance is not None else ():
                self.channel.send(session, wire.PagesSealed(pack(sealed)))


_TELLERS: dict[type, Callable[[Notices, Any], None]] = {
    facts.LeaseGranted: Notices._moved,
    facts.QueryEnded: Notices._moved,
    facts.SessionClosed: Notices._window_over,
    facts.SealsStarted: Notices._remember_savers,
    facts.SealsEnded: Notices._forget_savers,
    facts.PagesSealed: Notices._sealed,
}
"""By the fact's type, as most facts of a busy manager are told to nobody."""
