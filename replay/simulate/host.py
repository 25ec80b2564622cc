"""What the simulated engines need of the simulation they live in."""

from random import Random
from typing import Protocol

from orbitkv.events.commands import Command
from orbitkv.events.config import KernelConfig
from orbitkv.events.record import Record
from orbitkv.manager.kernel import Answer, Refused, State
from replay.simulate.world import World


class Host(Protocol):
    random: Random
    config: KernelConfig
    world: World
    state: State

    def send(self, command: Command) -> Record | Answer | Refused: ...
