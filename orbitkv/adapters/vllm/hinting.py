"""Hints: telling the manager, when a request is queued, which pages its lookup will ask for.

GPU memory is looked at and nothing more: no block is allocated, pinned or moved up. The keys are those that
the request's lookup would name at this moment, the final full page included. One KV group only: with more,
what a prefix needs of each depends on where it ends, which is the lookup's to find out.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from orbitkv.adapters.hints import HintRefusal
from orbitkv.adapters.vllm.counts import Counts
from orbitkv.adapters.vllm.groups import ALL, KvGroup
from orbitkv.adapters.vllm.keys import query_parts
from orbitkv.adapters.vllm.tracked import Tracked
from orbitkv.io.wire import QueryPart


class HintingClient(Protocol):
    """What of the client is needed here. Neither call waits or raises."""

    def warm_prefix(self, request: str, attempt: int, parts: Sequence[QueryPart]) -> int | HintRefusal: ...
    def cancel_hint(self, request: str, attempt: int) -> bool: ...


class Hinting:
    def __init__(
        self,
        client: HintingClient,
        groups: Sequence[KvGroup],
        hash_tokens: int,
        counts: Counts,
        enabled: bool,
    ) -> None:
        self._client = client
        self._groups = groups
        self._hash_tokens = hash_tokens
        self._counts = counts
        self._enabled = enabled and len(groups) == 1 and groups[0].trailing_pages == ALL

    def announce(self, tracked: Tracked, pool: Any, salt: bytes) -> None:
        if not self._enabled or pool is None:
            return
        (group,) = self._groups
        hashes = tracked.request.block_hashes
        local_tokens = leading_blocks(hashes, self._hash_tokens, group, pool) * group.block_tokens
        first_tokens = local_tokens // group.page_tokens * group.page_tokens
        parts = query_parts(hashes, self._hash_tokens, self._groups, first_tokens, salt)
        if not parts:
            return
        ticket = self._client.warm_prefix(tracked.name, tracked.lookup.attempt, parts)
        if isinstance(ticket, int):
            tracked.hinted_attempt = tracked.lookup.attempt
            self._counts.add(hints_sent=1)
        else:
            self._counts.add(hints_unsent=1)

    def withdraw(self, tracked: Tracked) -> None:
        """Its place in the queue is over, or it needs no lookup. Twice is harmless."""
        attempt, tracked.hinted_attempt = tracked.hinted_attempt, -1
        if attempt >= 0:
            self._client.cancel_hint(tracked.name, attempt)


def leading_blocks(hashes: Sequence[Any], hash_tokens: int, group: KvGroup, pool: Any) -> int:
    """How many blocks from the front GPU memory has. A look only."""
    step = group.block_tokens // hash_tokens
    blocks = 0
    while (blocks + 1) * step <= len(hashes):
        if not pool.get_cached_block(hashes[(blocks + 1) * step - 1], [group.number]):
            break
        blocks += 1
    return blocks
