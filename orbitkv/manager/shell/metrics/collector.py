"""What a `prometheus_client.CollectorRegistry` takes.

It runs in the loop's thread between two batches, so one scrape sees one state. Must not change it.
"""

from collections.abc import Iterator

import attrs
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from orbitkv.manager.kernel.state import State
from orbitkv.manager.ports import Journal, StoreInfo
from orbitkv.manager.shell.admission import Admission
from orbitkv.manager.shell.metrics import devices, memory, queries, warmup


@attrs.frozen(eq=False)
class ManagerMetrics(Collector):
    """Register with a `prometheus_client.CollectorRegistry`."""

    state: State
    journal: Journal
    admission: Admission
    """Counts what is turned away and leaves no record."""
    store: StoreInfo
    """What drives the SSD, with engine `none` where there is none."""

    def collect(self) -> Iterator[Metric]:
        yield from memory.pool(self.state)
        yield from memory.cache(self.state)
        yield from queries.budget(self.state)
        yield from queries.decisions(self.state)
        yield from queries.who_asks(self.state)
        yield from warmup.hints(self.state, self.admission)
        yield from warmup.cohort(self.state)
        yield from devices.transfers(self.state, self.admission)
        yield from devices.ssd(self.state, self.store)
        yield from devices.log(self.state, self.journal, self.admission)

    def describe(self) -> list[Metric]:
        """Nothing, so that registering does not read a state that is not there yet."""
        return []
