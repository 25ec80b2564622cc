"""Which page of GPU memory holds what: a block pool with a prefix cache, as engines have it.

A page is *free*, *held* (by requests, restores or saves: a count), or *idle*: held by nobody but still
findable by its key. Idle pages are reused least recently used first; a held page never is. Knows
nothing of bytes: those lie with the ranks, who share these page numbers.
"""

from collections import OrderedDict
from collections.abc import Sequence


class PrefixCache:
    def __init__(self, pages: int) -> None:
        self.pages = pages
        self._free = list(range(pages - 1, -1, -1))
        self._holds = [0] * pages
        self._key_of: list[bytes | None] = [None] * pages
        self._page_of: dict[bytes, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def available_pages(self) -> int:
        """Pages that an allocation could have now."""
        return len(self._free) + len(self._idle)

    @property
    def held_pages(self) -> int:
        return self.pages - self.available_pages

    def match(self, keys: Sequence[bytes]) -> int:
        """How many leading keys are here. A look only: nothing is held, no recency changes."""
        for count, key in enumerate(keys):
            if key not in self._page_of:
                return count
        return len(keys)

    def fits(self, prefix: Sequence[bytes], fresh: int) -> bool:
        """Whether `reserve` would find the pages now."""
        idle = sum(1 for key in prefix if self._page_of[key] in self._idle)
        return self.available_pages - idle >= fresh

    def reserve(self, prefix: Sequence[bytes], fresh: int) -> list[int] | None:
        """Hold the pages of `prefix` (all must match) and `fresh` unnamed ones behind them.

        None, and nothing changed, when there are not enough pages.
        """
        if not self.fits(prefix, fresh):
            return None
        pages = [self._page_of[key] for key in prefix]
        for page in pages:
            self.hold(page)
        return pages + [self._take() for _ in range(fresh)]

    def publish(self, page: int, key: bytes) -> bool:
        """From now on `key` is found at this held page, unless another page has it already."""
        assert self._holds[page] > 0
        if key in self._page_of:
            return False
        self._page_of[key] = page
        self._key_of[page] = key
        return True

    def hold(self, page: int) -> None:
        self._holds[page] += 1
        self._idle.pop(page, None)

    def drop(self, pages: Sequence[int]) -> None:
        """End one hold of each. The last of the list becomes idle first, so it is also reused first."""
        for page in reversed(pages):
            assert self._holds[page] > 0
            self._holds[page] -= 1
            if self._holds[page] == 0:
                self._rest(page)

    def _rest(self, page: int) -> None:
        if self._key_of[page] is None:
            self._free.append(page)
        else:
            self._idle[page] = None

    def _take(self) -> int:
        page = self._free.pop() if self._free else self._evict()
        self._holds[page] = 1
        return page

    def _evict(self) -> int:
        page, _ = self._idle.popitem(last=False)
        key = self._key_of[page]
        assert key is not None
        del self._page_of[key]
        self._key_of[page] = None
        return page
