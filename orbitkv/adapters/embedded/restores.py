"""Restores under way: ordered from the ranks, over when the last of them has ended its copies."""

from collections.abc import Iterator

import attrs

from orbitkv.adapters.embedded.lookups import Found
from orbitkv.adapters.embedded.messages import EngineReport, Restore, RestoreDone
from orbitkv.adapters.embedded.requests import EngineRequest


@attrs.define
class RestoreUnderWay:
    request: EngineRequest
    end: int
    """Page of the prompt before which it ends."""
    ranks_left: int
    whole: bool = True
    """No rank has failed and no byte was wrong."""
    usable_ns: int = 0
    """When the last rank so far had its pages."""


class Restores:
    def __init__(self, ranks: int, report: EngineReport) -> None:
        self._ranks = ranks
        self._report = report
        self._under_way: dict[int, RestoreUnderWay] = {}
        self._numbered = 0

    def begin(self, request: EngineRequest, found: Found) -> Restore:
        """The order for the ranks: what was found behind the request's local pages, up to its limit."""
        end = min(found.end, request.limit_pages)
        positions = slice(request.local_pages, end)
        self._numbered += 1
        self._under_way[self._numbered] = RestoreUnderWay(request, end, self._ranks)
        pages, keys = tuple(request.pages[positions]), request.keys[positions]
        return Restore(self._numbered, found.lease, request.local_pages - found.first, pages, keys)

    def rank_done(self, done: RestoreDone, now_ns: int) -> RestoreUnderWay | None:
        """One more rank has ended its copies; the whole restore, after the last of them."""
        self._report.restored_bytes += done.copied_bytes
        self._report.byte_mismatches += done.byte_mismatches
        self._report.mismatched_pages += done.mismatched_pages
        self._report.restore_us += done.elapsed_us
        restore = self._under_way[done.number]
        restore.ranks_left -= 1
        restore.whole &= done.copied and not done.byte_mismatches
        restore.usable_ns = max(restore.usable_ns, now_ns - done.compared_us * 1000)
        return self._under_way.pop(done.number) if restore.ranks_left == 0 else None

    def requests(self) -> Iterator[EngineRequest]:
        return (restore.request for restore in self._under_way.values())

    def __len__(self) -> int:
        return len(self._under_way)
