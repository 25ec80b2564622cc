"""One rank of the embedded engine: its GPU memory, and what is done to it.

"GPU memory" is one array, a row per page. Computing writes a page's bytes; a restore copies them out of
the manager's pool, mapped read-only, and compares each page afterwards in place; a save copies them
into the rank's staging window. The three run on streams of their own (see `streams`) and never touch
the same page at once: the scheduler sees to that.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import attrs
import numpy as np

from orbitkv.adapters.embedded.messages import Restore, RestoreDone, Save, Step
from orbitkv.adapters.embedded.page_content import PageContent
from orbitkv.events.outcomes import SyncOutcome

GROUP = 0
"""The engine has one KV group."""


class RestoreView(Protocol):
    def page(self, position: int, /) -> memoryview:
        """This rank's slice of the page at `position` of the lease, read-only."""


class Cache(Protocol):
    """A session of the manager's client, as far as a rank needs it. Failures are `failures`."""

    failures: tuple[type[Exception], ...]

    def begin_restore(self, lease: bytes) -> RestoreView: ...
    def report_sync(
        self, lease: bytes, outcome: SyncOutcome, first: int, end: int, copied_bytes: int, elapsed_us: int
    ) -> None: ...
    def save(self, keys: Sequence[bytes], fill: Callable[[int, memoryview], None]) -> None:
        """Offer these pages; `fill(position, window)` is called for each one that is wanted."""


@attrs.define
class RankCounts:
    manager_failures: int = 0


class Rank:
    """`content` is the judge of restored pages; each stream that judges needs its own."""

    def __init__(self, cache: Cache, content: PageContent, hbm_pages: int, slice_bytes: int) -> None:
        self.hbm = np.zeros((hbm_pages, slice_bytes), dtype=np.uint8)
        self.counts = RankCounts()
        self._cache = cache
        self._content = content
        self._slice_bytes = slice_bytes

    def step(self, step: Step) -> None:
        """Compute: write the content of these pages."""
        for page, key in zip(step.pages, step.keys, strict=True):
            self._content.fill(key, self.hbm[page])

    def restore(self, restore: Restore) -> RestoreDone:
        """Copy, compare, report. Never raises for what the manager does: then nothing was copied."""
        started_ns = time.monotonic_ns()
        try:
            view = self._cache.begin_restore(restore.lease)
        except self._cache.failures:
            self.counts.manager_failures += 1
            return RestoreDone(restore.number, False, 0, 0, 0, 0)
        self._copy(view, restore)
        copied_bytes = len(restore.pages) * self._slice_bytes
        copied_ns = time.monotonic_ns()
        elapsed_us = (copied_ns - started_ns) // 1000
        wrong = [
            self._content.differing_bytes(k, self.hbm[p])
            for p, k in zip(restore.pages, restore.keys, strict=True)
        ]
        compared_us = (time.monotonic_ns() - copied_ns) // 1000
        self._report_sync(restore, copied_bytes, elapsed_us)
        mismatched = sum(1 for differing in wrong if differing)
        return RestoreDone(
            restore.number, True, copied_bytes, mismatched, sum(wrong), elapsed_us, compared_us
        )

    def save(self, save: Save) -> None:
        """Offer the pages, and put the wanted ones into the staging window. A failure loses the save only."""
        try:
            self._cache.save(save.keys, partial(self._fill_window, save))
        except self._cache.failures:
            self.counts.manager_failures += 1

    def _fill_window(self, save: Save, position: int, window: memoryview) -> None:
        np.copyto(np.frombuffer(window, dtype=np.uint8), self.hbm[save.pages[position]])

    def _copy(self, view: RestoreView, restore: Restore) -> None:
        for offset, page in enumerate(restore.pages):
            source = np.frombuffer(view.page(restore.first + offset), dtype=np.uint8)
            np.copyto(self.hbm[page], source)

    def _report_sync(self, restore: Restore, copied_bytes: int, elapsed_us: int) -> None:
        end = restore.first + len(restore.pages)
        try:
            self._cache.report_sync(
                restore.lease, SyncOutcome.SUCCEEDED, restore.first, end, copied_bytes, elapsed_us
            )
        except self._cache.failures:
            self.counts.manager_failures += 1
