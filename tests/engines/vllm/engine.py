"""A real vLLM engine in this process: scheduler, worker and KV tensors within a test's reach.

It reads the engine's insides and changes nothing but the bytes of its KV tensors (`scribble`). What is in
them after a test forgot the prefix cache and scribbled can only have come from outside.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs

from benches.single_node.random_model import SPECIAL_TOKENS
from tests.engines.vllm.settings import BLOCK_TOKENS
from tests.engines.waiting import until

OUTPUT_TOKENS = 8
LOGPROB_TOLERANCE = 1e-4
CONNECTOR = "OrbitKVConnector"
CONNECTOR_MODULE = "orbitkv.adapters.vllm.connector"
Prompt = Sequence[int]


@attrs.frozen
class Completion:
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of the tokens, one each."""
    cached_tokens: int
    """Of the prompt: from the engine's own pages and from outside, together."""
    ended: str

    def distance(self, other: "Completion") -> float:
        """The greatest difference of two log probabilities at one place."""
        return max(abs(mine - theirs) for mine, theirs in zip(self.logprobs, other.logprobs, strict=True))


def assert_same(found: Sequence[Completion], expected: Sequence[Completion]) -> None:
    """In float32 a restored prefix gives the same tokens, with the same probabilities."""
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    distances = [one.distance(other) for one, other in zip(found, expected, strict=True)]
    assert max(distances) < LOGPROB_TOLERANCE


def transfer_config(socket: Path, **extra: object) -> dict[str, Any]:
    """What an operator writes to have vLLM use OrbitKV, but for the patience of a busy test machine."""
    return {
        "kv_connector": CONNECTOR,
        "kv_connector_module_path": CONNECTOR_MODULE,
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"socket": str(socket), "request_timeout": "60s", **extra},
    }


def engine_arguments(model: Path, transfer: dict[str, Any] | None, **changed: Any) -> dict[str, Any]:
    """Of `vllm.LLM`."""
    arguments: dict[str, Any] = {
        "model": str(model),
        "skip_tokenizer_init": True,
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 1024,
        "block_size": BLOCK_TOKENS,
        "num_gpu_blocks_override": 128,
        "max_num_seqs": 8,
        "seed": 0,
    }
    if transfer is not None:
        from vllm.config import KVTransferConfig

        arguments["kv_transfer_config"] = KVTransferConfig(**transfer)
    return arguments | changed


def runs_in_process() -> bool:
    return os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"


def _forget_connectors() -> None:
    """An engine that did not start leaves its worker's connector in a global, and the next would get it."""
    from vllm.distributed.kv_transfer.kv_transfer_state import ensure_kv_transfer_shutdown

    ensure_kv_transfer_shutdown()


