"""The embedded engine behind the bench: real processes, copies and reads, computing time by a formula.

It says how long each first token took (modelled) but not whose it was. They are given to requests in the
order of submission, which is right one at a time and right as a distribution otherwise.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import trio

from benches.single_node.plan import Arm, Asked, Places
from benches.single_node.prompts import prompt_blocks
from benches.single_node.serving import Ended, FirstToken, Heard, ServingEngine
from orbitkv.adapters.embedded.compute_model import scale_of
from orbitkv.adapters.embedded.engine import EmbeddedEngine, running_engine
from orbitkv.adapters.embedded.messages import Arrive, EngineConfig, Finished, Progress
from orbitkv.adapters.mishaps import run_program

PAGE_TOKENS: Final = 64
PAGE_BYTES: Final = 512 << 10
KV_BYTES_PER_TOKEN: Final = PAGE_BYTES // PAGE_TOKENS
TURN_S: Final = 0.01
T = TypeVar("T")


def serve_toy(arm: Arm, places: Places, play: Callable[[ServingEngine], T]) -> T:
    return run_program(_serve, arm, places, play)


async def _serve(arm: Arm, places: Places, play: Callable[[ServingEngine], T]) -> T:
    """The engine's children want the main thread, so it is the workload that gets another one."""
    with Path(places.result).with_name("engines.out").open("wb") as output:
        async with running_engine(_config(arm, places), output) as embedded:
            await embedded.ready()
            toy = Toy(arm, embedded)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(toy.listen)
                played = await trio.to_thread.run_sync(play, toy)
                await embedded.drain()
                await toy.finished.wait()
                nursery.cancel_scope.cancel()
            return played


def _config(arm: Arm, places: Places) -> EngineConfig:
    pages = arm.gpu_tokens // PAGE_TOKENS
    return EngineConfig(
        socket_path=places.socket,
        instance="bench",
        ranks=1,
        page_tokens=PAGE_TOKENS,
        slice_bytes=PAGE_BYTES,
        hbm_pages=pages,
        staging_bytes=pages * PAGE_BYTES,
        scale=scale_of(PAGE_TOKENS, PAGE_BYTES),
        saving_pages_max=pages,
        queue_warmup=arm.queue_warmup,
        progress_interval_s=0.0,
    )


class Toy:
    """Called from the workload's thread; listens in trio's."""

    def __init__(self, arm: Arm, engine: EmbeddedEngine) -> None:
        self.finished = trio.Event()
        self._arm = arm
        self._engine = engine
        self._awaiting: deque[tuple[str, int]] = deque()
        self._serving: deque[str] = deque()
        self._ended = 0
        self._mismatches = 0
        self._heard: deque[Progress] = deque()

    # --- in the workload's thread ---------------------------------------------------------------------

    def submit(self, asked: Asked) -> None:
        blocks = prompt_blocks(asked.prompt, asked.length, PAGE_TOKENS)
        self._awaiting.append((asked.name, time.monotonic_ns()))
        self._serving.append(asked.name)
        arrival = Arrive(asked.name, asked.length, self._arm.output_tokens, blocks)
        trio.from_thread.run(self._engine.submit, arrival)

    def turn(self) -> Sequence[Heard]:
        if not self._heard:
            time.sleep(TURN_S)
        heard: list[Heard] = []
        while self._heard:
            progress = self._heard.popleft()
            for modelled_us in progress.first_tokens_us:
                name, submitted_ns = self._awaiting.popleft()
                heard.append(FirstToken(name, submitted_ns + modelled_us * 1000))
            now_ns = time.monotonic_ns()
            over = progress.ended - self._ended
            heard += [Ended(self._serving.popleft(), now_ns, (), -1) for _ in range(over)]
            self._ended = progress.ended
        return heard

    def words(self) -> dict[str, str]:
        return {"engine": "embedded", "computing time": "modelled", "pages": f"{PAGE_TOKENS} tokens"}

    def byte_mismatches(self) -> int:
        return self._mismatches

    # --- in trio's thread -------------------------------------------------------------------------------

    async def listen(self) -> None:
        while not self.finished.is_set():
            match await self._engine.receive():
                case Progress() as progress:
                    self._heard.append(progress)
                case Finished(report=report):
                    self._mismatches = report.byte_mismatches
                    self.finished.set()
