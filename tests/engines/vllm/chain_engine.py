"""vLLM's own asynchronous scheduler with the connector's both sides, and a model that is a chain over KV.

The CPU's platform switches asynchronous scheduling off, which GPUs run with: steps are scheduled before the
ones before them have been answered. So the scheduler is driven here without an engine. The KV of a token is
computed from the KV of the token before it, and a sampled token from the last one's: a wrong, missing or
overwritten page anywhere changes every token after it. What is expected needs no KV at all.
"""

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from vllm import SamplingParams
from vllm.config import CacheConfig, DeviceConfig, KVTransferConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.utils.hashing import sha256
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from orbitkv.adapters.vllm.connector import OrbitKVConnector
from tests.engines.waiting import until

BLOCK_TOKENS = 16
VOCABULARY = 499
_PRIME = 9973
"""Below 2**24, so that a float32 holds the chain exactly."""


def link(before: int, token: int) -> int:
    """The KV of a token behind a token whose KV is `before`."""
    return (before * 31 + token * 7 + 1) % _PRIME


def continuation(prompt: Sequence[int], tokens: int) -> list[int]:
    """What the model generates."""
    kv = 0
    for token in prompt:
        kv = link(kv, token)
    generated = []
    for _ in range(tokens):
        generated.append(kv % VOCABULARY)
        kv = link(kv, generated[-1])
    return generated


@attrs.define
class _Row:
    """A request in the worker's batch."""

    tokens: list[int]
    blocks: list[int]


class ChainEngine:
    """`ahead`: steps that are scheduled before the first of them is answered."""

    def __init__(self, model: Path, socket: Path, *, blocks: int, ahead: int, **options: Any) -> None:
        kv_cache_utils.init_none_hash(sha256)
        groups = [KVCacheGroupSpec(["layer"], FullAttentionSpec(
            block_size=BLOCK_TOKENS, num_kv_heads=1, head_size=2, dtype=torch.float32))]  # fmt: skip
        memory = KVCacheConfig(
            num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=groups, kv_cache_layout="LBNHC"
        )
        config = _config(model, {"socket": str(socket), "request_timeout": "1m", **options})
        config.cache_config.num_gpu_blocks = blocks
        self.scheduler = AsyncScheduler(
            vllm_config=config,
            kv_cache_config=memory,
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK_TOKENS,
            hash_block_size=BLOCK_TOKENS,
            log_stats=True,
        )
        self.scheduler.defer_block_free = True  # as wherever steps overlap
        self.kv = torch.zeros((blocks, 1, BLOCK_TOKENS, 4), dtype=torch.float32)
        self.worker: Any = OrbitKVConnector(config, KVConnectorRole.WORKER, memory)
        self.worker.register_kv_caches({"layer": self.kv})
        self._rows: dict[str, _Row] = {}
        self._ahead = ahead
        self._unanswered: deque[tuple[Any, ModelRunnerOutput]] = deque()
        until(lambda: self.scheduler.connector._link.up)

    def add(self, name: str, prompt: list[int], tokens: int) -> Request:
        request = Request(
            request_id=name,
            prompt_token_ids=prompt,
            sampling_params=SamplingParams(max_tokens=tokens, ignore_eos=True),
            pooling_params=None,
            block_hasher=kv_cache_utils.get_request_block_hasher(BLOCK_TOKENS, sha256),
        )
        self.scheduler.add_request(request)
        return request

    def abort(self, name: str) -> None:
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def step(self) -> None:
        """Schedule one step and launch it; answer the oldest if enough are on their way."""
        output = self.scheduler.schedule()
        self._unanswered.append((output, self._execute(output)))
        while len(self._unanswered) >= self._ahead or (self._unanswered and not output.num_scheduled_tokens):
            self.scheduler.update_from_output(*self._unanswered.popleft())

    @property
    def free_blocks(self) -> int:
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    def close(self) -> None:
        self.scheduler.shutdown()
        self.worker.shutdown()

    # --- the worker ---------------------------------------------------------------------------------------

    def _execute(self, output: Any) -> ModelRunnerOutput:
        """vLLM's hooks in the order in which its model runner calls them, and the model between them."""
        worker, metadata = self.worker, output.kv_connector_metadata
        worker.handle_preemptions(metadata)
        worker.bind_connector_metadata(metadata)
        computed = self._follow(output)
        names = list(output.num_scheduled_tokens)
        sampled = [self._compute(name, computed[name], output.num_scheduled_tokens[name]) for name in names]
        worker.start_load_kv(None)
        if names:
            worker.wait_for_save()
        told = KVConnectorOutput()
        told.finished_sending, told.finished_recving = worker.get_finished(output.finished_req_ids)
        told.invalid_block_ids = worker.get_block_ids_with_load_errors()
        told.kv_connector_worker_meta = worker.build_connector_worker_meta()
        worker.clear_connector_metadata()
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=sampled,
            kv_connector_output=None if told.is_empty() else told,
        )

    def _follow(self, output: Any) -> dict[str, int]:
        """Keep the block tables; returns how many tokens of each request were computed before."""
        computed = {}
        for new in output.scheduled_new_reqs:
            self._rows[new.req_id] = _Row(list(new.prompt_token_ids), list(new.block_ids[0]))
            computed[new.req_id] = new.num_computed_tokens
        cached = output.scheduled_cached_reqs
        for name, blocks, before in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            computed[name] = before
            if name in cached.resumed_req_ids:
                self._rows[name].blocks = list(blocks[0])
            elif blocks:
                self._rows[name].blocks += blocks[0]
        return computed

    def _compute(self, name: str, first: int, tokens: int) -> list[int]:
        row, end = self._rows[name], first + tokens
        for position in range(first, end):
            before = self._read(row, position - 1) if position else 0
            block, place = divmod(position, BLOCK_TOKENS)
            self.kv[row.blocks[block], 0, place] = link(before, row.tokens[position])
        if end < len(row.tokens):
            return []
        row.tokens.append(self._read(row, end - 1) % VOCABULARY)
        return [row.tokens[-1]]

    def _read(self, row: _Row, position: int) -> int:
        block, place = divmod(position, BLOCK_TOKENS)
        return int(self.kv[row.blocks[block], 0, place, 0])


def _config(model: Path, options: dict[str, Any]) -> VllmConfig:
    cache = CacheConfig(block_size=BLOCK_TOKENS, enable_prefix_caching=True)
    cache.kv_cache_layout = "LBNHC"
    return VllmConfig(
        model_config=ModelConfig(model=str(model), skip_tokenizer_init=True, dtype="float32", seed=0),
        scheduler_config=SchedulerConfig(
            max_num_seqs=8,
            max_num_batched_tokens=128,
            max_model_len=1024,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
        ),
        cache_config=cache,
        device_config=DeviceConfig("cpu"),
        kv_transfer_config=KVTransferConfig(
            kv_connector="OrbitKVConnector",
            kv_connector_module_path="orbitkv.adapters.vllm",
            kv_role="kv_both",
            kv_load_failure_policy="recompute",
            kv_connector_extra_config=options,
        ),
    )