class Engine:
    _in_this_process: ClassVar[list["Engine"]] = []
    """One at a time: vLLM keeps the worker's connector in a global, and a second engine would be given the
    first one's, which copies to and from the first one's tensors."""

    def __init__(self, model: Path, transfer: dict[str, Any] | None = None, **changed: Any) -> None:
        from vllm import LLM

        assert not (runs_in_process() and self._in_this_process), "another engine lives in this process"
        try:
            self.llm = LLM(**engine_arguments(model, transfer, **changed))
        except BaseException:
            _forget_connectors()
            raise
        if runs_in_process():
            self._in_this_process.append(self)
        self._named = 0
        self._outputs: dict[str, Any] = {}

    def close(self) -> None:
        """Idempotent."""
        self.llm.llm_engine.engine_core.shutdown()
        if self in self._in_this_process:
            self._in_this_process.remove(self)

    # --- serving ----------------------------------------------------------------------------------------

    def complete(self, prompts: Sequence[Prompt], **sampling: Any) -> list[Completion]:
        """All at once, in one batch."""
        names = [self.submit(prompt, **sampling) for prompt in prompts]
        self.step_until(lambda: all(self.ended(name) for name in names))
        return [self.completion(name) for name in names]

    def submit(self, prompt: Prompt, *, salt: str | None = None, **sampling: Any) -> str:
        """The request's name."""
        from vllm import SamplingParams

        self._named += 1
        name = f"test-{self._named}"
        asked = {"max_tokens": OUTPUT_TOKENS, "temperature": 0.0, "ignore_eos": True, "logprobs": 0}
        text = {"prompt_token_ids": list(prompt)} | ({"cache_salt": salt} if salt is not None else {})
        self.llm.llm_engine.add_request(name, text, SamplingParams(detokenize=False, **asked | sampling))
        return name

    def step(self) -> None:
        """One turn of the engine, if it has anything to do. One in other processes turns by itself."""
        engine = self.llm.llm_engine
        in_process = hasattr(engine.engine_core, "engine_core")
        if not in_process and not engine.has_unfinished_requests():
            return
        for output in engine.step():
            self._outputs[output.request_id] = output

    def step_until(self, condition: Callable[[], bool]) -> None:
        until(lambda: condition() or bool(self.step()))

    def ended(self, name: str) -> bool:
        return name in self._outputs and self._outputs[name].finished

    def output_tokens(self, name: str) -> int:
        return len(self._outputs[name].outputs[0].token_ids) if name in self._outputs else 0

    def abort(self, name: str) -> None:
        self.llm.llm_engine.abort_request([name])

    def completion(self, name: str) -> Completion:
        output = self._outputs[name]
        chosen = output.outputs[0]
        tokens = tuple(chosen.token_ids)
        logprobs = tuple(
            place[token].logprob for place, token in zip(chosen.logprobs or [], tokens, strict=True)
        )
        return Completion(tokens, logprobs, output.num_cached_tokens or 0, str(chosen.finish_reason))

    @property
    def busy(self) -> bool:
        """It has requests that are not over, or blocks that are still being saved."""
        return bool(self.scheduler.has_requests())

    def preempted_requests(self) -> list[Any]:
        """Those that were thrown out and wait to go on."""
        return [one for one in self.scheduler.waiting if one.status.name == "PREEMPTED"]

    # --- its own pages ----------------------------------------------------------------------------------

    @property
    def core(self) -> Any:
        return self.llm.llm_engine.engine_core.engine_core

    @property
    def scheduler(self) -> Any:
        return self.core.scheduler

    @property
    def block_pool(self) -> Any:
        return self.scheduler.kv_cache_manager.block_pool

    @property
    def kv_tensors(self) -> list[Any]:
        """One a layer: [blocks, heads, tokens, key and value]."""
        tensors: list[Any] = self.core.model_executor.driver_worker.worker.model_runner.kv_caches
        return tensors

    def pages(self) -> dict[bytes, bytes]:
        """Every page that a prefix lookup finds on the device: the engine's key -> its bytes, all layers."""
        import torch

        # As bytes: numpy does not know every number format that KV may have.
        planes = [tensor.view(torch.uint8) for tensor in self.kv_tensors]
        return {
            bytes(block.block_hash): b"".join(plane[block.block_id].numpy().tobytes() for plane in planes)
            for block in self.block_pool.blocks
            if block.block_hash is not None
        }

    def references(self) -> list[int]:
        """How many requests hold each block."""
        return [block.ref_cnt for block in self.block_pool.blocks]

    def eviction_order(self) -> list[int]:
        """Blocks that nobody holds, the next victim first."""
        return [block.block_id for block in self.block_pool.free_block_queue.get_all_free_blocks()]

    def forget(self) -> None:
        """No prefix lookup finds anything on the device from here on, nor would its bytes be right."""
        self.forget_prefixes()
        self.scribble()

    def forget_prefixes(self) -> None:
        """vLLM refuses while a block is held, and one is until the end of its save was heard."""
        self.step_until(self.llm.reset_prefix_cache)

    def scribble(self) -> None:
        for tensor in self.kv_tensors:
            tensor.normal_()


def prompt(number: int, tokens: int, vocabulary: int = 512) -> list[int]:
    """Prompts of different numbers differ from the first token on; a longer one begins with the shorter."""
    words = vocabulary - SPECIAL_TOKENS
    step = 131 + 2 * number
    return [SPECIAL_TOKENS + (number * 7919 + at * step + at * at * 17) % words for at in range(tokens)]
