"""Budgets, decisions, and who asks.

Reserved totals are numbers of their own, next to the phases that they are made of.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric

from orbitkv.events.outcomes import Phase, QueryEnd
from orbitkv.manager.kernel.state import State
from orbitkv.manager.kernel.views import unknown_holders
from orbitkv.manager.shell.metrics.families import by_word, counter, counters, gauge, gauges


def budget(state: State) -> Iterator[Metric]:
    config, totals = state.config, state.totals
    yield gauge("query_budget_bytes", "Most that may be reserved at a time.", config.query_budget_bytes)
    yield gauge(
        "query_speculative_budget_bytes",
        "Most of it that hints may reserve.",
        config.query_budget_bytes // config.speculative_divisor,
    )
    yield gauge("query_reserved_bytes", "Bytes that queries and hints hold reserved.", state.reserved_bytes)
    yield gauge(
        "query_speculative_reserved_bytes",
        "The part of it that hints hold, until what they read has landed.",
        sum(instance.warming_bytes for instance in state.instances.values()),
    )
    yield gauges(
        "query_reserved_bytes_by_phase",
        "The reserved bytes by what they are doing. The total is its own metric.",
        "phase",
        {phase.name.lower(): state.reserved_by_phase[phase] for phase in Phase},
    )
    yield counter("query_budget_waits", "Decisions that waited for budget.", totals.budget_waits)
    yield counter("query_budget_bypasses", "Queries larger than their budget.", totals.budget_bypasses)
    yield counter("query_coalesced_reads", "Pages that joined a read of others.", totals.coalesced_reads)


def decisions(state: State) -> Iterator[Metric]:
    totals = state.totals
    yield counters(
        "cache_asked_pages",
        "Pages of answered queries (demand), and of hints that were looked up (warm).",
        "kind",
        {"demand": totals.asked_pages, "warm": totals.probed_pages},
    )
    tiers = CounterMetricFamily(
        "orbitkv_cache_tier_page_requests",
        "The same by where they were found; dram + peer + ssd + miss = asked.",
        labels=["kind", "tier"],
    )
    demand = (totals.dram_pages, 0, totals.ssd_pages, totals.miss_pages)
    warm = (totals.probed_dram_pages, 0, totals.probed_ssd_pages, totals.probed_miss_pages)
    for kind, found in (("demand", demand), ("warm", warm)):
        for tier, count in zip(("dram", "peer", "ssd", "miss"), found, strict=True):
            tiers.add_metric([kind, tier], count)
    yield tiers
    yield by_word("query_ends", "Queries that ended, by how.", QueryEnd, totals.query_ends)


def who_asks(state: State) -> Iterator[Metric]:
    kinds = {"demand": len(state.operations) - len(state.hints), "hint": len(state.hints)}
    yield gauges("operations", "Open operations.", "kind", kinds)
    yield gauge("sessions", "Open connections.", len(state.sessions))
    yield gauge("instances", "Registered engines.", len(state.instances))
    yield gauge(
        "holds_unknown_processes",
        "Processes that left holding pages, and may still run: see `orbitkv admin release-process`.",
        len(unknown_holders(state)),
    )
