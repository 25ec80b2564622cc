"""What a workload needs of an engine. Each kind has one module: `toy_engine`, `vllm_engine`.

Another engine is added by one more module with this face, and two lines in `serve`.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import attrs

from benches.single_node.plan import Arm, Asked, Places

T = TypeVar("T")


@attrs.frozen
class FirstToken:
    request: str
    at_ns: int


@attrs.frozen
class Ended:
    request: str
    at_ns: int
    output: tuple[int, ...]
    cached_tokens: int


Heard = FirstToken | Ended


class ServingEngine(Protocol):
    def submit(self, asked: Asked) -> None:
        """Put it into the engine's queue."""

    def turn(self) -> Sequence[Heard]:
        """Let the engine go on, and say what came of it; waits a moment where nothing does."""

    def words(self) -> dict[str, str]:
        """Version and settings that decide its figures."""

    def byte_mismatches(self) -> int:
        """Of restored pages, where the engine compares them; known after the last request."""


def serve(arm: Arm, places: Places, play: Callable[[ServingEngine], T]) -> T:
    """Start the arm's engine, let `play` use it, and end it however that ends."""
    if arm.engine == "toy":
        from benches.single_node.toy_engine import serve_toy

        return serve_toy(arm, places, play)
    from benches.single_node.vllm_engine import serve_vllm

    return serve_vllm(arm, places, play)
