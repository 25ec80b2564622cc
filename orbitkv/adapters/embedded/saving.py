"""Pages that the ranks are saving: held until every rank has taken its slice.

A forward pass never waits for a save. When too many pages are held already, further ones are not
saved, and counted.
"""

from collections.abc import Sequence

import attrs

from orbitkv.adapters.embedded.messages import EngineReport, Save
from orbitkv.adapters.embedded.prefix_cache import PrefixCache


@attrs.define
class _Open:
    pages: list[int]
    ranks_left: int


class Saving:
    def __init__(self, hbm: PrefixCache, ranks: int, pages_max: int, report: EngineReport) -> None:
        self._hbm = hbm
        self._ranks = ranks
        self._pages_max = pages_max
        self._report = report
        self._open: dict[int, _Open] = {}
        self._held = 0
        self._numbered = 0

    @property
    def idle(self) -> bool:
        return not self._open

    def offer(self, pages: Sequence[int], keys: Sequence[bytes]) -> Save | None:
        """The order for the ranks, or None when nothing of it can be saved now."""
        room = max(0, self._pages_max - self._held)
        self._report.unsaved_pages += max(0, len(pages) - room)
        taken = list(pages[:room])
        if not taken:
            return None
        for page in taken:
            self._hbm.hold(page)
        self._held += len(taken)
        self._numbered += 1
        self._open[self._numbered] = _Open(taken, self._ranks)
        self._report.offered_pages += len(taken)
        return Save(self._numbered, tuple(taken), tuple(keys[:room]))

    def staged(self, number: int) -> None:
        """One more rank no longer needs the pages of this save."""
        save = self._open[number]
        save.ranks_left -= 1
        if save.ranks_left == 0:
            del self._open[number]
            self._held -= len(save.pages)
            self._hbm.drop(save.pages)
