"""What a page's bytes are: a function of (namespace, rank, key), so that any copy of them can be judged.

"Computing" a page writes these bytes; after a restore they are compared again. Every word depends on
its place and on the page, so a flipped bit, a shifted copy, another page or another rank's slice all
differ. Not random enough for anything else.
"""

import numpy as np
import xxhash
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
_MIX = np.uint64(0xBF58_476D_1CE4_E5B9)
_SHIFT = np.uint64(29)


class PageContent:
    """The content of one rank's slices. Not thread-safe: `differing_bytes` uses one scratch page."""

    def __init__(self, namespace_digest: bytes, rank: int, slice_bytes: int) -> None:
        if slice_bytes % 8:
            raise ValueError(f"a slice is made of 8-byte words, {slice_bytes} bytes are none")
        self._salt = namespace_digest + rank.to_bytes(4, "little", signed=True)
        self._places = _places(slice_bytes // 8)
        self._scratch = np.empty(slice_bytes // 8, dtype=np.uint64)

    def fill(self, key: bytes, target: Bytes) -> None:
        """Write the slice of page `key` to `target`, a contiguous array of slice_bytes."""
        np.bitwise_xor(self._places, self._seed(key), out=target.view(np.uint64))

    def differing_bytes(self, key: bytes, held: Bytes) -> int:
        """How many bytes of `held` are not those of page `key`."""
        np.bitwise_xor(self._places, self._seed(key), out=self._scratch)
        if np.array_equal(self._scratch, held.view(np.uint64)):
            return 0
        return int(np.count_nonzero(self._scratch.view(np.uint8) != held))

    def _seed(self, key: bytes) -> np.uint64:
        return np.uint64(xxhash.xxh3_64_intdigest(self._salt + key))


def _places(count: int) -> Words:
    """One fixed word per place in a slice (the first steps of SplitMix64)."""
    words = (np.arange(1, count + 1, dtype=np.uint64)) * _GOLDEN
    words ^= words >> _SHIFT
    words *= _MIX
    return words
