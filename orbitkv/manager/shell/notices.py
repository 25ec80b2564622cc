"""What facts mean for those outside who did not ask: clients that wait, windows that are over.

Sends what the wire calls notices, and marks the board. Knows which instance saves a page, because the
fact that a page is sealed comes when the kernel has forgotten its save.
"""

from collections.abc import Sequence

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
                self._tell(event)

    def _tell(self, event: facts.Event) -> None:
        match event:
            case facts.LeaseGranted() | facts.QueryEnded():
                self.board.moved(event.operation)
            case facts.SessionClosed():
                self.carrier.detach_staging(event.session)
            case facts.SealsStarted():
                for buffer in unpack(event.buffers).tolist():
                    self._savers[buffer] = self.state.saves[buffer].instance
            case facts.SealsEnded():
                self._ended = {buffer: self._savers.pop(buffer) for buffer in unpack(event.buffers).tolist()}
            case facts.PagesSealed():
                self._say_sealed(unpack(event.buffers).tolist())
            case _:
                pass

    def _say_sealed(self, buffers: Sequence[int]) -> None:
        by_instance: dict[int, list[int]] = {}
        for buffer in buffers:
            by_instance.setdefault(self._ended[buffer], []).append(buffer)
        for number, sealed in by_instance.items():
            instance = self.state.instances.get(number)
            for session in instance.open_sessions() if instance is not None else ():
                self.channel.send(session, wire.PagesSealed(pack(sealed)))
