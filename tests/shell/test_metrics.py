"""A scrape shows the state, under the contract's names, without changing it."""

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

import orbitkv
from orbitkv.events import facts
from orbitkv.events.config import MIB, KernelConfig
from orbitkv.events.outcomes import (
    EvictionReason,
    HintEnd,
    HintSkip,
    Origin,
    PageClass,
    QueryEnd,
    ReadOutcome,
    Refusal,
    SaveDrop,
    Unused,
    WriteDrop,
)
from orbitkv.manager.kernel.apply import apply, enter
from orbitkv.manager.kernel.columns import pack, pack_wide
from orbitkv.manager.kernel.state import Instance, Operation, Process, Session, State, new_state
from orbitkv.manager.ports import StoreInfo
from orbitkv.manager.shell.admission import Admission
from orbitkv.manager.shell.metrics import ManagerMetrics
from tests.doubles.journal import MemoryJournal

FOOTPRINT = 256 << 10
SLOT = FOOTPRINT + 4096
STORE = StoreInfo("io_uring", True, 'the host allows "it"', "/ssd", 1 << 30, 256 * MIB)
JOURNAL = MemoryJournal()
ADMISSION = Admission(JOURNAL, lag_bytes_max=1, unlogged_queries=2, unlogged_save_pages=8)
ADMISSION.unlogged_hints, ADMISSION.refused_hints = 3, {Refusal.STALE: 6}

CONTRACT = """
    pool_capacity_bytes pool_used_bytes pool_largest_free_bytes pool_alloc_failures_total
    query_reserved_bytes query_speculative_reserved_bytes query_reserved_bytes_by_phase
    query_budget_waits_total query_budget_bypasses_total query_coalesced_reads_total
    operations sessions instances
    cache_resident_bytes cache_resident_pages cache_tier_page_requests_total cache_page_insertions_total
    cache_page_evictions_total cache_residence_seconds
    load_bytes_total load_seconds load_failures_total
    save_bytes_total save_seconds saves_unsealed_pages save_drops_total
    ssd_engine_info ssd_read_bytes_total ssd_read_seconds ssd_read_failures_total
    ssd_write_bytes_total ssd_write_seconds ssd_write_queue_pages ssd_write_drops_total ssd_quarantined_slots
    log_records_total log_bytes_total log_lag_bytes holds_unknown_processes
    hint_skips_total warmup_foreground_skips_total warmup_prepared_bytes_total warmup_restored_bytes_total
    warmup_unused_bytes_total warmup_pending_bytes warmup_wait_byte_seconds_total
"""
METRICS_MD = Path(orbitkv.__file__).with_name("METRICS.md")


def empty_state() -> State:
    return new_state(
        KernelConfig(
            pool_bytes=64 * MIB,
            superblock_bytes=16 * MIB,
            query_budget_bytes=48 * MIB,
            instance_query_budget_bytes=48 * MIB,
            ssd_bytes=1 << 30,
        )
    )


def stepped_state() -> State:
    """Four pages came in, one of them prepared; 2.5 s later that was evicted. Sessions, transfers."""
    state = empty_state()
    state.seq = 6
    enter(state, 7, 1_000)
    keys = tuple(bytes([number]) * 16 for number in range(4))
    four, offsets = pack(range(4)), [number * SLOT for number in range(4)]
    came_in: tuple[facts.Event, ...] = (
        facts.SpaceOpened(0, b"n" * 16, 0),
        facts.PagesBound(0, four, keys),
        facts.SuperblockCarved(0, SLOT),
        facts.BuffersAllocated(four, four, pack_wide(offsets), SLOT, FOOTPRINT, 1),
        facts.PagesPrepared(pack([1])),
        facts.PagesInserted(pack([0, 1, 2]), PageClass.RETAINED, Origin.DEMAND),
        facts.PagesInserted(pack([3]), PageClass.RECLAIMABLE, Origin.DEMAND),
    )
    for event in came_in:
        apply(state, event)
    enter(state, 8, 2_500_001_000)
    went: tuple[facts.Event, ...] = (
        facts.PagesEvicted(pack([1]), PageClass.RETAINED, EvictionReason.CAPACITY),
        facts.PagesUnused(pack([1]), Unused.EVICTED),
        facts.BuffersFreed(pack([1])),
        facts.SegmentOpened(0, SLOT),
        facts.SlotsCondemned(0, pack([5, 6])),
    )
    for event in went:
        apply(state, event)
    _fill_tables(state)
    _fill_totals(state)
    return state


