"""What stands behind the engine, as the serving process sees it: a manager to ask and to drain, or none.

Everything is read from the manager's own metrics and status; nothing is counted here.
"""

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

import attrs

from benches.common import give_up
from benches.single_node.plan import Places
from orbitkv.adapters.operator import OperatorClient

LOOK_S: Final = 0.01
DRAIN_S: Final = 300.0
PREFIX: Final = "orbitkv_"
DRAINED: Final = (
    "query_reserved_bytes",
    "ssd_inflight_bytes",
    "ssd_write_queue_pages",
    "saves_unsealed_pages",
)
"""Families whose every sample is 0 when nothing is under way."""


@attrs.frozen
class Figures:
    """One scrape: sample, with its labels, -> value."""

    samples: dict[str, float]

    def sum_of(self, family: str) -> float:
        return sum(value for name, value in self.samples.items() if name.partition("{")[0] == family)

    def of(self, name: str) -> float:
        return self.samples.get(name, 0.0)

    def tiers(self) -> dict[str, int]:
        name = 'cache_tier_page_requests_total{{kind="demand",tier="{}"}}'
        return {tier: int(self.of(name.format(tier))) for tier in ("dram", "ssd", "miss")}


class Backing:
    """Without a manager: there is nothing to ask, and nothing to wait for."""

    has_ssd = False

    def figures(self) -> Figures:
        return Figures({})

    def drain(self) -> None:
        """Wait until no reservation, no SSD operation, no save and no copy is left."""

    def drop_dram(self) -> None:
        pass


class ManagerBacking(Backing):
    has_ssd = True

    def __init__(self, operator: OperatorClient, metrics_url: str) -> None:
        self._operator = operator
        self._url = f"{metrics_url}/metrics"

    def figures(self) -> Figures:
        with urllib.request.urlopen(self._url, timeout=DRAIN_S) as response:
            lines = response.read().decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if line.startswith(PREFIX))
        return Figures({name.removeprefix(PREFIX): float(value) for name, _, value in samples})

    def drain(self) -> None:
        deadline = time.monotonic() + DRAIN_S
        while not self._drained():
            if time.monotonic() > deadline:
                give_up(
                    f"The manager has not drained in {DRAIN_S:.0f} s",
                    f"Left are {self._operator.status()}",
                    "Keep its log and report it",
                )
            time.sleep(LOOK_S)

    def _drained(self) -> bool:
        figures = self.figures()
        outstanding: dict[str, int] = json.loads(self._operator.status())["outstanding"]
        return not any(outstanding.values()) and not any(figures.sum_of(family) for family in DRAINED)

    def drop_dram(self) -> None:
        self._operator.drop_dram()


@contextmanager
def backing_of(places: Places) -> Iterator[Backing]:
    if not places.socket:
        yield Backing()
        return
    with closing(OperatorClient(places.socket)) as operator:
        yield ManagerBacking(operator, places.metrics_url)
