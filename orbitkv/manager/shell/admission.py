"""Whether new work is let in, as far as the log decides it.

While the log's disk takes no more, new queries are answered as misses, new saves and hints are dropped, all
without a record. Everything that ends something (completions, syncs, releases, closes) still goes
through, its records waiting in the journal's memory, so that nothing leaks and the room is kept for it.
What was turned away without a record is counted here: no log tells of it.
"""

from collections import OrderedDict

import attrs

from orbitkv.events.outcomes import Refusal
from orbitkv.manager.ports import Journal

UNLOGGED_REMEMBERED_MAX = 4096

RequestKey = tuple[int, str, int, int]
"""(instance, request, attempt, revision)"""


@attrs.define(slots=True)
class Admission:
    journal: Journal
    lag_bytes_max: int
    unlogged_queries: int = 0
    """Queries answered as misses without a record."""
    unlogged_save_pages: int = 0
    """Pages dropped without a record."""
    unlogged_hints: int = 0
    """Hints dropped without a record."""
    refused_hints: dict[Refusal, int] = attrs.field(factory=dict)
    """Hints that the kernel refused. A refusal leaves no record, and a hint's sender is told nothing."""
    _missed: "OrderedDict[RequestKey, None]" = attrs.field(factory=OrderedDict)

    @property
    def stopped(self) -> str:
        """Why nothing is let in, in words; empty while it is."""
        if self.journal.trouble:
            return self.journal.trouble
        if self.journal.lag_bytes > self.lag_bytes_max:
            return (
                f"{self.journal.lag_bytes} bytes of log wait for the disk, more than log_lag_bytes_max = "
                f"{self.lag_bytes_max}; put log_path on a faster disk, or raise the setting"
            )
        return ""

    def miss_unlogged(self, key: RequestKey) -> None:
        self.unlogged_queries += 1
        self._missed[key] = None
        if len(self._missed) > UNLOGGED_REMEMBERED_MAX:
            self._missed.popitem(last=False)

    def refuse_hint(self, reason: Refusal) -> None:
        self.refused_hints[reason] = self.refused_hints.get(reason, 0) + 1

    def was_missed_unlogged(self, key: RequestKey) -> bool:
        """One decision for all ranks: who asks for the same request later gets the same answer."""
        return key in self._missed
