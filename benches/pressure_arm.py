"""One arm of the pressure bench: fresh manager and engine, prefixes seeded, one window, what came of it."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import attrs
import trio

from benches.pressure_shape import CONCURRENCY, PROMPT_PAGES, Case, Draw, Shape, drawn, seeding
from benches.pressure_window import WrongWindow, figures_of, watch
from orbitkv.adapters.demo.manager import expect_no_end, running_manager
from orbitkv.adapters.demo.places import Places, make_places
from orbitkv.adapters.embedded.engine import EmbeddedEngine, running_engine
from orbitkv.adapters.embedded.messages import EngineReport, Finished, Progress
from orbitkv.adapters.mishaps import run_program
from orbitkv.adapters.operator import OperatorClient
from orbitkv.adapters.trace_statistics import quantiles

LONGEST_S = 180.0
"""A window that has not drained so long after its admission is given up."""
LOOK_S = 0.02


@attrs.define
class Feed:
    """What the engine has said, and waiting for it to say more."""

    engine: EmbeddedEngine
    ended: int = 0
    first_tokens_us: list[int] = attrs.Factory(list)
    exposed_waits_us: list[int] = attrs.Factory(list)
    report: EngineReport | None = None
    _said: trio.Event = attrs.Factory(trio.Event)

    async def listen(self) -> None:
        while self.report is None:
            match await self.engine.receive():
                case Progress() as progress:
                    self.ended = progress.ended
                    self.first_tokens_us += progress.first_tokens_us
                    self.exposed_waits_us += progress.exposed_waits_us
                case Finished(report=report):
                    self.report = report
            self._said.set()
            self._said = trio.Event()

    async def until_ended(self, count: int) -> None:
        await self.until(lambda: self.ended >= count)

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._said.wait()


@attrs.define
class Window:
    start_ns: int = 0
    end_ns: int = 0
    """After the drain."""
    admitted: int = 0
    hints_before: int = 0
    """Sent while seeding; the engine's report has them too."""


@attrs.frozen
class ArmResult:
    figures: dict[str, float]
    io_engine: str
    """As the manager's log names it."""


def run_arm(
    shape: Shape, case: Case, *, warmup: bool, seed: int, admission_s: float, folder: Path
) -> ArmResult:
    """Raises WrongWindow, AdapterError."""
    with make_places(folder) as places:
        try:
            feed, window = run_program(_serve, shape, case, warmup, seed, admission_s, places)
        except trio.TooSlowError:
            raise WrongWindow(f"it had not ended {LONGEST_S:.0f} s after its admission") from None
        except BaseExceptionGroup as group:
            if group.subgroup(KeyboardInterrupt) is None:
                raise
            raise KeyboardInterrupt from None
        assert feed.report is not None
        report = feed.report
        if report.byte_mismatches:
            raise WrongWindow(f"{report.byte_mismatches} restored bytes were wrong")
        served = window.admitted - report.aborted
        seen = watch(places.log_path, window.start_ns, window.end_ns)
        figures = figures_of(seen, served) | _engine_figures(feed, window, served)
    assert seen.store is not None
    direct = "O_DIRECT" if seen.store.io_direct else "buffered"
    return ArmResult(figures, f"{seen.store.io_engine}, {direct}")


def _engine_figures(feed: Feed, window: Window, served: int) -> dict[str, float]:
    assert feed.report is not None
    report = feed.report
    ttft_p50, ttft_p95 = quantiles(feed.first_tokens_us, (0.50, 0.95))
    exposed_p50, exposed_p95 = quantiles(feed.exposed_waits_us, (0.50, 0.95))
    return {
        "requests": served,
        "aborted": report.aborted,
        "requests_per_s": served / ((window.end_ns - window.start_ns) / 1e9),
        "ttft_p50_ms": ttft_p50 / 1000,
        "ttft_p95_ms": ttft_p95 / 1000,
        "exposed_p50_ms": exposed_p50 / 1000,
        "exposed_p95_ms": exposed_p95 / 1000,
        "restores": len(feed.exposed_waits_us),
        "hints_sent": report.hints_sent - window.hints_before,
        "hints_unsent": report.hints_unsent,
        "hints_spared": report.hints_spared,
        "hints_withdrawn": report.hints_withdrawn,
    }


async def _serve(
    shape: Shape, case: Case, warmup: bool, seed: int, admission_s: float, places: Places
) -> tuple[Feed, Window]:
    async with AsyncExitStack() as stack:
        manager = await stack.enter_async_context(running_manager(shape.manager_settings, places))
        output = stack.enter_context(places.engines_output.open("wb"))
        config = shape.engine_config(str(places.socket_path), warmup=warmup)
        engine = await stack.enter_async_context(running_engine(config, output))
        feed = Feed(engine)
        operator = stack.enter_context(closing(OperatorClient(places.socket_path)))
        with trio.fail_after(admission_s + LONGEST_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(expect_no_end, manager, places)
                await engine.ready()
                nursery.start_soon(feed.listen)
                await _seed(shape, feed, operator)
                if case.empty_dram:
                    operator.drop_dram()
                window = await _play(shape, case, drawn(shape, case, seed), admission_s, feed)
                window.hints_before = shape.prefixes if warmup else 0
                await engine.drain()
                await feed.until(lambda: feed.report is not None)
                nursery.cancel_scope.cancel()
        return feed, window


async def _seed(shape: Shape, feed: Feed, operator: OperatorClient) -> None:
    """Every prefix is served once, and on the SSD before the next: the write queue is bounded and drops."""
    for number, request in enumerate(seeding(shape), start=1):
        await feed.engine.submit(request)
        await feed.until_ended(number)
        while _pages_on_ssd(operator) < number * PROMPT_PAGES:  # noqa: ASYNC110 - it announces nothing
            await trio.sleep(LOOK_S)
    feed.first_tokens_us.clear()
    feed.exposed_waits_us.clear()


def _pages_on_ssd(operator: OperatorClient) -> int:
    pages: int = json.loads(operator.status())["ssd"]["pages"]
    return pages


async def _play(shape: Shape, case: Case, draws: Iterator[Draw], admission_s: float, feed: Feed) -> Window:
    """Admit for so long, then drain: both count."""
    window = Window(start_ns=time.monotonic_ns())
    seeded = feed.ended
    closes_at = next_at = trio.current_time()
    closes_at += admission_s
    async with trio.open_nursery() as aborts:
        while True:
            with trio.move_on_at(closes_at):
                await feed.until(lambda: window.admitted - (feed.ended - seeded) < CONCURRENCY)
                await trio.sleep_until(next_at)
            if trio.current_time() >= closes_at:
                break
            draw = next(draws)
            await feed.engine.submit(draw.request)
            window.admitted += 1
            next_at = trio.current_time() + case.gap * shape.prefill_s
            if draw.abort_after_s is not None:
                aborts.start_soon(_abort, feed.engine, draw)
        await feed.until_ended(seeded + window.admitted)
        aborts.cancel_scope.cancel()
    window.end_ns = time.monotonic_ns()
    return window


async def _abort(engine: EmbeddedEngine, draw: Draw) -> None:
    assert draw.abort_after_s is not None
    await trio.sleep(draw.abort_after_s)
    await engine.abort(draw.request.name)
