"""One rank's saves: blocks that a step has filled, through the staging window to the manager.

In a lane of its own, which waits a while for staging space; a forward pass never does. What the manager
does not want, or has no room for, is not saved and counted. The blocks stay the connector's until this rank
has said that it no longer needs them.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, Protocol

import attrs

from orbitkv.adapters.client_errors import OrbitError
from orbitkv.adapters.device import BlockCopy, Fence
from orbitkv.adapters.saves import SavePlan, SaveResult
from orbitkv.adapters.vllm.counts import Counts
from orbitkv.adapters.vllm.lane import Lane
from orbitkv.adapters.vllm.link import ManagerLink
from orbitkv.adapters.vllm.orders import RankReport, SaveOrder
from orbitkv.adapters.vllm.restorer import GroupCopies

CREDIT_WAIT_SECONDS: Final = 2.0
"""How long staging space is waited for before pages are dropped. Their blocks are held, nobody else waits."""
CREDIT_LOOK_SECONDS: Final = 0.001

_log = logging.getLogger(__name__)


class SavingClient(Protocol):
    """What of the client is needed here."""

    @property
    def staging_credits(self) -> dict[int, int]: ...
    def tend(self) -> bool: ...
    def begin_save(self, group: int, keys: Sequence[bytes]) -> SavePlan: ...
    def commit_save(self, plan: SavePlan) -> SaveResult: ...
    def abort_save(self, plan: SavePlan) -> None: ...


class Stager:
    def __init__(
        self,
        client: SavingClient,
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
        self._report = RankReport()

    def start(self, orders: Sequence[SaveOrder]) -> None:
        """After the forward pass that fills the blocks was launched."""
        for order in orders:
            copies = self._groups.get(order.group)
            if copies is None or not copies.layers:
                self._ended(order)  # this rank holds no layer of the group
            else:
                self._lane.put(partial(self._save, order, copies, copies.copier.fence()))

    def take_ended(self) -> RankReport:
        with self._lock:
            report, self._report = self._report, RankReport()
        return report

    # --- in the lane ----------------------------------------------------------------------------------

    def _save(self, order: SaveOrder, copies: GroupCopies, after: Fence) -> None:
        told = _Told()
        try:
            if self._link.up:
                self._stage(order, copies, after, told)
        except OrbitError as error:
            _log.debug("OrbitKV: pages of a save of %d were not saved. %s", len(order.keys), error)
        finally:
            self._counts.add(unsaved_pages=len(order.keys) - told.pages)
            self._ended(order)

    def _stage(self, order: SaveOrder, copies: GroupCopies, after: Fence, told: "_Told") -> None:
        """As many pages at a time as the staging window has room for."""
        first = 0
        while first < len(order.keys):
            end = first + (self._await_credit(order.group) or len(order.keys))
            part = attrs.evolve(order, keys=order.keys[first:end], blocks=order.blocks[first:end])
            self._stage_part(part, copies, after)
            told.pages += len(part.keys)
            first = end

    def _await_credit(self, group: int) -> int:
        """Free slots; 0 when there are none for too long, or nobody to wait for."""
        deadline = time.monotonic() + CREDIT_WAIT_SECONDS
        while not (credits := self._client.staging_credits.get(group, 0)):
            if not self._client.tend() or time.monotonic() > deadline:
                return 0
            time.sleep(CREDIT_LOOK_SECONDS)
        return credits

    def _stage_part(self, order: SaveOrder, copies: GroupCopies, after: Fence) -> None:
        plan = self._link.ask(lambda: self._client.begin_save(order.group, order.keys))
        if not plan.wanted:
            self._client.abort_save(plan)
            self._count(order, 0, plan.uncredited_pages)
            return
        try:
            copies.copier.store(
                [copy for page in plan.wanted for copy in _images(order, copies, page.position, page.slot)],
                after,
            )
        except BaseException:
            self._client.abort_save(plan)
            raise
        result = self._link.ask(lambda: self._client.commit_save(plan))
        self._count(order, result.accepted_pages, plan.uncredited_pages + result.given_up_pages)

    def _count(self, order: SaveOrder, saved: int, unsaved: int) -> None:
        known = len(order.keys) - saved - unsaved
        size = self._groups[order.group].block_bytes * (len(order.blocks[0]) if order.blocks else 0)
        self._counts.add(saved_pages=saved, save_bytes=saved * size, unsaved_pages=unsaved, known_pages=known)

    def _ended(self, order: SaveOrder) -> None:
        with self._lock:
            self._report.save_ended(order.number)


@attrs.define
class _Told:
    pages: int = 0
    """Pages of an order whose fate has been counted."""


def _images(order: SaveOrder, copies: GroupCopies, position: int, slot: memoryview) -> list[BlockCopy]:
    size = copies.block_bytes
    return [
        BlockCopy(block, slot[part * size : (part + 1) * size])
        for part, block in enumerate(order.blocks[position])
    ]
