"""The world as it can go wrong: implementations of `orbitkv.manager.ports` for tests.

Each is an honest, deterministic stand-in that keeps the port's promises, and can be told to break a
particular one. They see ports and events and nothing else of OrbitKV, so that a mistake in the
kernel, the shell or the real implementations cannot hide in them as well. Where a port's user owes
something (no two transfers into the same memory, no reuse of a slot in flight) they assert it.
"""

from tests.doubles.carrier import CompletionFault, MemoryCarrier
from tests.doubles.clock import SettableClock
from tests.doubles.faults import StoreFaults
from tests.doubles.journal import MemoryJournal
from tests.doubles.medium import Medium
from tests.doubles.pool import PlainPool
from tests.doubles.store import MemoryStore

__all__ = [
    "CompletionFault",
    "Medium",
    "MemoryCarrier",
    "MemoryJournal",
    "MemoryStore",
    "PlainPool",
    "SettableClock",
    "StoreFaults",
]
