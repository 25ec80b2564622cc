"""`OrbitKVConnector`: vLLM's hooks, each handed on to the scheduler's or the worker's side.

vLLM makes one object per role, often in processes of their own. This file holds what is vLLM's: which hook
comes when, in which form. It decides nothing. Hooks of newer releases are here as well; an older vLLM does
not call them.
"""

import logging
from collections.abc import Iterable
from typing import Any

from vllm.config import get_layers_from_vllm_config
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.version import __version__ as VLLM_VERSION

from orbitkv.adapters.vllm.assembly import read_plan, scheduler_side, worker_side
from orbitkv.adapters.vllm.counts import Counts
from orbitkv.adapters.vllm.metadata import OrdersMetadata, ReportMetadata
from orbitkv.adapters.vllm.orders import RankReport
from orbitkv.adapters.vllm.scheduler import Roles, SchedulerSide
from orbitkv.adapters.vllm.stats import OrbitKVPromMetrics, OrbitKVStats
from orbitkv.adapters.vllm.worker import WorkerSide

_log = logging.getLogger(__name__)


class _Connector(KVConnectorBase_V1):
    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        _share_log()
        transfer = vllm_config.kv_transfer_config
        self._plan = read_plan(vllm_config, kv_cache_config, VLLM_VERSION)
        self._roles = Roles(restores=transfer.is_kv_consumer, saves=transfer.is_kv_producer)
        self._counts = Counts()
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        self._link: Any = None
        self._failed_blocks: set[int] = set()
        self._report = RankReport()
        if role is KVConnectorRole.SCHEDULER and transfer.kv_load_failure_policy != "recompute":
            _log.warning(
                "OrbitKV: with kv_load_failure_policy=%s a request whose restore fails ends with an error. "
                'Set it to "recompute", so that a failed restore is a miss.',
                transfer.kv_load_failure_policy,
            )

    @property
    def requires_kv_delivery(self) -> bool:
        return False

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()
        if self._link is not None:
            self._link.close()

    # --- scheduler ------------------------------------------------------------------------------------

    def bind_gpu_block_pool(self, block_pool: Any) -> None:
        self._scheduler, self._link = scheduler_side(self._plan, self._roles, block_pool, self._counts)

    def on_new_request(self, request: Any) -> None:
        self._scheduling.queued(request)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        tokens = self._scheduling.matched_tokens(request, num_computed_tokens)
        return tokens, bool(tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self._scheduling.allocated(request, blocks.get_block_ids(), num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return OrdersMetadata(self._scheduling.step(scheduler_output))

    def update_connector_output(self, connector_output: Any) -> None:
        meta = connector_output.kv_connector_worker_meta
        if isinstance(meta, ReportMetadata):
            self._scheduling.reported(meta.report)

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, dict[str, Any] | None]:
        self._scheduling.finished(request)
        return False, None

    def has_pending_push_work(self) -> bool:
        """Keeps the engine stepping until the ranks have said that their saves have ended."""
        return self._scheduler is not None and self._scheduler.saves_under_way

    def reset_cache(self) -> bool:
        self._scheduling.reset()
        return True

    @property
    def _scheduling(self) -> SchedulerSide:
        assert self._scheduler is not None, "vLLM binds its block pool before it schedules"
        return self._scheduler

    # --- worker ---------------------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        backend = _backend_names(self._vllm_config, list(kv_caches))
        if self._worker is not None:
            self._worker.close()  # its tensors are replaced
        self._worker = worker_side(self._plan, self._roles.saves, kv_caches, backend, self._counts)

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        super().bind_connector_metadata(connector_metadata)
        assert isinstance(connector_metadata, OrdersMetadata)
        if self._worker is not None:
            self._worker.begin_step(connector_metadata.orders)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        if self._worker is not None:
            self._worker.start_loads()

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Loads end between steps: there is nothing to wait for."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Whole blocks are saved after the forward pass, all layers at once."""

    def wait_for_save(self) -> None:
        """The copies are started here and not waited for: their blocks are held meanwhile."""
        if self._worker is not None:
            self._worker.start_saves()

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        ended, failed = self._end_step()
        self._failed_blocks.update(*failed.values())
        return None, ended or None

    def _end_step(self) -> tuple[set[str], dict[str, set[int]]]:
        """(requests whose load has ended, of these the failed ones with their blocks)"""
        if self._worker is None:
            return set(), {}
        ended, failed, report = self._worker.end_step()
        self._report.add(report)
        return ended, failed

    def get_block_ids_with_load_errors(self) -> set[int]:
        blocks, self._failed_blocks = self._failed_blocks, set()
        return blocks

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        report, self._report = self._report, RankReport()
        return ReportMetadata(report) if report else None

    # --- statistics -----------------------------------------------------------------------------------

    def get_kv_connector_stats(self) -> OrbitKVStats | None:
        counts = self._counts.take()
        return OrbitKVStats(data=counts) if counts else None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> OrbitKVStats | None:
        return OrbitKVStats(data=dict(data)) if data else OrbitKVStats()

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any
    ) -> OrbitKVPromMetrics:
        return OrbitKVPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)


if hasattr(KVConnectorBase_V1, "get_transfer_results"):
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorTransferResults

    class OrbitKVConnector(_Connector, SupportsHMA):
        """For releases to which a failed load can be told by its request, whatever groups it has."""

        def request_finished_all_groups(
            self, request: Any, block_ids: tuple[list[int], ...]
        ) -> tuple[bool, dict[str, Any] | None]:
            return self.request_finished(request, block_ids)

        def get_transfer_results(self, finished_req_ids: set[str]) -> Any:
            ended, failed = self._end_step()
            if len(self._kv_cache_config.kv_cache_groups) == 1:
                self._failed_blocks.update(*failed.values())  # what is whole before them is kept
                return KVConnectorTransferResults(finished_recving=ended)
            return KVConnectorTransferResults(finished_recving=ended, failed_recving=set(failed))

else:

    class OrbitKVConnector(_Connector):  # type: ignore[no-redef]  # one of the two, by vLLM's release
        """For releases that know failed loads by their blocks only: one KV group, so vLLM makes one."""


def _share_log() -> None:
    """Show OrbitKV's lines where vLLM shows its own, unless somebody has set up another place."""
    ours, theirs = logging.getLogger("orbitkv"), logging.getLogger("vllm")
    if not ours.hasHandlers():
        ours.handlers = list(theirs.handlers)
        ours.setLevel(theirs.level)


def _backend_names(vllm_config: Any, layers: Iterable[str]) -> str:
    """Which attention backends fill these layers' blocks: each has its own order of bytes in them."""
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

    found = get_layers_from_vllm_config(vllm_config, AttentionLayerBase, list(layers))
    return "+".join(sorted({layer.get_attn_backend().get_name() for layer in found.values()})) or "unknown"
