"""Budgets, bytes in flight and the pool as counters on a trace: what the kernel's state says after a record.

Only what changed is written. Values come from the state that the facts add up to, so they are right from the
log's first record on, also where a log begins in the middle of an incarnation.
"""

from collections.abc import Iterator

import numpy as np

from orbitkv.events.config import KernelConfig
from orbitkv.events.facts import IncarnationStarted, PagesEvicted, PagesInserted, PagesPromoted
from orbitkv.events.outcomes import PageClass, Phase
from orbitkv.events.record import Record
from orbitkv.manager.kernel import State
from replay.perfetto.trace import TraceWriter


class Counters:
    """Of one incarnation."""

    def __init__(self, writer: TraceWriter, pid: int) -> None:
        self._writer = writer
        self._pid = pid
        self._written: dict[str, int] = {}

    def begin(self, state: State, at_ns: int) -> None:
        """With everything, as it is before the records that follow."""
        self._write(at_ns, _limits(state.config))
        self._write(at_ns, _levels(state))
        self._write(at_ns, _resident(state))

    def take(self, state: State, record: Record, at_ns: int) -> None:
        """`state` is the one after the record."""
        if any(isinstance(event, IncarnationStarted) for event in record.events):
            self.begin(state, at_ns)
            return
        self._write(at_ns, _levels(state))
        if any(isinstance(event, PagesInserted | PagesEvicted | PagesPromoted) for event in record.events):
            self._write(at_ns, _resident(state))

    def finish(self, at_ns: int) -> None:
        """Every line is drawn to the end."""
        for name, value in self._written.items():
            self._writer.counter(self._pid, at_ns, name, value)

    def _write(self, at_ns: int, values: Iterator[tuple[str, int]]) -> None:
        for name, value in values:
            if self._written.get(name) != value:
                self._written[name] = value
                self._writer.counter(self._pid, at_ns, name, value)


def _limits(config: KernelConfig) -> Iterator[tuple[str, int]]:
    yield "budget bytes, all", config.query_budget_bytes
    yield "budget bytes, hints", config.query_budget_bytes // config.speculative_divisor
    yield "SSD bytes in flight, limit", config.ssd_inflight_bytes_max
    yield "pool bytes, capacity", config.pool_bytes


def _levels(state: State) -> Iterator[tuple[str, int]]:
    hints = state.reserved_by_phase[Phase.WARMING]
    yield "reserved bytes, all", state.reserved_bytes
    yield "reserved bytes, hints", hints
    yield "queries waiting for budget", len(state.waiting)
    yield "SSD bytes in flight, foreground", state.foreground_bytes_in_flight
    yield "SSD bytes in flight, background", state.background_bytes_in_flight
    yield "reads queued, foreground", len(state.read_queue)
    yield "reads queued, warm", len(state.warm_queue)
    yield "writes queued", len(state.write_queue)
    yield "pool bytes, used", state.superblocks.used_bytes
    yield "prepared bytes, pending", state.pending_bytes


def _resident(state: State) -> Iterator[tuple[str, int]]:
    table = state.buffers
    counts = np.bincount(table.queue[: table.rows] + np.int16(1), minlength=len(table.queues) + 1).tolist()
    resident = dict.fromkeys(PageClass, 0)
    for (page_class, _), number in table.queue_numbers.items():
        resident[PageClass(page_class)] += counts[number + 1]
    for kind in (PageClass.RECLAIMABLE, PageClass.RETAINED):
        yield f"resident pages, {kind.name.lower()}", resident[kind]
