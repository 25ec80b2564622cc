"""One step in the making: events are applied as they are emitted, so later rules read the new state.

A turn also remembers what its events may have set free; the end of the step looks there for buffers
to free, pages to unbind, reservations to end and work to start, instead of searching the state.
"""

import attrs
import msgspec

from orbitkv.events.commands import Command
from orbitkv.events.facts import Event
from orbitkv.events.outcomes import Refusal
from orbitkv.events.record import Record
from orbitkv.manager.kernel.apply import APPLIERS, enter
from orbitkv.manager.kernel.columns import Ints
from orbitkv.manager.kernel.state import State


@attrs.frozen(slots=True)
class Answer:
    """The command changed nothing; the caller looks at the state for what it wants to know."""


_ANSWER = Answer()


@attrs.frozen(slots=True)
class Refused:
    """The command was not carried out and nothing changed."""

    reason: Refusal
    detail: str
    """What happened, why, and what mends it."""


class Refuse(Exception):
    """Raised while a command is validated, before the first event. Never leaves `step`."""

    def __init__(self, reason: Refusal, detail: str) -> None:
        super().__init__(detail)
        self.refused = Refused(reason, detail)


class Turn(msgspec.Struct, gc=False):
    """A msgspec struct although it never leaves memory: attrs takes a microsecond more to make one."""

    state: State
    at_ns: int
    cause: Command
    events: list[Event] = msgspec.field(default_factory=list)
    released: list[Ints] = msgspec.field(default_factory=list)
    """Buffers that may now be nobody's."""
    loosened: list[Ints] = msgspec.field(default_factory=list)
    """Pages that may now be in no tier."""
    reservations: dict[int, None] = msgspec.field(default_factory=dict)
    """Operations whose reservation may have to shrink or end."""
    successors: dict[int, None] = msgspec.field(default_factory=dict)
    """Operations that pay for pages from now on, because an earlier payer let go."""
    answerable: dict[int, None] = msgspec.field(default_factory=dict)
    """Operations that may have all they wait for."""
    instances: dict[int, None] = msgspec.field(default_factory=dict)
    """Instances that may be over."""
    budget_freed: bool = False
    reads_wanted: bool = False
    writes_wanted: bool = False

    def emit(self, event: Event) -> None:
        if not self.events:
            enter(self.state, self.state.seq + 1, self.at_ns)
        APPLIERS[type(event)](self.state, event)
        self.events.append(event)

    def record(self) -> Record | Answer:
        if not self.events:
            return _ANSWER
        return Record(self.state.seq, self.state.at_ns, self.cause, tuple(self.events))
