"""The connector in one rank's process: registers its KV memory, restores and saves in lanes of their own."""

import logging
from collections.abc import Sequence
from typing import Final

from orbitkv.adapters.client import CacheManagerClient
from orbitkv.adapters.device import copiers_for
from orbitkv.adapters.vllm.counts import Counts
from orbitkv.adapters.vllm.lane import Lane
from orbitkv.adapters.vllm.layout import GroupPlanes
from orbitkv.adapters.vllm.link import ManagerLink
from orbitkv.adapters.vllm.orders import RankReport, StepOrders
from orbitkv.adapters.vllm.restorer import GroupCopies, Restorer
from orbitkv.adapters.vllm.stager import Stager

FINISH_SECONDS: Final = 5.0
"""How long an orderly end waits for copies that run."""

_log = logging.getLogger(__name__)


class WorkerSide:
    """Made when vLLM has registered the KV tensors. `open` registers with the manager."""

    def __init__(
        self, client: CacheManagerClient, link: ManagerLink, layout: Sequence[GroupPlanes], counts: Counts
    ) -> None:
        self._client = client
        self._link = link
        self.counts = counts
        copiers = copiers_for([planes.planes for planes in layout])
        self._groups = {
            planes.group.number: GroupCopies(copier, planes.block_bytes, len(planes.planes))
            for planes, copier in zip(layout, copiers, strict=True)
        }
        if client.pool is not None:
            for copier in copiers:
                copier.source(client.pool)
        self._loads = Lane("loads")
        self._saves = Lane("saves")
        self._restorer = Restorer(client, link, self._groups, counts, self._loads)
        self._stager = Stager(client, link, self._groups, counts, self._saves)
        self._orders = StepOrders()

    @property
    def how(self) -> str:
        """Which way bytes are copied, for people."""
        return "; ".join(sorted({copies.copier.how for copies in self._groups.values()}))

    # --- one step, in the order of vLLM's hooks --------------------------------------------------------

    def begin_step(self, orders: StepOrders) -> None:
        if self._orders:  # a step that ended early: an order that is lost would hold its blocks for ever
            self.start_loads()
            self.start_saves()
        self._orders = orders

    def start_loads(self) -> None:
        loads, self._orders = self._orders.loads, StepOrders((), self._orders.saves)
        for order in loads:
            self._restorer.start(order)

    def start_saves(self) -> None:
        """After the forward pass was launched. Called a second time it does nothing."""
        saves, self._orders = self._orders.saves, StepOrders(self._orders.loads, ())
        self._stager.start(saves)

    def end_step(self) -> tuple[set[str], dict[str, set[int]], RankReport]:
        """(requests whose load has ended, of these the failed ones with their blocks, what else has ended)"""
        self.start_loads()
        self.start_saves()
        ended, failed = self._restorer.take_ended()
        report = self._stager.take_ended()
        report.failed_loads |= failed.keys()
        return ended, failed, report

    def close(self) -> None:
        """Let running copies end, then say goodbye. Idempotent."""
        if not (self._saves.finish(FINISH_SECONDS) and self._loads.finish(FINISH_SECONDS)):
            _log.warning("OrbitKV: copies were still running at the end; the manager waits for this process.")
        self._link.close()
        for copies in self._groups.values():
            copies.copier.close()
