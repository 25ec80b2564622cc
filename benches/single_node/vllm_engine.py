"""vLLM behind the bench: a whole engine in the serving process, turned by the workload.

Scheduler and worker share this process, so its clock is the clock of everything that the engine does.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from benches.single_node.plan import Arm, Asked, Places
from benches.single_node.prompts import prompt_tokens
from benches.single_node.serving import Ended, FirstToken, Heard, ServingEngine
from benches.single_node.sizes import vocabulary_of

BLOCK_TOKENS: Final = 32
"""The smallest that vLLM serves on a processor; elsewhere it would take 16."""
DTYPE: Final = "float32"
"""Outputs are compared, and in shorter types they depend on the shape of a batch."""
STEP_TOKENS: Final = 2048
RUNNING_MAX: Final = 32
PAUSE_S: Final = 0.0005
"""After a step without output: an engine that waits for a load alone would keep a processor busy."""
T = TypeVar("T")

ENVIRONMENT: Final = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CACHE_ROOT": str(Path(sys.prefix) / "vllm-cache"),
}
"""Set before vLLM is imported, unless the caller has set them."""


def serve_vllm(arm: Arm, places: Places, play: Callable[[ServingEngine], T]) -> T:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    kv_bytes = (arm.gpu_tokens + BLOCK_TOKENS) * arm.kv_bytes_per_token
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(1 + (kv_bytes >> 30)))
    engine = Vllm(arm, places)
    try:
        return play(engine)
    finally:
        engine.close()


class Vllm:
    def __init__(self, arm: Arm, places: Places) -> None:
        from vllm import LLM

        self._arm = arm
        self._vocabulary = vocabulary_of(Path(arm.model))
        self._outputs: dict[str, int] = {}
        self._llm = LLM(**_arguments(arm, places))

    def close(self) -> None:
        self._llm.llm_engine.engine_core.shutdown()

    def submit(self, asked: Asked) -> None:
        from vllm import SamplingParams

        arm = self._arm
        tokens = prompt_tokens(asked.prompt, asked.length, self._vocabulary, arm.seed)
        params = SamplingParams(
            max_tokens=arm.output_tokens, temperature=0.0, ignore_eos=True, detokenize=False
        )
        self._outputs[asked.name] = 0
        self._llm.llm_engine.add_request(asked.name, {"prompt_token_ids": tokens}, params)

    def turn(self) -> Sequence[Heard]:
        heard: list[Heard] = []
        for output in self._llm.llm_engine.step():
            now_ns = time.monotonic_ns()
            name, chosen = output.request_id, output.outputs[0]
            if not self._outputs[name] and chosen.token_ids:
                heard.append(FirstToken(name, now_ns))
            self._outputs[name] = len(chosen.token_ids)
            if output.finished:
                del self._outputs[name]
                heard.append(Ended(name, now_ns, tuple(chosen.token_ids), output.num_cached_tokens or 0))
        if not heard:
            time.sleep(PAUSE_S)
        return heard

    def words(self) -> dict[str, str]:
        import torch
        from vllm import __version__

        return {
            "engine": f"vLLM {__version__}",
            "dtype": DTYPE,
            "device": self._llm.llm_engine.vllm_config.device_config.device_type,
            "torch threads": str(torch.get_num_threads()),
            "pages": f"{self._arm.page_tokens} tokens",
        }

    def byte_mismatches(self) -> int:
        """Nobody compares them here; outputs tell."""
        return 0


def _arguments(arm: Arm, places: Places) -> dict[str, Any]:
    longest = max(arm.lengths) + arm.output_tokens
    arguments: dict[str, Any] = {
        "model": arm.model,
        "skip_tokenizer_init": True,
        "dtype": DTYPE,
        "enforce_eager": True,
        "max_model_len": longest,
        "block_size": arm.page_tokens,
        # One block is vLLM's own.
        "num_gpu_blocks_override": arm.gpu_tokens // arm.page_tokens + 1,
        "max_num_seqs": RUNNING_MAX,
        "max_num_batched_tokens": STEP_TOKENS,
        "seed": 0,
    }
    transfer = _transfer(arm, places)
    if transfer is not None:
        from vllm.config import KVTransferConfig

        arguments["kv_transfer_config"] = KVTransferConfig(kv_role="kv_both", **transfer)
    return arguments


def _transfer(arm: Arm, places: Places) -> dict[str, Any] | None:
    if arm.backend == "orbitkv":
        return {
            "kv_connector": "OrbitKVConnector",
            "kv_connector_module_path": "orbitkv.adapters.vllm.connector",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"socket": places.socket, **arm.connector_options},
        }
    if arm.backend == "native":
        return {
            "kv_connector": "OffloadingConnector",
            "kv_connector_extra_config": {
                "spec_name": "AssigningSpec",
                "spec_module_path": "benches.single_node.native_offload",
                "cpu_bytes_to_use": arm.pool_bytes,
            },
        }
    return None
