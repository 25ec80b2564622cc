"""From the block ids of a trace to page keys: a chain, as engines build it.

A trace's id already stands for its whole prefix; chaining keeps that true for traces that are wrong
about it, and gives keys the length and look of an engine's. Only whole blocks have a key: the partial
last one is never cached.
"""

import hashlib
from collections.abc import Iterable

KEY_BYTES = 16
_ROOT = b"orbitkv embedded engine"


def block_keys(hash_ids: Iterable[int]) -> tuple[bytes, ...]:
    """One key per id, each depending on all ids before it."""
    keys = []
    parent = _ROOT
    for block in hash_ids:
        parent = hashlib.blake2b(parent + block.to_bytes(8, "little"), digest_size=KEY_BYTES).digest()
        keys.append(parent)
    return tuple(keys)
