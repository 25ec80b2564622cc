"""From vLLM's block hashes to page keys, and from token counts to places in their lists. Pure arithmetic.

A page's key is vLLM's own hash of the page's last block: the chain makes it stand for all tokens before
it, and cache salt, multimodal items and other extra keys are in it already. vLLM computes one hash per
`hash_tokens` tokens, which every group's block size is a multiple of.
"""

import hashlib
from collections.abc import Sequence

from orbitkv.adapters.vllm.groups import KvGroup
from orbitkv.events.ids import KEY_BYTES_MAX
from orbitkv.io.wire import QueryPart


def page_keys(
    hashes: Sequence[bytes], hash_tokens: int, group: KvGroup, first: int, end: int, salt: bytes = b""
) -> list[bytes]:
    """Keys of the group's pages first .. end of a request. `salt`: at most 64 bytes."""
    step = group.page_tokens // hash_tokens
    ours = [bytes(hashes[(page + 1) * step - 1]) for page in range(first, end)]
    if not salt:
        return ours
    return [hashlib.blake2b(key, key=salt, digest_size=KEY_BYTES_MAX).digest() for key in ours]


def full_pages(hashes: Sequence[bytes], hash_tokens: int, group: KvGroup) -> int:
    """Pages of which every block has a hash: all their tokens are known."""
    return len(hashes) * hash_tokens // group.page_tokens


def query_parts(
    hashes: Sequence[bytes], hash_tokens: int, groups: Sequence[KvGroup], first_tokens: int, salt: bytes = b""
) -> list[QueryPart]:
    """All full pages from `first_tokens` on, the final one included; empty when there are none.

    `first_tokens` is a multiple of every group's page.
    """
    parts = []
    for group in groups:
        first, end = first_tokens // group.page_tokens, full_pages(hashes, hash_tokens, group)
        keys = page_keys(hashes, hash_tokens, group, first, end, salt)
        parts.append(QueryPart(group.number, group.page_tokens, group.trailing_pages, keys))
    return parts if all(part.keys for part in parts) else []