def _fill_tables(state: State) -> None:
    state.sessions = {1: Session(1), 2: Session(2)}
    state.processes = {
        1: Process(100, True, copies=1),
        2: Process(200, False, copies=1),
        3: Process(300, False),
    }
    state.instances = {0: Instance("engine", 1, b"", reserved_bytes=11 * SLOT, warming_bytes=2 * SLOT)}
    state.operations = {
        1: Operation(0, 1, "r", 0, 0, 0, (), 9, 9 * SLOT, 0, 7),
        2: Operation(0, 1, "s", 0, 0, 0, (), 2, 2 * SLOT, 0, 7, hint=True),
    }
    state.hints[2] = None
    state.reserved_bytes, state.reserved_by_phase = 11 * SLOT, [2 * SLOT, 9 * SLOT, 0, 0]
    state.writing, state.background_bytes_in_flight = {9: 0}, SLOT


def _fill_totals(state: State) -> None:
    totals = state.totals
    totals.asked_pages, totals.dram_pages, totals.ssd_pages, totals.miss_pages = 60, 30, 20, 10
    totals.probed_pages, totals.probed_dram_pages = 9, 2
    totals.probed_ssd_pages, totals.probed_miss_pages = 4, 3
    totals.query_ends = {QueryEnd.CANCELLED: 3}
    totals.hints_admitted, totals.hints_not_needed = 5, 6
    totals.hint_skips, totals.hint_ends = {HintSkip.FOREGROUND: 7}, {HintEnd.PREPARED: 4}
    totals.reads_ended, totals.read_us, totals.read_bytes = 22, 1_500_000, 20 * SLOT
    totals.read_failures = {ReadOutcome.CORRUPT: 2}
    totals.writes_submitted, totals.write_us = 8, 250_000
    totals.write_drops = {WriteDrop.FAILED: 2}
    totals.copies, totals.copy_us = 3, 3_000
    totals.save_drops = {SaveDrop.NO_CREDIT: 4}


def families(state: State) -> list[Metric]:
    return list(ManagerMetrics(state, JOURNAL, ADMISSION, STORE).collect())


def scrape(state: State) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(ManagerMetrics(state, JOURNAL, ADMISSION, STORE))
    lines = generate_latest(registry).decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}


def shown(family: Metric) -> str:
    """A family's name as the contract and the docs have it."""
    return family.name + ("_total" if family.type == "counter" else "")


def test_every_name_of_the_contract_is_there() -> None:
    names = {shown(family) for family in families(empty_state())}
    assert {f"orbitkv_{name}" for name in re.findall(r"\w+", CONTRACT)} <= names


def test_the_docs_name_exactly_what_a_scrape_shows() -> None:
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\| \S.* \|$", METRICS_MD.read_text(), re.MULTILINE)
    documented = {name: sorted(re.findall(r"\w+", labels)) for name, labels in rows}
    assert len(documented) == len(rows), "each is told once"
    assert documented == {
        shown(family): sorted({label for sample in family.samples for label in sample.labels})
        for family in families(empty_state())
    }


def test_each_family_is_told_what_it_is() -> None:
    for family in families(empty_state()):
        assert family.documentation.endswith((".", "`.")), family.name
        assert family.samples, "a label that has not occurred is there with 0"


