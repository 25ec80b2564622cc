"""A run of the demo from start to end, and out of it at any moment.

SIGINT, SIGTERM and SIGHUP cancel the run; every block on the way out ends what it started: first the
engines, then the manager, each within a bound, then the temporary files.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import msgspec
import trio

from orbitkv.adapters.demo.feed import Played, play
from orbitkv.adapters.demo.interrupts import INTERRUPTS, let_through
from orbitkv.adapters.demo.manager import expect_no_end, fold_log, running_manager, verify_log
from orbitkv.adapters.demo.options import DemoOptions
from orbitkv.adapters.demo.places import Places, make_places
from orbitkv.adapters.demo.plan import DemoPlan, make_plan
from orbitkv.adapters.demo.show import Screen
from orbitkv.adapters.demo.summary import Summary, summarise
from orbitkv.adapters.embedded.engine import running_engine
from orbitkv.adapters.errors import AdapterError


def run(options: DemoOptions) -> int:
    """Returns the exit status: 0 good, 1 not, 128 + n after signal n. Raises AdapterError."""
    try:
        return trio.run(_until_interrupted, options, Screen(as_json=options.as_json))
    except BaseExceptionGroup as group:
        mistakes, others = group.split(AdapterError)
        if mistakes is None or others is not None:
            raise
        raise _first(mistakes) from group


def _first(group: BaseExceptionGroup[AdapterError]) -> AdapterError:
    """Several parts of a run may tell of one mishap; the first to tell is nearest to it."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


async def _until_interrupted(options: DemoOptions, screen: Screen) -> int:
    interrupts: list[int] = []
    summary: Summary | None = None
    with trio.open_signal_receiver(*INTERRUPTS) as signals:
        let_through()
        async with trio.open_nursery() as nursery:
            running = trio.CancelScope()
            nursery.start_soon(_watch, signals, interrupts, running, screen)
            with running:
                summary = await _run(options, screen)
            # The watcher goes last: a second interrupt must not cut the way out short.
            nursery.cancel_scope.cancel()
    if summary is None:
        screen.say(f"interrupted; what was logged until then is in {options.out}")
        return 128 + interrupts[0]
    return 0 if summary.good else 1


async def _watch(
    signals: AsyncIterator[int], interrupts: list[int], running: trio.CancelScope, screen: Screen
) -> None:
    async for number in signals:
        interrupts.append(number)
        if len(interrupts) == 1:
            screen.say("ending: engines first, then the manager")
        running.cancel()


async def _run(options: DemoOptions, screen: Screen) -> Summary:
    plan = make_plan(options)
    with make_places(options.out) as places:
        screen.plan(plan)
        played = await _serve(plan, places, screen)
        screen.say("verifying the log in another process")
        verdict = await verify_log(places.log_path)
        folded = await fold_log(places.log_path)
        summary = summarise(plan, played, folded, _log_bytes(places), verdict)
        places.summary_path.write_bytes(msgspec.json.format(msgspec.json.encode(summary)) + b"\n")
    screen.summary(summary, options.out)
    return summary


def _log_bytes(places: Places) -> int:
    return sum(file.stat().st_size for file in places.log_path.iterdir())


async def _serve(plan: DemoPlan, places: Places, screen: Screen) -> Played:
    """Manager and engines up, trace played, all of them ended again."""
    async with AsyncExitStack() as stack:
        manager = await stack.enter_async_context(running_manager(plan, places))
        output = stack.enter_context(places.engines_output.open("wb"))
        engines = []
        for number in range(plan.options.engines):
            config = plan.engine_config(number, places.socket_path)
            engines.append(await stack.enter_async_context(running_engine(config, output)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_no_end, manager, places)
            for engine in engines:
                await engine.ready()
            with screen.progress(len(plan.requests)) as advance:
                played = await play(plan.requests, plan.options.speed, engines, advance)
            nursery.cancel_scope.cancel()
        return played
