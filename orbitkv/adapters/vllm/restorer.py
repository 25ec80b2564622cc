"""One rank's restores: pages of a lease out of the manager's pool into the blocks that vLLM allocated.

In a lane of its own, so a forward pass never waits for it. A restore that fails is reported with all its
blocks, after which vLLM computes them; nothing of it is taken for KV.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import attrs

from orbitkv.adapters.answers import SyncReceipt
from orbitkv.adapters.client_errors import OrbitError
from orbitkv.adapters.device import BlockCopy, Copier
from orbitkv.adapters.restore import RestoreView
from orbitkv.adapters.vllm.counts import Counts
from orbitkv.adapters.vllm.lane import Lane
from orbitkv.adapters.vllm.link import ManagerLink
from orbitkv.adapters.vllm.orders import NO_BLOCK, LoadOrder, PageBlocks, runs
from orbitkv.events.outcomes import SyncOutcome

_log = logging.getLogger(__name__)


class RestoringClient(Protocol):
    """What of the client is needed here."""

    def begin_restore(self, lease: bytes) -> RestoreView: ...
    def report_sync(
        self,
        lease: bytes,
        outcome: SyncOutcome,
        ranges: Sequence[tuple[int, int]],
        layers: int,
        copied_bytes: int,
        elapsed_us: int,
    ) -> SyncReceipt: ...


@attrs.frozen(eq=False)
class GroupCopies:
    """How blocks of one group are copied on this rank."""

    copier: Copier
    block_bytes: int
    layers: int


class Restorer:
    def __init__(
        self,
        client: RestoringClient,
        link: ManagerLink,
        groups: Mapping[int, GroupCopies],
        counts: Counts,
        lane: Lane,
    ) -> None:
        self._client = client
        self._link = link
        self._groups = groups
        self._counts = counts
        self._lane = lane
        self._lock = threading.Lock()
        self._ended: set[str] = set()
        self._failed: dict[str, set[int]] = {}

    def start(self, order: LoadOrder) -> None:
        self._lane.put(lambda: self._restore(order))

    def take_ended(self) -> tuple[set[str], dict[str, set[int]]]:
        """(requests whose restore has ended since last time, of these the failed ones with their blocks)"""
        with self._lock:
            ended, self._ended = self._ended, set()
            failed, self._failed = self._failed, {}
        return ended, failed

    # --- in the lane ----------------------------------------------------------------------------------

    def _restore(self, order: LoadOrder) -> None:
        started_ns = time.monotonic_ns()
        report: Callable[[], None] | None = None
        whole = False
        try:
            view = self._link.ask(lambda: self._client.begin_restore(order.lease))
            report = self._stopped(order)
            copied_bytes = self._copy(order, view)
            elapsed_us = (time.monotonic_ns() - started_ns) // 1000
            report = self._succeeded(order, copied_bytes, elapsed_us)
            whole = True
            self._counts.add(loads=1, load_bytes=copied_bytes, load_us=elapsed_us)
        except OrbitError as error:
            _log.warning("OrbitKV: request %s is computed instead of restored. %s", order.request, error)
        except Exception:
            _log.exception("OrbitKV: request %s is computed instead of restored.", order.request)
        finally:
            if not whole:
                self._counts.add(load_failures=1)
            self._end(order, whole)
            if report is not None:
                self._tell(report)

    def _copy(self, order: LoadOrder, view: RestoreView) -> int:
        copied_bytes = 0
        for number, copies in self._groups.items():
            pages = [page for page in order.pages if page.group == number]
            if pages and copies.layers:
                copies.copier.source(view.pool)
                blocks = list(self._images(view, copies, pages))
                copies.copier.load(blocks)
                copied_bytes += len(blocks) * copies.block_bytes
        return copied_bytes

    @staticmethod
    def _images(view: RestoreView, copies: GroupCopies, pages: Sequence[PageBlocks]) -> Iterator[BlockCopy]:
        size = copies.block_bytes
        for page in pages:
            image = view.page(page.position)
            for part, block in enumerate(page.blocks):
                if block != NO_BLOCK:
                    yield BlockCopy(block, image[part * size : (part + 1) * size])

    def _succeeded(self, order: LoadOrder, copied_bytes: int, elapsed_us: int) -> Callable[[], None]:
        ranges = runs(sorted(page.position for page in order.pages))
        layers = sum(copies.layers for copies in self._groups.values())
        outcome = SyncOutcome.SUCCEEDED
        return lambda: self._report(order, outcome, ranges, layers, copied_bytes, elapsed_us)

    def _stopped(self, order: LoadOrder) -> Callable[[], None]:
        """Copies return when they have ended, so after an error none runs any more."""
        return lambda: self._report(order, SyncOutcome.STOPPED, [], 0, 0, 0)

    def _report(self, order: LoadOrder, outcome: SyncOutcome, *rest: object) -> None:
        self._client.report_sync(order.lease, outcome, *rest)  # type: ignore[arg-type]  # as built above

    @staticmethod
    def _tell(report: Callable[[], None]) -> None:
        try:
            report()
        except OrbitError as error:
            _log.warning("OrbitKV: the end of a restore was not reported. %s", error)

    def _end(self, order: LoadOrder, whole: bool) -> None:
        with self._lock:
            self._ended.add(order.request)
            if not whole:
                self._failed[order.request] = order.blocks
