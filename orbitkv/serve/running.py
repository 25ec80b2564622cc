"""The life of the manager's process, from the settings to its exit code.

    opened -> wired -> serving -> asked to stop -> drained -> closed

A fault of the manager's own ends it with EXIT_FAIL_STOP, its log intact: no last record is written, the
next start writes it. What the user can mend is raised to the command line.
"""

import gc
import sys
from contextlib import AsyncExitStack

import trio

from orbitkv.config import Config
from orbitkv.events.commands import CloseIncarnation
from orbitkv.manager.shell.health import Health, Stage
from orbitkv.serve.opening import check_answers_fit, harden, open_all
from orbitkv.serve.saying import complain, greet, is_mistake, tell_fault
from orbitkv.serve.stopping import Stopping
from orbitkv.serve.wiring import open_endpoint, put_together

EXIT_FAIL_STOP = 70
"""EX_SOFTWARE of sysexits.h."""


def serve(config: Config) -> None:
    """Run the manager until SIGTERM or SIGINT. Raises what the user can mend; ends the process otherwise."""
    check_answers_fit(config)
    harden()
    try:
        trio.run(_main, config)
    except Exception as error:
        if is_mistake(error):
            raise
        tell_fault(error)
        sys.exit(EXIT_FAIL_STOP)


async def _main(config: Config) -> None:
    async with trio.open_nursery() as nursery:
        stopping = Stopping()
        await nursery.start(stopping.watch_signals)
        nursery.start_soon(stopping.watch_closing)
        async with AsyncExitStack() as stack:
            try:
                await _live(config, stack, stopping)
            finally:
                stopping.closing.set()
        nursery.cancel_scope.cancel()


async def _live(config: Config, stack: AsyncExitStack, stopping: Stopping) -> None:
    health = Health(complain)
    opened = open_all(config, stack, stopping, health)
    manager, status = put_together(config, opened, health, stack)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.run)
        endpoint = await open_endpoint(config, nursery, manager, status)
        health.stage = Stage.SERVING
        # What is here now stays: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        greet(config, opened.loop.state, opened.io, endpoint)
        await stopping.asked.wait()
        unfinished = await manager.drain(config.shutdown_timeout)
        if unfinished:
            complain(f"stopping before everything has ended: {unfinished}")
        nursery.cancel_scope.cancel()
    opened.loop.process([CloseIncarnation(lost_tail=False)])
