"""The kernel: synchronous, pure, no I/O, no clock. Production, replay and simulator run this same code.

step(state, at_ns, command) -> Record | Answer | Refused
apply(state, event), fold(state, record)
effects_of(record), outstanding(state), next_deadline(state)
snapshot(state), restore(data), digest(state), check(state)
"""

from orbitkv.manager.kernel.apply import apply, fold
from orbitkv.manager.kernel.effects import Outstanding, effects_of, outstanding
from orbitkv.manager.kernel.invariants import check
from orbitkv.manager.kernel.maintenance import next_deadline
from orbitkv.manager.kernel.snapshot import digest, restore, snapshot
from orbitkv.manager.kernel.state import State, new_state
from orbitkv.manager.kernel.step import KERNEL_REVISION, step
from orbitkv.manager.kernel.turn import Answer, Refused
from orbitkv.manager.kernel.views import resolve_keys

__all__ = [
    "KERNEL_REVISION",
    "Answer",
    "Outstanding",
    "Refused",
    "State",
    "apply",
    "check",
    "digest",
    "effects_of",
    "fold",
    "new_state",
    "next_deadline",
    "outstanding",
    "resolve_keys",
    "restore",
    "snapshot",
    "step",
]
