"""What is in DRAM, and what left it."""

from collections.abc import Iterator

import numpy as np
from prometheus_client.core import CounterMetricFamily, Metric, SummaryMetricFamily

from orbitkv.events.ids import TRAILER_BYTES
from orbitkv.events.outcomes import EvictionReason, PageClass
from orbitkv.manager.kernel.state import State, Totals
from orbitkv.manager.shell.metrics.families import US_PER_SECOND, counter, gauge, gauges


def pool(state: State) -> Iterator[Metric]:
    blocks = state.superblocks
    yield gauge("pool_capacity_bytes", "Bytes of the DRAM pool.", blocks.pool_bytes)
    yield gauge("pool_used_bytes", "Bytes of allocated slots, padding included.", blocks.used_bytes)
    yield gauge("pool_largest_free_bytes", "Longest contiguous free region.", blocks.largest_free_bytes())
    yield counter(
        "pool_alloc_failures", "Requests for which reclaim made no room.", state.totals.alloc_failures
    )


def cache(state: State) -> Iterator[Metric]:
    table = state.buffers
    # One pass over the column, however many pages there are: the loop waits for a scrape.
    counts = np.bincount(table.queue[: table.rows] + np.int16(1), minlength=len(table.queues) + 1).tolist()
    resident, resident_bytes = dict.fromkeys(PageClass, 0), 0
    for (page_class, slot_bytes), number in table.queue_numbers.items():
        resident[PageClass(page_class)] += counts[number + 1]
        resident_bytes += counts[number + 1] * (slot_bytes - TRAILER_BYTES)
    yield gauge("cache_resident_bytes", "Footprints of the pages in DRAM.", resident_bytes)
    yield gauges(
        "cache_resident_pages",
        "Pages in DRAM by class.",
        "class",
        {page_class.name.lower(): count for page_class, count in resident.items()},
    )
    yield counter("cache_page_insertions", "Pages that became findable in DRAM.", state.totals.insertions)
    yield _evictions(state.totals)
    yield _residence(state.totals)


def _evictions(totals: Totals) -> Metric:
    family = CounterMetricFamily(
        "orbitkv_cache_page_evictions", "Pages that left DRAM.", labels=["class", "reason"]
    )
    for page_class in PageClass:
        for reason in EvictionReason:
            count = totals.evictions.get((page_class, reason), 0)
            family.add_metric([page_class.name.lower(), reason.name.lower()], count)
    return family


def _residence(totals: Totals) -> Metric:
    family = SummaryMetricFamily(
        "orbitkv_cache_residence_seconds",
        "How long evicted pages had been in DRAM. Pages that are still there are not in it.",
        labels=["reason"],
    )
    for reason in EvictionReason:
        pages = sum(totals.evictions.get((page_class, reason), 0) for page_class in PageClass)
        stayed_s = totals.residence_us.get(reason, 0) / US_PER_SECOND
        family.add_metric([reason.name.lower()], count_value=pages, sum_value=stayed_s)
    return family