@pytest.mark.parametrize(
    ("sample", "value"),
    [
        ("pool_capacity_bytes", 64 * MIB),
        ("pool_used_bytes", 3 * SLOT),
        ("pool_largest_free_bytes", 48 * MIB),
        ("cache_resident_bytes", 3 * FOOTPRINT),
        ('cache_resident_pages{class="retained"}', 2),
        ('cache_resident_pages{class="reclaimable"}', 1),
        ('cache_resident_pages{class="probationary"}', 0),
        ("cache_page_insertions_total", 4),
        ('cache_page_evictions_total{class="retained",reason="capacity"}', 1),
        ('cache_page_evictions_total{class="reclaimable",reason="cleanup"}', 0),
        ('cache_tier_page_requests_total{kind="demand",tier="dram"}', 30),
        ('cache_tier_page_requests_total{kind="demand",tier="peer"}', 0),
        ('cache_tier_page_requests_total{kind="demand",tier="ssd"}', 20),
        ('cache_tier_page_requests_total{kind="demand",tier="miss"}', 10),
        ("query_reserved_bytes", 11 * SLOT),
        ('query_reserved_bytes_by_phase{phase="preparing"}', 9 * SLOT),
        ('query_reserved_bytes_by_phase{phase="restoring"}', 0),
        ("query_budget_bytes", 48 * MIB),
        ("query_speculative_budget_bytes", 12 * MIB),
        ("query_speculative_reserved_bytes", 2 * SLOT),
        ('query_reserved_bytes_by_phase{phase="warming"}', 2 * SLOT),
        ('query_ends_total{reason="cancelled"}', 3),
        ('cache_asked_pages_total{kind="demand"}', 60),
        ('cache_asked_pages_total{kind="warm"}', 9),
        ('cache_tier_page_requests_total{kind="warm",tier="dram"}', 2),
        ('cache_tier_page_requests_total{kind="warm",tier="ssd"}', 4),
        ('cache_tier_page_requests_total{kind="warm",tier="miss"}', 3),
        ('cache_residence_seconds_count{reason="capacity"}', 1),
        ('cache_residence_seconds_sum{reason="capacity"}', 2.5),
        ('cache_residence_seconds_count{reason="cleanup"}', 0),
        ('operations{kind="demand"}', 1),
        ('operations{kind="hint"}', 1),
        ("hints_admitted_total", 5),
        ("hints_not_needed_total", 6),
        ('hint_skips_total{reason="foreground"}', 7),
        ('hint_skips_total{reason="bytes"}', 0),
        ("warmup_foreground_skips_total", 7),
        ('hints_refused_total{reason="stale"}', 6),
        ('hint_ends_total{reason="prepared"}', 4),
        ("warmup_prepared_bytes_total", FOOTPRINT),
        ("warmup_restored_bytes_total", 0),
        ('warmup_unused_bytes_total{cause="evicted"}', FOOTPRINT),
        ('warmup_unused_bytes_total{cause="restart"}', 0),
        ("warmup_pending_bytes", 0),
        ('warmup_wait_byte_seconds_total{outcome="unused"}', 2.5 * FOOTPRINT),
        ('warmup_wait_byte_seconds_total{outcome="restored"}', 0),
        ("sessions", 2),
        ("holds_unknown_processes", 1),
        ("ssd_read_seconds_count", 20),
        ("ssd_read_seconds_sum", 1.5),
        ('ssd_read_failures_total{reason="corrupt"}', 2),
        ('ssd_read_failures_total{reason="short"}', 0),
        ("ssd_write_seconds_count", 5),
        ("ssd_write_seconds_sum", 0.25),
        ('ssd_inflight_bytes{lane="background"}', SLOT),
        ("ssd_quarantined_slots", 2),
        ('ssd_engine_info{direct="true",engine="io_uring",reason="the host allows \\"it\\""}', 1),
        ("save_seconds_count", 3),
        ("save_seconds_sum", 0.003),
        ('save_drops_total{reason="no_credit"}', 4),
        ('save_drops_total{reason="degraded"}', 8),
        ("log_records_total", 8),
        ("log_unlogged_queries_total", 2),
        ("log_unlogged_hints_total", 3),
    ],
)
def test_samples(sample: str, value: float) -> None:
    assert scrape(stepped_state())[f"orbitkv_{sample}"] == value


def test_a_scrape_changes_nothing() -> None:
    state = stepped_state()
    before = repr(state)
    assert scrape(state) == scrape(state)
    assert repr(state) == before


def test_registering_does_not_read_the_state() -> None:
    CollectorRegistry().register(ManagerMetrics(None, JOURNAL, ADMISSION, STORE))  # type: ignore[arg-type]  # on purpose
