"""Playing a trace: each request enters an engine's queue when its time has come."""

from collections.abc import Callable, Sequence

import attrs
import trio

from orbitkv.adapters.embedded.engine import EmbeddedEngine
from orbitkv.adapters.embedded.messages import Arrive, EngineReport, Finished, Progress
from orbitkv.adapters.trace import TraceRequest


@attrs.define
class Played:
    """What came of it."""

    reports: list[EngineReport] = attrs.Factory(list)
    first_tokens_us: list[int] = attrs.Factory(list)
    exposed_waits_us: list[int] = attrs.Factory(list)
    ended: dict[str, int] = attrs.Factory(dict)
    """Requests ended so far, by engine."""
    wall_s: float = 0.0
    """From the first request's time to the last engine's report."""


async def play(
    requests: Sequence[TraceRequest],
    speed: float,
    engines: Sequence[EmbeddedEngine],
    on_progress: Callable[[int], None],
) -> Played:
    """Feed `requests` to the engines in turn, `speed` times as fast as the trace; wait until all have ended.

    `on_progress` is given the number of requests that have ended. Raises EngineFailed.
    """
    played = Played()
    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        for engine in engines:
            nursery.start_soon(_listen, engine, played, on_progress)
        await _feed(requests, speed, engines, started)
        for engine in engines:
            await engine.drain()
    played.wall_s = trio.current_time() - started
    return played


async def _feed(
    requests: Sequence[TraceRequest], speed: float, engines: Sequence[EmbeddedEngine], started: float
) -> None:
    first_ms = requests[0].timestamp
    for number, request in enumerate(requests):
        await trio.sleep_until(started + (request.timestamp - first_ms) / 1000 / speed)
        engine = engines[number % len(engines)]
        arrival = Arrive(
            f"request-{number}", request.input_length, request.output_length, tuple(request.hash_ids)
        )
        await engine.submit(arrival)


async def _listen(engine: EmbeddedEngine, played: Played, on_progress: Callable[[int], None]) -> None:
    while True:
        match await engine.receive():
            case Progress() as progress:
                played.first_tokens_us.extend(progress.first_tokens_us)
                played.exposed_waits_us.extend(progress.exposed_waits_us)
                played.ended[engine.name] = progress.ended
                on_progress(sum(played.ended.values()))
            case Finished(report=report):
                played.reports.append(report)
                return
