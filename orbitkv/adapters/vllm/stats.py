"""The connector's counts in vLLM's forms: its log line, and Prometheus metrics on its own /metrics."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

from orbitkv.adapters.vllm.counts import NAMES

PREFIX = "vllm:orbitkv_"
_MICROSECONDS = "_us"


class OrbitKVStats(KVConnectorStats):
    """`data`: count by name, see `counts.NAMES`."""

    data: dict[str, int]

    def reset(self) -> None:
        self.data.clear()

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name, value in other.data.items():
            self.data[name] = self.data.get(name, 0) + value
        return self

    def reduce(self) -> dict[str, int | float]:
        """Of one interval, for vLLM's log line."""
        return {f"OrbitKV {name}": value for name, value in sorted(self.data.items())}

    def is_empty(self) -> bool:
        return not self.data


class OrbitKVPromMetrics(KVConnectorPromMetrics):
    def __init__(
        self, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine: dict[int, list[object]]
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine)
        self._labels = per_engine
        self._counters = {
            name: self._counter_cls(name=_metric(name), documentation=meaning, labelnames=labelnames)
            for name, meaning in NAMES.items()
        }
        for counter in self._counters.values():
            for values in per_engine.values():
                counter.labels(*values)  # shown as 0 from the start

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, value in transfer_stats_data.items():
            counter = self._counters.get(name)
            if counter is not None:
                amount = value / 1_000_000 if name.endswith(_MICROSECONDS) else value
                counter.labels(*self._labels[engine_idx]).inc(amount)


def _metric(name: str) -> str:
    """Prometheus counts seconds."""
    return PREFIX + name.replace(_MICROSECONDS, "_seconds")
