"""Tells the kernel that time has passed, often enough for its deadlines and for the sweep.

A Tick that changes nothing is no record, so an idle manager's log does not grow.
"""

import trio

from orbitkv.events.commands import Tick
from orbitkv.manager.kernel.maintenance import next_deadline
from orbitkv.manager.shell.loop import Loop

SHORTEST_SLEEP_S = 0.001
"""A deadline that a Tick does not resolve must not turn the timer into a busy loop."""


async def run_timer(loop: Loop, sweep_interval_s: float) -> None:
    while True:
        await trio.sleep(_pause_s(loop, sweep_interval_s))
        loop.process([Tick()])


def _pause_s(loop: Loop, sweep_interval_s: float) -> float:
    deadline_ns = next_deadline(loop.state)
    if deadline_ns is None:
        return sweep_interval_s
    until_s = (deadline_ns - loop.clock.monotonic_ns()) / 1e9
    return min(sweep_interval_s, max(until_s, SHORTEST_SLEEP_S))
