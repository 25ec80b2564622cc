"""One run: manager and engines up, the trace played, all of them ended, and what their log says."""

from contextlib import AsyncExitStack

import msgspec
import trio

from orbitkv.adapters.demo.feed import Played, play
from orbitkv.adapters.demo.manager import expect_no_end, fold_log, running_manager, verify_log
from orbitkv.adapters.demo.places import Places, make_places
from orbitkv.adapters.demo.plan import DemoPlan
from orbitkv.adapters.demo.show import Screen
from orbitkv.adapters.demo.summary import Summary, summarise
from orbitkv.adapters.embedded.engine import running_engine


async def run_arm(plan: DemoPlan, screen: Screen, name: str = "serving") -> Summary:
    """Leaves log and summary in the plan's folder. Raises AdapterError."""
    with make_places(plan.options.out) as places:
        played = await _serve(plan, places, screen, name)
        screen.say("verifying the log in another process")
        verdict = await verify_log(places.log_path)
        folded = await fold_log(places.log_path)
        summary = summarise(plan, played, folded, _log_bytes(places), verdict)
        places.summary_path.write_bytes(msgspec.json.format(msgspec.json.encode(summary)) + b"\n")
    return summary


def _log_bytes(places: Places) -> int:
    return sum(file.stat().st_size for file in places.log_path.iterdir())


async def _serve(plan: DemoPlan, places: Places, screen: Screen, name: str) -> Played:
    async with AsyncExitStack() as stack:
        manager = await stack.enter_async_context(running_manager(plan.manager_settings, places))
        output = stack.enter_context(places.engines_output.open("wb"))
        engines = []
        for number in range(plan.options.engines):
            config = plan.engine_config(number, places.socket_path)
            engines.append(await stack.enter_async_context(running_engine(config, output)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_no_end, manager, places)
            for engine in engines:
                await engine.ready()
            with screen.progress(len(plan.requests), name) as advance:
                played = await play(plan.requests, plan.options.speed, engines, advance)
            nursery.cancel_scope.cancel()
        return played
