"""A run of the demo from start to end, and out of it at any moment.

SIGINT, SIGTERM and SIGHUP cancel the run; every block on the way out ends what it started: first the
engines, then the manager, each within a bound, then the temporary files.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import trio

from orbitkv.adapters.demo.arm import run_arm
from orbitkv.adapters.demo.comparison import OFF, ON, compare, run_folder
from orbitkv.adapters.demo.interrupts import INTERRUPTS, let_through
from orbitkv.adapters.demo.options import DemoOptions
from orbitkv.adapters.demo.pictures import make_pictures
from orbitkv.adapters.demo.plan import make_plan
from orbitkv.adapters.demo.show import Screen
from orbitkv.adapters.mishaps import run_program


def run(options: DemoOptions) -> int:
    """Returns the exit status: 0 good, 1 not, 128 + n after signal n. Raises AdapterError."""
    return run_program(_until_interrupted, options, Screen(as_json=options.as_json))


async def _until_interrupted(options: DemoOptions, screen: Screen) -> int:
    interrupts: list[int] = []
    good: bool | None = None
    with trio.open_signal_receiver(*INTERRUPTS) as signals:
        let_through()
        async with trio.open_nursery() as nursery:
            running = trio.CancelScope()
            nursery.start_soon(_watch, signals, interrupts, running, screen)
            with running:
                good = await _run(options, screen)
            # The watcher goes last: a second interrupt must not cut the way out short.
            nursery.cancel_scope.cancel()
    if good is None:
        screen.say(f"interrupted; what was logged until then is in {options.out}")
        return 128 + interrupts[0]
    return 0 if good else 1


async def _watch(
    signals: AsyncIterator[int], interrupts: list[int], running: trio.CancelScope, screen: Screen
) -> None:
    async for number in signals:
        interrupts.append(number)
        if len(interrupts) == 1:
            screen.say("ending: engines first, then the manager")
        running.cancel()


async def _run(options: DemoOptions, screen: Screen) -> bool:
    """Whether all was as it should be."""
    plan = make_plan(options)
    screen.plan(plan)
    if options.pairs:
        comparison = await compare(plan, screen)
        screen.comparison(comparison, options.out)
        # Of the last pair; `orbitkv replay report` draws the others.
        await _draw(options, screen, [run_folder(options.out, options.pairs, arm) for arm in (OFF, ON)])
        return comparison.good
    screen.warmup(options.warmup)
    summary = await run_arm(plan, screen)
    screen.summary(summary, options.out)
    await _draw(options, screen, [options.out])
    return summary.good


async def _draw(options: DemoOptions, screen: Screen, runs: Sequence[Path]) -> None:
    """After the result, which must not wait for it."""
    if not options.pictures:
        return
    screen.say("drawing the log in another process (--no-pictures: without)")
    for out in runs:
        screen.pictures(await make_pictures(out))
