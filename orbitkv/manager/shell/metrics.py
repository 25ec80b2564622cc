"""The metrics of the contract, read from the state when somebody scrapes; nothing is counted on the side.

Runs in the loop's thread between two batches, so one scrape sees one state. Every known label is there
from the first scrape on, with 0, so that rates have a start. Must not change the state.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum

import attrs
import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from orbitkv.events.outcomes import EvictionReason, PageClass, Phase, ReadOutcome, SaveDrop, WriteDrop
from orbitkv.manager.kernel.state import State
from orbitkv.manager.ports import Journal, StoreInfo

US_PER_SECOND = 1_000_000


@attrs.frozen(eq=False)
class ManagerMetrics(Collector):
    """Register with a `prometheus_client.CollectorRegistry`."""

    state: State
    journal: Journal
    store: StoreInfo
    """What drives the SSD, with engine `none` where there is none."""

    def collect(self) -> Iterator[Metric]:
        yield from _pool(self.state)
        yield from _queries(self.state)
        yield from _peers(self.state)
        yield from _cache(self.state)
        yield from _transfers(self.state)
        yield from _ssd(self.state, self.store)
        yield from _log(self.state, self.journal)

    def describe(self) -> list[Metric]:
        """Nothing, so that registering does not read a state that is not there yet."""
        return []


def _pool(state: State) -> Iterator[Metric]:
    blocks = state.superblocks
    yield _gauge("pool_capacity_bytes", "Bytes of the DRAM pool.", blocks.pool_bytes)
    yield _gauge("pool_used_bytes", "Bytes of allocated slots, padding included.", blocks.used_bytes)
    yield _gauge("pool_largest_free_bytes", "Longest contiguous free region.", blocks.largest_free_bytes())
    yield _counter(
        "pool_alloc_failures", "Requests for which reclaim made no room.", state.totals.alloc_failures
    )


def _queries(state: State) -> Iterator[Metric]:
    totals = state.totals
    yield _gauge("query_reserved_bytes", "Bytes that queries hold reserved.", state.reserved_bytes)
    phases = GaugeMetricFamily(
        "orbitkv_query_reserved_bytes_by_phase",
        "The same by phase. Samples may overlap: the total is its own metric.",
        labels=["phase"],
    )
    for phase in Phase:
        phases.add_metric([phase.name.lower()], state.reserved_by_phase[phase])
    yield phases
    yield _counter("query_budget_waits", "Decisions that waited for budget.", totals.budget_waits)
    yield _counter("query_budget_bypasses", "Queries larger than their budget.", totals.budget_bypasses)
    yield _counter("query_coalesced_reads", "Pages that joined a read of others.", totals.coalesced_reads)
    operations = GaugeMetricFamily("orbitkv_operations", "Open operations.", labels=["kind"])
    operations.add_metric(["demand"], len(state.operations))
    yield operations


def _peers(state: State) -> Iterator[Metric]:
    yield _gauge("sessions", "Open connections.", len(state.sessions))
    yield _gauge("instances", "Registered engines.", len(state.instances))
    unknown = [
        process for process in state.processes.values() if process.copies and not process.end_observable
    ]
    yield _gauge(
        "holds_unknown_processes",
        "Processes that hold pages and whose end the host cannot tell: `orbitkv admin release-process`.",
        len(unknown),
    )


def _cache(state: State) -> Iterator[Metric]:
    totals, table = state.totals, state.buffers
    queues = table.queue[: table.rows]
    indexed = queues >= 0
    yield _gauge(
        "cache_resident_bytes",
        "Footprints of the pages in DRAM.",
        int(table.footprint[: table.rows][indexed].sum()),
    )
    by_queue = np.bincount(queues[indexed], minlength=len(table.queues))
    resident = dict.fromkeys(PageClass, 0)
    for number, page_class in enumerate(table.class_numbers()):
        resident[PageClass(page_class)] += int(by_queue[number])
    pages = GaugeMetricFamily("orbitkv_cache_resident_pages", "Pages in DRAM by class.", labels=["class"])
    for page_class, count in resident.items():
        pages.add_metric([page_class.name.lower()], count)
    yield pages
    tiers = CounterMetricFamily(
        "orbitkv_cache_tier_page_requests",
        "Pages of answered queries by where they came from; dram + peer + ssd + miss = asked.",
        labels=["kind", "tier"],
    )
    found = {"dram": totals.dram_pages, "peer": 0, "ssd": totals.ssd_pages, "miss": totals.miss_pages}
    for tier, count in found.items():
        tiers.add_metric(["demand", tier], count)
    yield tiers
    yield _counter("cache_page_insertions", "Pages that became findable in DRAM.", totals.insertions)
    evictions = CounterMetricFamily(
        "orbitkv_cache_page_evictions", "Pages that left DRAM.", labels=["class", "reason"]
    )
    for evicted in PageClass:
        for reason in EvictionReason:
            count = totals.evictions.get((evicted, reason), 0)
            evictions.add_metric([evicted.name.lower(), reason.name.lower()], count)
    yield evictions


def _transfers(state: State) -> Iterator[Metric]:
    totals = state.totals
    yield _counter("load_bytes", "Bytes that engines copied to their devices.", totals.load_bytes)
    yield _seconds("load_seconds", "Time of these copies, per rank and lease.", totals.loads, totals.load_us)
    yield _counter("load_failures", "Copies that engines reported as failed.", totals.load_failures)
    yield _counter("save_bytes", "Bytes copied out of engines' staging windows.", totals.save_bytes)
    yield _gauge("saves_unsealed_pages", "Pages whose save has begun and not ended.", len(state.saves))
    yield _by_reason("save_drops", "Pages offered and not kept.", SaveDrop, totals.save_drops)


def _ssd(state: State, store: StoreInfo) -> Iterator[Metric]:
    totals = state.totals
    engine = GaugeMetricFamily(
        "orbitkv_ssd_engine_info", "What drives the SSD, and why.", labels=["engine", "direct", "reason"]
    )
    engine.add_metric([store.engine, str(store.direct).lower(), store.reason], 1)
    yield engine
    yield _counter("ssd_read_bytes", "Bytes of verified pages read.", totals.read_bytes)
    # Failed reads have no time of their own: they are in ssd_read_failures.
    failed = sum(totals.read_failures.values())
    yield _seconds("ssd_read_seconds", "Time of these reads.", totals.reads_ended - failed, totals.read_us)
    failures = [outcome for outcome in ReadOutcome if outcome is not ReadOutcome.WHOLE]
    yield _by_reason(
        "ssd_read_failures", "Pages not read, or not as written.", failures, totals.read_failures
    )
    yield _counter("ssd_write_bytes", "Bytes of pages written.", totals.write_bytes)
    written = totals.writes_submitted - len(state.writing)
    yield _seconds("ssd_write_seconds", "Time of writes that ended.", written, totals.write_us)
    yield _gauge("ssd_write_queue_pages", "Pages that wait for their write.", len(state.write_queue))
    yield _by_reason("ssd_write_drops", "Pages sealed and not written.", WriteDrop, totals.write_drops)
    yield _gauge(
        "ssd_quarantined_slots",
        "Slots not used any more; they count in ssd_bytes.",
        state.slots.quarantined_count(),
    )


def _log(state: State, journal: Journal) -> Iterator[Metric]:
    yield _counter("log_records", "Records of this incarnation.", state.seq)
    yield _counter("log_bytes", "Bytes of this incarnation's log, before compression.", journal.log_bytes)
    yield _gauge("log_lag_bytes", "Log bytes decided on and not yet synced to disk.", journal.lag_bytes)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"orbitkv_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    """Exposed as NAME_total."""
    return CounterMetricFamily(f"orbitkv_{name}", text, value=value)


def _seconds(name: str, text: str, count: int, sum_us: int) -> Metric:
    """Exposed as NAME_count and NAME_sum."""
    return SummaryMetricFamily(f"orbitkv_{name}", text, count_value=count, sum_value=sum_us / US_PER_SECOND)


def _by_reason(name: str, text: str, reasons: Iterable[IntEnum], counts: Mapping[int, int]) -> Metric:
    family = CounterMetricFamily(f"orbitkv_{name}", text, labels=["reason"])
    for reason in reasons:
        family.add_metric([reason.name.lower()], counts.get(reason, 0))
    return family
