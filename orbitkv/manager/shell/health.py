"""What is wrong at present, in words that name the remedy.

A degradation has a component's name and lasts until it is cleared by that name; each change is said once
on the manager's output. Decides nothing: whoever finds a trouble also acts on it.
"""

from collections.abc import Callable
from enum import Enum

import attrs


class Stage(Enum):
    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"


HEALTHY = "ok"
DEGRADED = "degraded"


@attrs.define(slots=True)
class Health:
    say: Callable[[str], None]
    stage: Stage = Stage.STARTING
    degradations: dict[str, str] = attrs.field(factory=dict)
    """Component -> what happened, why, and what mends it."""
    stopping_names: frozenset[str] = frozenset({"log"})
    """Components without which nothing new is served; without all others every request is still answered."""

    def degrade(self, name: str, reason: str) -> None:
        if self.degradations.get(name) != reason:
            self.say(f"degraded ({name}): {reason}")
        self.degradations[name] = reason

    def clear(self, name: str) -> None:
        if self.degradations.pop(name, None) is not None:
            self.say(f"recovered ({name})")

    def tell(self, name: str, reason: str) -> None:
        """Degraded for this reason; well where it is empty."""
        if reason:
            self.degrade(name, reason)
        else:
            self.clear(name)

    @property
    def serving(self) -> bool:
        """Whether new requests get more than a miss."""
        return self.stage is Stage.SERVING and not self.stopping_names & self.degradations.keys()

    @property
    def status(self) -> str:
        """`ok`; `degraded` while any component is; `starting` and `draining` before and after serving."""
        if self.stage is not Stage.SERVING:
            return str(self.stage.value)
        return DEGRADED if self.degradations else HEALTHY
