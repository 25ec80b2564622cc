"""How vLLM is told to be small and alone. Read by vLLM when it is imported, so set before that."""

import os
import sys
from pathlib import Path

BLOCK_TOKENS = 32
"""The smallest that vLLM serves on a processor."""

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    # What it has found out about a model's class differs between versions, and they overwrite each other's.
    "VLLM_CACHE_ROOT": str(Path(sys.prefix) / "vllm-cache"),
    # These models are so small, and the machine so busy, that threads waiting for each other cost 20-fold.
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
IN_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
"""Scheduler and worker in the caller's process. Else each has a process of its own."""


def settle_environment() -> None:
    os.environ.update(ENVIRONMENT | IN_PROCESS)
