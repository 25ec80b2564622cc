"""What is wrong at present, in words that name the remedy.

A degradation has a name and lasts until it is cleared by that name; each change is said once on the
manager's output. Decides nothing: whoever finds a trouble also acts on it.
"""

from collections.abc import Callable
from enum import Enum

import attrs


class Stage(Enum):
    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"


HEALTHY = "ok"


@attrs.define(slots=True)
class Health:
    say: Callable[[str], None]
    stage: Stage = Stage.STARTING
    degradations: dict[str, str] = attrs.field(factory=dict)
    """Name -> what happened, why, and what mends it."""
    stopping_names: frozenset[str] = frozenset({"log"})
    """Degradations in which nothing new is served; with all others every request is still answered."""

    def degrade(self, name: str, reason: str) -> None:
        if self.degradations.get(name) != reason:
            self.say(f"degraded ({name}): {reason}")
        self.degradations[name] = reason

    def clear(self, name: str) -> None:
        if self.degradations.pop(name, None) is not None:
            self.say(f"recovered ({name})")

    @property
    def status(self) -> str:
        """`ok`; `degraded` while nothing new is served; else the stage."""
        if self.stage is not Stage.SERVING:
            return str(self.stage.value)
        return "degraded" if self.stopping_names & self.degradations.keys() else HEALTHY
