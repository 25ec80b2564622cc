"""The manager's tasks: each awaits one source and hands what it brings to the loop.

    clients, SSD completions, carrier completions, clock      -> loop.process
    superblocks to prepare, changes to the SSD, its flushes   <- executor
    the condition of log, store and processes                 -> health

They run until `run` is cancelled or one of them fails. `drain` is called while they still run.
"""

from collections.abc import Sequence

import attrs
import trio

from orbitkv.events.commands import BeginShutdown, Command, DropDram
from orbitkv.manager.kernel.effects import outstanding
from orbitkv.manager.ports import Carrier, Channel, PageStore
from orbitkv.manager.shell.executor import Executor
from orbitkv.manager.shell.health import Health, Stage
from orbitkv.manager.shell.inbox import run_clients
from orbitkv.manager.shell.loop import Loop
from orbitkv.manager.shell.reports import Reports
from orbitkv.manager.shell.requests.base import Desk
from orbitkv.manager.shell.requests.operator import evicted_pages
from orbitkv.manager.shell.timer import run_timer
from orbitkv.manager.shell.watch import Watch

WATCH_INTERVAL_S = 0.25
DRAIN_LOOK_INTERVAL_S = 0.05


@attrs.define(slots=True)
class Manager:
    loop: Loop
    executor: Executor
    reports: Reports
    desk: Desk
    channel: Channel
    carrier: Carrier
    store: PageStore | None
    health: Health
    watch: Watch
    sweep_interval_s: float

    async def run(self) -> None:
        """Until cancelled. Raises FailStop, in a group with whatever else failed at the same time."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_clients, self.loop, self.channel, self.desk)
            nursery.start_soon(run_timer, self.loop, self.sweep_interval_s)
            nursery.start_soon(self._run_carrier)
            nursery.start_soon(self._run_watch)
            nursery.start_soon(self.executor.run_preparing)
            if self.store is not None:
                nursery.start_soon(self._run_store, self.store)
                nursery.start_soon(self.executor.ssd.run, self.report)
                nursery.start_soon(self.executor.ssd.run_syncing)
                nursery.start_soon(self.executor.ssd.run_retrying, self.report)

    async def drop_dram(self) -> dict[str, object]:
        """Evict every page that nobody holds, for an operator."""
        return {"evicted_pages": evicted_pages(self.loop.ask(DropDram()))}

    def report(self, commands: Sequence[Command]) -> None:
        self.loop.process(commands)

    async def drain(self, timeout_s: float) -> str:
        """Admit nothing more and wait for the devices. What was still running after the time, in words."""
        self.health.stage = Stage.DRAINING
        self.loop.process([BeginShutdown()])
        with trio.move_on_after(timeout_s):
            while not self._drained():
                # The SSD lane can become idle without a record, so the wait has an end of its own.
                with trio.move_on_after(DRAIN_LOOK_INTERVAL_S):
                    await self.loop.progress()
        return "" if self._drained() else f"{outstanding(self.loop.state)} after {timeout_s} s"

    def _drained(self) -> bool:
        return self.executor.idle and not outstanding(self.loop.state).device_work

    async def _run_store(self, store: PageStore) -> None:
        while True:
            self.loop.process(self.reports.of_store(await store.completions()))

    async def _run_carrier(self) -> None:
        while True:
            self.loop.process(self.reports.of_carrier(await self.carrier.completions()))

    async def _run_watch(self) -> None:
        while True:
            self.watch.look()
            await trio.sleep(WATCH_INTERVAL_S)
