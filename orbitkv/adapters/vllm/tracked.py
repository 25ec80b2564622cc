"""What the scheduler's side keeps of each request that vLLM has: where it stands, and its blocks."""

import hashlib
from typing import Any

import attrs

from orbitkv.adapters.vllm.groups import KvGroup
from orbitkv.adapters.vllm.lookups import Lookup
from orbitkv.adapters.vllm.orders import LoadOrder
from orbitkv.io.wire import NAME_CHARS_MAX


@attrs.define(eq=False)
class Tracked:
    request: Any
    """vLLM's own object; its block hashes grow as tokens are generated."""
    lookup: Lookup
    cacheable: bool = True
    """False: its keys do not tell its bytes, so nothing of it is looked up, hinted or saved."""
    stale: bool = False
    """The cache was reset while it had blocks: its KV may be of other weights than what is computed now."""
    hinted_attempt: int = -1
    """Of the hint that is out for it; -1: none is."""
    admitted: bool = False
    """vLLM has allocated for it. When it asks again after that, it was preempted, or its load failed."""
    local_tokens: int = 0
    """Prefix in GPU memory when it was last looked at."""
    load: LoadOrder | None = None
    """Ordered, and no step has computed on it yet."""
    load_end_tokens: int = 0
    """Where it ends in the prompt."""
    computed: bool = False
    """A compute step was scheduled for it at least once."""
    load_failed: bool = False
    """It is computed from now on: another lookup could find the same again, and fail again."""
    blocks: dict[int, list[int]] = attrs.field(factory=dict)
    """By group: the blocks of its whole table, as vLLM's steps have named them."""
    offered: dict[int, int] = attrs.field(factory=dict)
    """By group: pages that need not be offered any more."""
    next_page_tokens: int = 0
    """With fewer tokens computed no further page is complete: most steps look no further than this."""

    @property
    def name(self) -> str:
        return self.lookup.request

    def reset_blocks(self, groups: tuple[KvGroup, ...], tables: Any, known_tokens: int) -> None:
        """A new table. Of the pages before `known_tokens` the KV came from a cache."""
        self.blocks = {group.number: list(tables[group.number]) for group in groups}
        self.offered = {group.number: known_tokens // group.page_tokens for group in groups}
        self.next_page_tokens = 0

    def add_blocks(self, tables: Any) -> None:
        for number, blocks in self.blocks.items():
            blocks.extend(tables[number])


def manager_name(request_id: str) -> str:
    """The request's id as it is, or the hash of one that is too long for the manager's messages."""
    if 1 <= len(request_id) <= NAME_CHARS_MAX:
        return request_id
    return hashlib.sha256(request_id.encode()).hexdigest()
