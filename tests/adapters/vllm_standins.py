"""Stand-ins for what vLLM and the client hand to the connector: only what the connector reads or calls.

The manager is a dict of keys; the block pool counts references. Nothing here knows the connector's rules.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import attrs

from orbitkv.adapters.answers import QueryAnswer
from orbitkv.adapters.client_errors import CallTimedOut, ManagerUnavailable, OrbitError
from orbitkv.adapters.vllm.groups import ALL, KvGroup
from orbitkv.io.wire import QueryPart, QueryStatus

BLOCK = 4
"""Tokens per block."""
GROUP = KvGroup(
    number=0, block_tokens=BLOCK, page_blocks=1, trailing_pages=ALL, layers=("layer 0",), spec="full"
)


def hashes(prompt: str, tokens: int) -> list[bytes]:
    """One chained hash per full block: equal prompts, equal hashes."""
    return [f"{prompt}/{block}".encode() for block in range(tokens // BLOCK)]


def request(name: str, tokens: int, prompt: str = "p", **more: Any) -> Any:
    return SimpleNamespace(
        request_id=name,
        num_tokens=tokens,
        block_hashes=hashes(prompt, tokens),
        lora_request=None,
        skip_reading_prefix_cache=False,
        **more,
    )


class Pool:
    """vLLM's block pool: ids from 1 on, references counted, cached blocks by (hash, group)."""

    hash_block_size = BLOCK

    def __init__(self, blocks: int = 64) -> None:
        self.num_gpu_blocks = blocks
        self.blocks = [SimpleNamespace(block_id=block, ref_cnt=0) for block in range(blocks)]
        self.cached: dict[tuple[bytes, int], Any] = {}
        self.looks = 0

    def get_cached_block(self, block_hash: bytes, groups: list[int]) -> list[Any] | None:
        self.looks += 1
        found = [self.cached.get((block_hash, group)) for group in groups]
        return None if None in found else found

    def touch(self, blocks: Sequence[Any]) -> None:
        for block in blocks:
            block.ref_cnt += 1

    def free_blocks(self, blocks: Sequence[Any]) -> None:
        for block in blocks:
            assert block.ref_cnt > 0
            block.ref_cnt -= 1

    @property
    def held(self) -> list[int]:
        return [block.block_id for block in self.blocks if block.ref_cnt]


@attrs.define
class Link:
    """A link to the manager that is up until a call fails for want of it."""

    up: bool = True
    epoch: int = 0

    def ask(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (ManagerUnavailable, CallTimedOut):
            self.up = False
            self.epoch += 1
            raise


@attrs.define
class Manager:
    """Answers from `saved`. `loading`: nothing is answered yet. `trouble`: every call fails with it."""

    saved: set[bytes] = attrs.Factory(set)
    loading: bool = False
    trouble: OrbitError | None = None
    statuses: list[QueryStatus] = attrs.Factory(list)
    """To be answered instead, one a question."""
    calls: list[tuple[Any, ...]] = attrs.Factory(list)
    asked: dict[bytes, Sequence[QueryPart]] = attrs.Factory(dict)
    stages: list[tuple[str, int, str]] = attrs.Factory(list)
    hints: list[tuple[str, int, list[bytes]]] = attrs.Factory(list)
    hints_out: set[tuple[str, int]] = attrs.Factory(set)

    def query(self, name: str, attempt: int, parts: Sequence[QueryPart], revision: int) -> QueryAnswer:
        self._call("query", name, attempt, revision, sum(len(part.keys) for part in parts))
        self.hints_out.discard((name, attempt))
        operation = f"{name}/{attempt}/{revision}".encode()
        self.asked[operation] = parts
        return self._answer(operation)

    def poll(self, operation: bytes) -> QueryAnswer:
        self._call("poll", operation.decode())
        return self._answer(operation)

    def cancel(self, operation: bytes) -> bool:
        self._call("cancel", operation.decode())
        return True

    def release(self, lease: bytes) -> bool:
        self._call("release", lease.decode())
        return True

    def report_stage(self, name: str, attempt: int, stage: str) -> bool:
        self.stages.append((name, attempt, stage))
        return True

    def warm_prefix(self, name: str, attempt: int, parts: Sequence[QueryPart]) -> int:
        self.hints.append((name, attempt, parts[0].keys))
        self.hints_out.add((name, attempt))
        return len(self.hints)

    def cancel_hint(self, name: str, attempt: int) -> bool:
        known = (name, attempt) in self.hints_out
        self.hints_out.discard((name, attempt))
        return known

    def made(self, kind: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == kind]

    def _call(self, *what: Any) -> None:
        self.calls.append(what)
        if self.trouble is not None:
            raise self.trouble

    def _answer(self, operation: bytes) -> QueryAnswer:
        if self.statuses:
            return QueryAnswer(self.statuses.pop(0), operation)
        if self.loading:
            return QueryAnswer(QueryStatus.LOADING, operation)
        (part,) = self.asked[operation]
        hits = next((n for n, key in enumerate(part.keys) if key not in self.saved), len(part.keys))
        if not hits:
            return QueryAnswer(QueryStatus.MISSED)
        lease = b"lease " + operation
        return QueryAnswer(QueryStatus.READY, operation, hits * part.page_tokens, (hits,), lease)


def step(
    new: Sequence[tuple[str, list[int], int]] = (),
    cached: Sequence[tuple[str, list[int] | None, int]] = (),
    scheduled: dict[str, int] | None = None,
    resumed: Sequence[str] = (),
) -> Any:
    """vLLM's scheduler output. `new`, `cached`: (request, blocks, tokens computed before)."""
    return SimpleNamespace(
        scheduled_new_reqs=[
            SimpleNamespace(req_id=name, block_ids=(blocks,), num_computed_tokens=computed)
            for name, blocks, computed in new
        ],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=[name for name, _, _ in cached],
            new_block_ids=[None if blocks is None else (blocks,) for _, blocks, _ in cached],
            num_computed_tokens=[computed for _, _, computed in cached],
            resumed_req_ids=set(resumed),
        ),
        num_scheduled_tokens=scheduled or {},
    )
