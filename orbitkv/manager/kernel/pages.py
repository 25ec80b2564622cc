"""Pages: what a key stands for, and where its bytes are.

A page number is a small stand-in for (space, key). `references` counts everything that keeps the
number meaningful: live buffers, SSD slots, reads, operations that wait for budget. At 0 the number
is unbound and used again. Columns, not objects: 10^6 pages as objects cost 375 MB and long pauses.
"""

from collections.abc import Iterable, Sequence

import attrs
import numpy as np

from orbitkv.manager.kernel.columns import Array, Ints, grown

_RUN = 128
"""Keys compared at once: long enough to pay, short enough that a break in the run costs little."""


@attrs.define(slots=True)
class Space:
    """One (namespace, group): the scope in which a key is unique."""

    namespace_digest: bytes
    group: int
    index: dict[bytes, int] = attrs.field(factory=dict, repr=False)


class PageTable:
    """Columns by page number. -1 means none."""

    __slots__ = ("buffer", "free", "keys", "read", "references", "saving", "slot", "space", "spaces")

    def __init__(self) -> None:
        self.spaces: list[Space] = []
        self.keys: list[bytes] = []
        self.space: Array = np.full(64, -1, np.int32)
        self.buffer: Array = np.full(64, -1, np.int64)
        """The indexed buffer: what a lookup finds."""
        self.slot: Array = np.full(64, -1, np.int64)
        """The findable SSD slot (its write has completed)."""
        self.read: Array = np.full(64, -1, np.int64)
        """The read that is queued or in flight for it."""
        self.saving: Array = np.full(64, -1, np.int64)
        """The buffer that an instance's ranks are filling."""
        self.references: Array = np.zeros(64, np.int32)
        self.free: list[int] = []
        """Unbound numbers below len(keys), used again last in, first out."""

    def bound_count(self) -> int:
        return len(self.keys) - len(self.free)

    def next_numbers(self, count: int) -> list[int]:
        """The numbers that the next `count` bindings take."""
        reused = self.free[: -count - 1 : -1]
        fresh = len(self.keys)
        return reused + list(range(fresh, fresh + count - len(reused)))

    def bind(self, space: int, pages: Ints, keys: Sequence[bytes]) -> None:
        index = self.spaces[space].index
        for page, key in zip(pages.tolist(), keys, strict=True):
            if self.free:
                assert self.free[-1] == page, "page numbers are reused last in, first out"
                self.free.pop()
                self.keys[page] = key
            else:
                assert page == len(self.keys), "page numbers grow by one"
                self.keys.append(key)
            assert key not in index, "a key is bound once"
            index[key] = page
        if len(self.keys) > len(self.space):
            self._grow(len(self.keys))
        self.space[pages] = space

    def unbind(self, pages: Iterable[int]) -> None:
        for page in pages:
            assert self.references[page] == 0 and self.space[page] >= 0, (
                "only an unreferenced page is unbound"
            )
            del self.spaces[int(self.space[page])].index[self.keys[page]]
            self.space[page] = -1
            self.keys[page] = b""
            self.free.append(page)

    def resolve(self, space: int, keys: Sequence[bytes]) -> list[int | None]:
        """The page of each key, None where there is none.

        Pages of one prefix are mostly bound together and so have numbers that run on. Comparing keys
        with the run that begins at the first one's page costs a tenth of looking each of them up.
        """
        index = self.spaces[space].index
        pages: list[int | None] = []
        for start in range(0, len(keys), _RUN):
            block = list(keys[start : start + _RUN])
            first = index.get(block[0])
            end = -1 if first is None else first + len(block)
            if first is not None and self.keys[first:end] == block and self._all_in(space, first, end):
                pages.extend(range(first, end))
            else:
                pages.extend(map(index.get, block))
        return pages

    def _all_in(self, space: int, first: int, end: int) -> bool:
        """The same keys may run on in another space."""
        return bool((self.space[first:end] == space).all())

    def _grow(self, size: int) -> None:
        self.space = grown(self.space, size, -1)
        self.buffer = grown(self.buffer, size, -1)
        self.slot = grown(self.slot, size, -1)
        self.read = grown(self.read, size, -1)
        self.saving = grown(self.saving, size, -1)
        self.references = grown(self.references, size, 0)
