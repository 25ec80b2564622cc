"""Which blocks a step completes, and holding them until every rank has copied its part of them.

A block is complete when all its tokens are computed after this step, and final when vLLM has hashed it.
Its page is offered once, when its last block is complete. Held blocks are pinned in vLLM's block pool, so
preemption, an abort or the end of the request may free them without anybody overwriting them. No more than
a share of the pool is held: what would go beyond is not saved, and a forward pass never waits.
"""

from collections.abc import Sequence
from typing import Any

import attrs

from orbitkv.adapters.vllm.counts import Counts
from orbitkv.adapters.vllm.groups import KvGroup
from orbitkv.adapters.vllm.keys import full_pages, page_keys
from orbitkv.adapters.vllm.loading import NULL_BLOCK
from orbitkv.adapters.vllm.orders import SaveOrder
from orbitkv.adapters.vllm.tracked import Tracked


@attrs.define
class _Held:
    blocks: list[int]
    ranks_left: int


class Saving:
    def __init__(
        self, groups: Sequence[KvGroup], hash_tokens: int, ranks: int, held_fraction: float, counts: Counts
    ) -> None:
        self._groups = groups
        self._hash_tokens = hash_tokens
        self._ranks = ranks
        self._held_fraction = held_fraction
        self._counts = counts
        self._pool: Any = None
        self._held: dict[int, _Held] = {}
        self._numbered = 0
        self._held_blocks = 0
        self._held_blocks_max = 0

    def bind(self, pool: Any) -> None:
        """vLLM's block pool, in which blocks are pinned."""
        self._pool = pool
        self._held_blocks_max = int(pool.num_gpu_blocks * self._held_fraction)

    @property
    def held_blocks(self) -> int:
        return self._held_blocks

    def completed(self, tracked: Tracked, computed_tokens: int, salt: bytes) -> list[SaveOrder]:
        """Orders for the pages of this request that are complete once `computed_tokens` are computed."""
        orders: list[SaveOrder] = []
        if computed_tokens < tracked.next_page_tokens:
            return orders
        for group in self._groups:
            first = tracked.offered.get(group.number, 0)
            hashes = tracked.request.block_hashes
            end = min(computed_tokens // group.page_tokens, full_pages(hashes, self._hash_tokens, group))
            if end <= first:
                continue
            tracked.offered[group.number] = end
            keys = page_keys(hashes, self._hash_tokens, group, first, end, salt)
            table = tracked.blocks[group.number]
            blocks = [
                tuple(table[page * group.page_blocks : (page + 1) * group.page_blocks])
                for page in range(first, end)
            ]
            order = self._order(group, keys, blocks)
            if order is not None:
                orders.append(order)
        tracked.next_page_tokens = min(
            (tracked.offered.get(group.number, 0) + 1) * group.page_tokens for group in self._groups
        )
        return orders

    def ended(self, number: int, ranks: int) -> None:
        """So many more ranks no longer need the blocks of this save."""
        held = self._held.get(number)
        if held is None:
            return
        held.ranks_left -= ranks
        if held.ranks_left <= 0:
            del self._held[number]
            self._held_blocks -= len(held.blocks)
            # The last block first: as vLLM frees them, so that the front of a prefix lives longest.
            self._pool.free_blocks([self._pool.blocks[block] for block in reversed(held.blocks)])

    def _order(
        self, group: KvGroup, keys: Sequence[bytes], blocks: Sequence[tuple[int, ...]]
    ) -> SaveOrder | None:
        room = (self._held_blocks_max - self._held_blocks) // group.page_blocks if self._pool else 0
        whole = [
            page for page, ids in enumerate(blocks) if NULL_BLOCK not in ids and len(ids) == group.page_blocks
        ]
        taken = whole[: max(0, room)]
        self._counts.add(unsaved_pages=len(whole) - len(taken))
        if not taken:
            return None
        self._numbered += 1
        pinned = [block for page in taken for block in blocks[page]]
        self._pool.touch([self._pool.blocks[block] for block in pinned])
        self._held[self._numbered] = _Held(pinned, self._ranks)
        self._held_blocks += len(pinned)
        return SaveOrder(
            self._numbered,
            group.number,
            tuple(keys[page] for page in taken),
            tuple(blocks[page] for page in taken),
        )
