"""Metric families, with the prefix. Every known label is there from the first scrape on, with 0: a rate
needs a start.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

US_PER_SECOND = 1_000_000


def gauge(name: str, text: str, value: int) -> Metric:
    return GaugeMetricFamily(f"orbitkv_{name}", text, value=value)


def counter(name: str, text: str, value: float) -> Metric:
    """Exposed as NAME_total."""
    return CounterMetricFamily(f"orbitkv_{name}", text, value=value)


def gauges(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(f"orbitkv_{name}", text, labels=[label])
    for word, value in values.items():
        family.add_metric([word], value)
    return family


def counters(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """Exposed as NAME_total."""
    family = CounterMetricFamily(f"orbitkv_{name}", text, labels=[label])
    for word, value in values.items():
        family.add_metric([word], value)
    return family


def by_word(
    name: str, text: str, words: Iterable[IntEnum], counts: Mapping[Any, int], label: str = "reason"
) -> Metric:
    """A counter for each of `words`; `counts` has those that are not 0, by word or by its number."""
    return counters(name, text, label, {word.name.lower(): counts.get(word, 0) for word in words})


def seconds(name: str, text: str, count: int, sum_us: int) -> Metric:
    """Exposed as NAME_count and NAME_sum."""
    return SummaryMetricFamily(f"orbitkv_{name}", text, count_value=count, sum_value=sum_us / US_PER_SECOND)
