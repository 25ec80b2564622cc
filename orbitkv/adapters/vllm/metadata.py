"""The orders and reports in vLLM's envelopes, which it pickles between scheduler and ranks."""

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from orbitkv.adapters.vllm.orders import RankReport, StepOrders


@dataclass
class OrdersMetadata(KVConnectorMetadata):
    orders: StepOrders = field(default_factory=StepOrders)


@dataclass
class ReportMetadata(KVConnectorWorkerMetadata):
    report: RankReport

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "ReportMetadata":
        assert isinstance(other, ReportMetadata)
        self.report.add(other.report)
        return self
