"""vLLM's own offloading on a processor: its scheduling rules, with page copies by plain assignment.

`OffloadingConnector` ships with workers for GPUs only. This one takes the same jobs and carries them out
at once, between the engine's KV tensors and ordinary memory. It is a baseline for benches, nothing more.
"""

import time
from typing import Any

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec


class AssigningWorker(OffloadingWorker):  # type: ignore[misc]
    def __init__(self, kv_caches: Any, chunks: int) -> None:
        self._tensors = [one.tensor for one in kv_caches.tensors]
        self._groups = kv_caches.group_data_refs
        self._memory = [
            torch.empty(chunks, one.page_size_bytes, dtype=torch.int8) for one in kv_caches.tensors
        ]
        self._done: list[Any] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._carry_out(job_id, device=src_spec, memory=dst_spec, storing=True)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._carry_out(job_id, device=dst_spec, memory=src_spec, storing=False)

    def _carry_out(self, job_id: int, *, device: Any, memory: Any, storing: bool) -> bool:
        started = time.perf_counter()
        copied_bytes = 0
        first = 0
        for references, size in zip(self._groups, device.group_sizes, strict=True):
            on_device = torch.as_tensor(device.block_ids[first : first + size])
            in_memory = torch.as_tensor(memory.block_ids[first : first + size])
            first += size
            for reference in references:
                tensor, copies = self._tensors[reference.tensor_idx], self._memory[reference.tensor_idx]
                if storing:
                    copies[in_memory] = tensor[on_device]
                else:
                    tensor[on_device] = copies[in_memory]
                copied_bytes += size * reference.page_size_bytes
        elapsed_s = time.perf_counter() - started
        self._done.append(
            TransferResult(
                job_id=job_id, success=True, transfer_size=copied_bytes, transfer_time=max(elapsed_s, 1e-9)
            )
        )
        return True

    def get_finished(self) -> list[Any]:
        done, self._done = self._done, []
        return done

    def wait(self, job_ids: set[int]) -> None:
        """Everything is carried out when it is submitted."""


class AssigningSpec(CPUOffloadingSpec):  # type: ignore[misc]
    _worker: Any
    """Made by the first call below; the base class sets it to None."""

    def get_worker(self, kv_caches: Any) -> Any:
        if self._worker is None:
            # One attribute under the two names that it has had.
            chunks = getattr(self, "num_chunks", 0) or self.num_blocks
            self._worker = AssigningWorker(kv_caches, chunks)
        return self._worker
