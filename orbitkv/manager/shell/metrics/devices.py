"""Copies to and from engines, the SSD, and the log."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from orbitkv.events.outcomes import ReadOutcome, SaveDrop, WriteDrop
from orbitkv.manager.kernel.state import State
from orbitkv.manager.ports import Journal, StoreInfo
from orbitkv.manager.shell.admission import Admission
from orbitkv.manager.shell.metrics.families import by_word, counter, gauge, gauges, seconds

_READ_FAILURES = [outcome for outcome in ReadOutcome if outcome is not ReadOutcome.WHOLE]


def transfers(state: State, admission: Admission) -> Iterator[Metric]:
    totals = state.totals
    yield counter("load_bytes", "Bytes that engines copied to their devices.", totals.load_bytes)
    yield seconds("load_seconds", "Time of these copies, per rank and lease.", totals.loads, totals.load_us)
    yield counter("load_failures", "Copies that engines reported as failed.", totals.load_failures)
    yield counter("save_bytes", "Bytes copied out of engines' staging windows.", totals.save_bytes)
    yield seconds("save_seconds", "From commit to copied, per rank and page.", totals.copies, totals.copy_us)
    yield gauge("saves_unsealed_pages", "Pages whose save has begun and not ended.", len(state.saves))
    drops = totals.save_drops | {SaveDrop.DEGRADED: admission.unlogged_save_pages}
    yield by_word("save_drops", "Pages offered and not kept.", SaveDrop, drops)


def ssd(state: State, store: StoreInfo) -> Iterator[Metric]:
    totals = state.totals
    engine = GaugeMetricFamily(
        "orbitkv_ssd_engine_info", "What drives the SSD, and why.", labels=["engine", "direct", "reason"]
    )
    engine.add_metric([store.engine, str(store.direct).lower(), store.reason], 1)
    yield engine
    yield counter("ssd_read_bytes", "Bytes of verified pages read.", totals.read_bytes)
    # Failed transfers have no time of their own: they are in the failures and drops.
    read = totals.reads_ended - sum(totals.read_failures.values())
    yield seconds("ssd_read_seconds", "Time of these reads.", read, totals.read_us)
    yield by_word(
        "ssd_read_failures", "Pages not read, or not as written.", _READ_FAILURES, totals.read_failures
    )
    yield counter("ssd_write_bytes", "Bytes of pages written.", totals.write_bytes)
    failed = totals.write_drops.get(WriteDrop.FAILED, 0)
    written = totals.writes_submitted - len(state.writing) - failed
    yield seconds("ssd_write_seconds", "Time of these writes.", written, totals.write_us)
    yield gauge("ssd_write_queue_pages", "Pages that wait for their write.", len(state.write_queue))
    yield by_word("ssd_write_drops", "Pages sealed and not written.", WriteDrop, totals.write_drops)
    yield gauges(
        "ssd_inflight_bytes",
        "Bytes that the device works on: for demand, and for everything else.",
        "lane",
        {"foreground": state.foreground_bytes_in_flight, "background": state.background_bytes_in_flight},
    )
    yield gauge(
        "ssd_quarantined_slots",
        "Slots not used any more; they count in ssd_bytes.",
        state.slots.quarantined_count(),
    )


def log(state: State, journal: Journal, admission: Admission) -> Iterator[Metric]:
    yield counter("log_records", "Records of this incarnation.", state.seq)
    yield counter("log_bytes", "Bytes of this incarnation's log, before compression.", journal.log_bytes)
    yield gauge("log_lag_bytes", "Log bytes decided on and not yet synced to disk.", journal.lag_bytes)
    yield counter(
        "log_unlogged_queries",
        "Queries answered as misses while the log took nothing; in no other metric.",
        admission.unlogged_queries,
    )
    yield counter("log_unlogged_hints", "Hints dropped meanwhile.", admission.unlogged_hints)
