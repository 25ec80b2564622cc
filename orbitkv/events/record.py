"""One line of the log: what was asked, and what happened because of it."""

import msgspec

from orbitkv.events.commands import Command
from orbitkv.events.facts import Event


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False):
    seq: int
    """1 for an incarnation's first record, then without gaps."""
    at_ns: int
    """The manager's monotonic clock, never falling within an incarnation."""
    cause: Command
    events: tuple[Event, ...]
