"""Putting the two sides together from vLLM's configuration. No rule is decided here."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from orbitkv.adapters.client import CacheManagerClient
from orbitkv.adapters.client_errors import ManagerUnavailable, OrbitError
from orbitkv.adapters.errors import AdapterError
from orbitkv.adapters.namespace import Namespace
from orbitkv.adapters.switches import queue_warmup_enabled
from orbitkv.adapters.vllm.counts import Counts
from orbitkv.adapters.vllm.groups import KvGroup, read_groups
from orbitkv.adapters.vllm.hinting import Hinting
from orbitkv.adapters.vllm.layout import Ranks, read_layout
from orbitkv.adapters.vllm.link import ManagerLink
from orbitkv.adapters.vllm.lookups import Lookups
from orbitkv.adapters.vllm.namespace import hash_depends_on_process, namespace_of
from orbitkv.adapters.vllm.options import Options, read_options
from orbitkv.adapters.vllm.saving import Saving
from orbitkv.adapters.vllm.scheduler import Roles, SchedulerSide
from orbitkv.adapters.vllm.versions import check_version
from orbitkv.adapters.vllm.worker import WorkerSide
from orbitkv.events.geometry import GroupGeometry
from orbitkv.events.ids import SCHEDULER_RANK

_log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class Plan:
    """What both sides read from vLLM's configuration, the same way."""

    options: Options
    groups: tuple[KvGroup, ...]
    namespace: Namespace
    instance: str
    ranks: Ranks
    hash_process_dependent: bool
    layout: str
    blocks: int


def read_plan(vllm_config: Any, kv_cache_config: Any, version: str) -> Plan:
    """Raises AdapterError for whatever the connector does not support, by name."""
    transfer, parallel = vllm_config.kv_transfer_config, vllm_config.parallel_config
    options = read_options(transfer.kv_connector_extra_config or {})
    check_version(version, options.allow_untested_version)
    _check_parallel(parallel)
    groups = read_groups(kv_cache_config, options.page_blocks)
    return Plan(
        options=options,
        groups=groups,
        namespace=namespace_of(vllm_config, kv_cache_config, groups, options, version),
        instance=_instance(options, transfer, parallel),
        ranks=Ranks(
            rank=parallel.rank % parallel.world_size,
            world_size=parallel.world_size,
            tensor_parallel=parallel.tensor_parallel_size,
            pipeline_parallel=parallel.pipeline_parallel_size,
        ),
        hash_process_dependent=hash_depends_on_process(vllm_config, os.environ.get("PYTHONHASHSEED")),
        layout=str(getattr(kv_cache_config, "kv_cache_layout", None) or "unnamed"),
        blocks=int(kv_cache_config.num_blocks),
    )


def _check_parallel(parallel: Any) -> None:
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) > 1:
            raise AdapterError(
                f"Context parallelism ({name}={getattr(parallel, name)}) is not supported.",
                "Ranks then hold other tokens of one block each, and the connector's pages are whole blocks.",
                f"set {name} to 1, or run without the connector",
            )


def _instance(options: Options, transfer: Any, parallel: Any) -> str:
    """One per engine: replicas of data parallelism are engines of their own."""
    name = options.instance or f"vllm-{transfer.engine_id}"
    return f"{name}-dp{parallel.data_parallel_index}" if parallel.data_parallel_size > 1 else name


def client_of(plan: Plan, rank: int, groups: Sequence[GroupGeometry], saves: bool) -> CacheManagerClient:
    options = plan.options
    return CacheManagerClient(
        options.socket,
        instance=plan.instance,
        namespace=plan.namespace,
        groups=groups,
        rank=rank,
        world_size=plan.ranks.world_size,
        staging_bytes=options.staging_bytes if saves else 0,
        hash_process_dependent=plan.hash_process_dependent,
        timeout_s=options.request_timeout,
    )


def open_link(plan: Plan, client: CacheManagerClient, name: str) -> ManagerLink:
    """Raises AdapterError when the manager is missing or says no, and that is to be refused."""
    link = ManagerLink(client, name)
    _log.info(
        "OrbitKV: %s registers at %s, and waits up to %g s for a manager there.",
        name,
        plan.options.socket,
        plan.options.request_timeout,
    )
    try:
        link.open(refuse=plan.options.on_missing_manager == "refuse")
    except OrbitError as error:
        raise AdapterError(
            "The engine does not start: the OrbitKV manager does not serve it.",
            str(error),
            _remedy(plan, error),
        ) from error
    return link


def _remedy(plan: Plan, error: OrbitError) -> str:
    otherwise = 'or set "on_missing_manager": "serve" to serve without a cache until that is done'
    if isinstance(error, ManagerUnavailable):
        return f"start a manager with `orbitkv serve --socket-path {plan.options.socket}`, {otherwise}"
    return f"mend that and start the engine again, {otherwise}"


def scheduler_side(plan: Plan, roles: Roles, pool: Any, counts: Counts) -> tuple[SchedulerSide, ManagerLink]:
    """Raises AdapterError."""
    client = client_of(plan, SCHEDULER_RANK, (), saves=False)
    link = open_link(plan, client, f"the scheduler of {plan.instance}")
    hash_tokens = int(pool.hash_block_size)
    held_fraction = plan.options.held_blocks_fraction
    side = SchedulerSide(
        groups=plan.groups,
        hash_tokens=hash_tokens,
        pool=pool,
        roles=roles,
        lookups=Lookups(client, link, counts),
        hinting=Hinting(client, plan.groups, hash_tokens, counts, queue_warmup_enabled()),
        saving=Saving(plan.groups, hash_tokens, plan.ranks.world_size, held_fraction, counts),
        stages=client.report_stage,
        counts=counts,
    )
    return side, link


def worker_side(
    plan: Plan, saves: bool, tensors: Mapping[str, Any], backend: str, counts: Counts
) -> WorkerSide:
    """`backend`: the attention backend's name. Raises AdapterError."""
    layout = read_layout(plan.groups, tensors, plan.blocks, plan.layout, plan.ranks, backend)
    geometry = [planes.geometry() for planes in layout]
    client = client_of(plan, plan.ranks.rank, geometry, saves)
    link = open_link(plan, client, f"rank {plan.ranks.rank} of {plan.instance}")
    side = WorkerSide(client, link, layout, counts)
    _log.info(
        "OrbitKV: rank %d of %d caches pages of %s; %s. Manager: %s",
        plan.ranks.rank,
        plan.ranks.world_size,
        ", ".join(
            f"{planes.group.page_tokens} tokens ({planes.block_bytes * planes.group.page_blocks} bytes)"
            for planes in layout
        ),
        side.how,
        plan.options.socket,
    )
    return side
