"""A scrape shows the state, under the contract's names, without changing it."""

import re

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from orbitkv.events import facts
from orbitkv.events.config import MIB, KernelConfig
from orbitkv.events.outcomes import EvictionReason, Origin, PageClass, ReadOutcome, SaveDrop
from orbitkv.manager.kernel.apply import apply, enter
from orbitkv.manager.kernel.columns import pack, pack_wide
from orbitkv.manager.kernel.state import Operation, Process, Session, State, new_state
from orbitkv.manager.ports import StoreInfo
from orbitkv.manager.shell.metrics import ManagerMetrics
from tests.doubles.journal import MemoryJournal

FOOTPRINT = 256 << 10
SLOT = FOOTPRINT + 4096
STORE = StoreInfo("io_uring", True, 'the host allows "it"', "/ssd", 1 << 30, 256 * MIB)

CONTRACT = """
    pool_capacity_bytes pool_used_bytes pool_largest_free_bytes pool_alloc_failures_total
    query_reserved_bytes query_reserved_bytes_by_phase query_budget_waits_total query_budget_bypasses_total
    query_coalesced_reads_total operations sessions instances cache_resident_bytes cache_resident_pages
    cache_tier_page_requests_total cache_page_insertions_total cache_page_evictions_total load_bytes_total
    load_seconds load_failures_total save_bytes_total saves_unsealed_pages save_drops_total ssd_engine_info
    ssd_read_bytes_total ssd_read_seconds ssd_read_failures_total ssd_write_bytes_total ssd_write_seconds
    ssd_write_queue_pages ssd_write_drops_total ssd_quarantined_slots log_records_total log_bytes_total
    log_lag_bytes holds_unknown_processes
"""


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
    """Four pages came in, one was evicted; sessions, an operation, transfers."""
    state = empty_state()
    state.seq = 6
    enter(state, 7, 1_000)
    keys = tuple(bytes([number]) * 16 for number in range(4))
    four, offsets = pack(range(4)), [number * SLOT for number in range(4)]
    for event in (
        facts.SpaceOpened(0, b"n" * 16, 0),
        facts.PagesBound(0, four, keys),
        facts.SuperblockCarved(0, SLOT),
        facts.BuffersAllocated(four, four, pack_wide(offsets), SLOT, FOOTPRINT, 1),
        facts.PagesInserted(pack([0, 1, 2]), PageClass.RETAINED, Origin.DEMAND),
        facts.PagesInserted(pack([3]), PageClass.RECLAIMABLE, Origin.DEMAND),
        facts.PagesEvicted(pack([1]), PageClass.RETAINED, EvictionReason.CAPACITY),
        facts.BuffersFreed(pack([1])),
        facts.SegmentOpened(0, SLOT),
        facts.SlotsCondemned(0, pack([5, 6])),
    ):
        apply(state, event)
    state.sessions = {1: Session(1), 2: Session(2)}
    state.processes = {
        1: Process(100, True, copies=1),
        2: Process(200, False, copies=1),
        3: Process(300, False),
    }
    state.operations = {1: Operation(0, 1, "r", 0, 0, 0, (), 9, 9 * SLOT, 0, 7)}
    state.reserved_bytes, state.reserved_by_phase = 9 * SLOT, [0, 9 * SLOT, 0, 0]
    totals = state.totals
    totals.asked_pages, totals.dram_pages, totals.ssd_pages, totals.miss_pages = 60, 30, 20, 10
    totals.reads_ended, totals.read_us, totals.read_bytes = 22, 1_500_000, 20 * SLOT
    totals.read_failures = {ReadOutcome.CORRUPT: 2}
    totals.save_drops = {SaveDrop.NO_CREDIT: 4}
    return state


def scrape(state: State) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(ManagerMetrics(state, MemoryJournal(), STORE))
    lines = generate_latest(registry).decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}


def test_every_name_is_the_contracts() -> None:
    names = {re.sub(r"_(count|sum)$", "", sample.partition("{")[0]) for sample in scrape(empty_state())}
    assert names == {f"orbitkv_{name}" for name in re.findall(r"\w+", CONTRACT)}


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
        ("query_reserved_bytes", 9 * SLOT),
        ('query_reserved_bytes_by_phase{phase="preparing"}', 9 * SLOT),
        ('query_reserved_bytes_by_phase{phase="restoring"}', 0),
        ('operations{kind="demand"}', 1),
        ("sessions", 2),
        ("holds_unknown_processes", 1),
        ("ssd_read_seconds_count", 20),
        ("ssd_read_seconds_sum", 1.5),
        ('ssd_read_failures_total{reason="corrupt"}', 2),
        ('ssd_read_failures_total{reason="short"}', 0),
        ("ssd_quarantined_slots", 2),
        ('ssd_engine_info{direct="true",engine="io_uring",reason="the host allows \\"it\\""}', 1),
        ('save_drops_total{reason="no_credit"}', 4),
        ("log_records_total", 7),
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
    CollectorRegistry().register(ManagerMetrics(None, MemoryJournal(), STORE))  # type: ignore[arg-type]  # on purpose
