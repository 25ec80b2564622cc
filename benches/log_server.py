"""A manager in a process of its own for the log bench: with its log, or with none.

    python -m benches.log_server ARM SOCKET LOG_DIRECTORY PAGES     ARM: logged, silent or metered

It is the channel bench's manager over the manager's own socket. `logged` is what an operator runs.
`silent` encodes no record, and what it appends goes nowhere. `metered` is `logged` with the CPU time of
its parts taken on the way, for which functions are replaced in this process alone. An order, any line of
standard input, is answered by the figures so far as JSON; it serves until its standard input ends.
"""

import functools
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import msgspec
import trio

from benches.channel_server import begin_log, serve
from orbitkv.events.codec import encode_records
from orbitkv.events.record import Record
from orbitkv.io.clock import SystemClock
from orbitkv.manager.kernel import new_state
from orbitkv.manager.shell import loop as loop_module
from orbitkv.manager.shell.executor import Executor
from orbitkv.manager.shell.loop import Loop
from orbitkv.manager.shell.notices import Notices
from orbitkv.manager.shell.requests import queries

LOOKUPS = ("resolve_keys", "group_layout", "find_operation", "query_view", "pool_offsets")
"""What a query's request reads of the kernel before and after its step."""
METERED_CALLS = 20_000


class Figures(msgspec.Struct):
    """Since the process began, metering taken off."""

    cpu_ns: float
    """Of the whole process."""
    threads_cpu_ns: float
    """Of all threads but the loop's: the journal's, and the one that compresses finished segments."""
    part_cpu_ns: dict[str, float]
    """Of the loop's thread, by part; empty unless it is metered."""
    seq: int


class NoJournal:
    """Swallows. Implements `orbitkv.manager.ports.Journal`."""

    segment_full = False
    lag_bytes = 0
    log_bytes = 0
    trouble = ""
    housekeeping_trouble = ""

    def __init__(self) -> None:
        self.written_seq = 0

    def append(self, first_seq: int, last_seq: int, payload: bytes) -> None:
        self.written_seq = last_seq

    def roll(self, snapshot: bytes, next_seq: int) -> None:
        raise AssertionError("it is never full")

    async def written(self, seq: int) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


def encode_nothing(_: Sequence[Record]) -> bytes:
    return b""


@attrs.define(slots=True)
class Meter:
    """CPU time of the calling thread, by part. Parts must not contain each other.

    Asking for that time costs more than some parts do, so what an empty part costs is taken off again.
    """

    cpu_ns: Counter[str] = attrs.field(factory=Counter)
    calls: Counter[str] = attrs.field(factory=Counter)

    def around(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def metered(*arguments: Any, **named: Any) -> Any:
            begun_ns = time.thread_time_ns()
            try:
                return function(*arguments, **named)
            finally:
                self.cpu_ns[part] += time.thread_time_ns() - begun_ns
                self.calls[part] += 1

        return metered

    def replace(self, part: str, owner: object, name: str) -> None:
        setattr(owner, name, self.around(part, getattr(owner, name)))


@attrs.frozen(slots=True)
class MeterCost:
    """Nanoseconds that metering a call adds: to its part, and to the process."""

    part_ns: float
    process_ns: float

    @classmethod
    def measured(cls) -> "MeterCost":
        meter = Meter()
        empty = meter.around("nothing", lambda: None)
        begun_ns = time.thread_time_ns()
        for _ in range(METERED_CALLS):
            empty()
        process_ns = time.thread_time_ns() - begun_ns
        return cls(meter.cpu_ns["nothing"] / METERED_CALLS, process_ns / METERED_CALLS)


def metered_loop(log: Path, meter: Meter) -> Loop:
    """A loop with its log. Replaces functions of modules and classes, in a process that has no other use."""
    state = new_state()
    journal = begin_log(log, state)
    meter.replace("step", loop_module, "step")
    meter.replace("append", journal, "append")
    meter.replace("effects", Executor, "carry_out")
    meter.replace("notices", Notices, "give")
    for name in LOOKUPS:
        meter.replace("lookups", queries, name)
    return Loop(state, journal, SystemClock(), encode_frame=meter.around("encode", encode_records))


def made_loop(arm: str, log: Path, meter: Meter) -> Loop:
    if arm == "metered":
        return metered_loop(log, meter)
    state = new_state()
    if arm == "silent":
        return Loop(state, NoJournal(), SystemClock(), encode_frame=encode_nothing)
    return Loop(state, begin_log(log, state), SystemClock())


def figures(loop: Loop, meter: Meter, cost: MeterCost) -> Figures:
    cpu_ns, own_cpu_ns = time.process_time_ns(), time.thread_time_ns()
    parts = {part: spent_ns - cost.part_ns * meter.calls[part] for part, spent_ns in meter.cpu_ns.items()}
    return Figures(
        cpu_ns=cpu_ns - cost.process_ns * meter.calls.total(),
        threads_cpu_ns=cpu_ns - own_cpu_ns,
        part_cpu_ns=parts,
        seq=loop.state.seq,
    )


async def answer_orders(loop: Loop, meter: Meter) -> None:
    """Until standard input ends. Orders come one at a time, so none waits in a buffer unseen."""
    cost = MeterCost.measured()
    while True:
        await trio.lowlevel.wait_readable(sys.stdin.fileno())
        if not sys.stdin.buffer.readline():
            return
        sys.stdout.buffer.write(msgspec.json.encode(figures(loop, meter, cost)) + b"\n")
        sys.stdout.buffer.flush()


async def main() -> None:
    arm, path, log, pages = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    meter = Meter()
    loop = made_loop(arm, log, meter)
    await serve("channel", path, loop, pages, functools.partial(answer_orders, loop, meter))


if __name__ == "__main__":
    trio.run(main)
