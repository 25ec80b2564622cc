"""From what was found and what vLLM allocated to what the ranks copy. Pure arithmetic.

The lease lists pages part after part; of a sliding window's group only the last ones before the boundary.
vLLM's block 0 is its null block: a part of the prefix that nobody will read.
"""

from collections.abc import Sequence

from orbitkv.adapters.vllm.groups import KvGroup
from orbitkv.adapters.vllm.lookups import Found
from orbitkv.adapters.vllm.orders import NO_BLOCK, LoadOrder, PageBlocks

NULL_BLOCK = 0


def load_order(
    request: str,
    lease: bytes,
    found: Found,
    groups: Sequence[KvGroup],
    tables: Sequence[Sequence[int]],
    tokens: tuple[int, int],
) -> LoadOrder | None:
    """What to copy for these tokens (first, end) of what was found; `tables`: blocks by group number.

    None when vLLM has allocated blocks that no leased page fills: they must not be taken for KV.
    """
    pages: list[PageBlocks] = []
    position = 0
    for group, hits in zip(groups, found.hits, strict=True):
        end = found.end_tokens // group.page_tokens
        first = end - hits
        table = tables[group.number]
        if _unfilled(group, table, tokens[0], first * group.page_tokens):
            return None
        for page in range(first, end):
            blocks = _wanted(group, table, page, tokens)
            if any(block != NO_BLOCK for block in blocks):
                pages.append(PageBlocks(position + page - first, group.number, blocks))
        position += hits
    return LoadOrder(request, lease, tuple(pages))


def external_blocks(
    groups: Sequence[KvGroup], tables: Sequence[Sequence[int]], local_tokens: int, end_tokens: int
) -> set[int]:
    """All blocks that an external load was to fill."""
    return {
        block
        for group in groups
        for block in tables[group.number][
            local_tokens // group.block_tokens : end_tokens // group.block_tokens
        ]
        if block != NULL_BLOCK
    }


def _wanted(group: KvGroup, table: Sequence[int], page: int, tokens: tuple[int, int]) -> tuple[int, ...]:
    first = page * group.page_blocks
    return tuple(
        table[index]
        if tokens[0] <= index * group.block_tokens < tokens[1] and table[index] != NULL_BLOCK
        else NO_BLOCK
        for index in range(first, first + group.page_blocks)
    )


def _unfilled(group: KvGroup, table: Sequence[int], local_tokens: int, first_tokens: int) -> bool:
    between = table[local_tokens // group.block_tokens : first_tokens // group.block_tokens]
    return any(block != NULL_BLOCK for block in between)
