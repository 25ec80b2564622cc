"""Finds the troubles that nobody reports: looks at log, store and processes, and tells health.

Whoever meets a trouble in its own work (the pool, the SSD's flushes) tells health itself.
Reads only; what follows from a trouble is decided elsewhere.
"""

import attrs

from orbitkv.manager.kernel.state import State
from orbitkv.manager.kernel.views import unknown_holders
from orbitkv.manager.shell.admission import Admission
from orbitkv.manager.shell.health import Health

TOLD_MAX = 8
"""Processes that are named."""


@attrs.define(slots=True)
class Watch:
    state: State
    admission: Admission
    health: Health
    _ssd_trouble: str = attrs.field(default="", init=False)
    _written_bytes: int = attrs.field(default=0, init=False)
    """When the store was last seen to refuse writes."""

    def look(self) -> None:
        self.health.tell("log", self._log())
        self.health.tell("log_size", self._log_size())
        self.health.tell("ssd", self._ssd())
        self.health.tell("processes", self._processes())

    def _log(self) -> str:
        stopped = self.admission.stopped
        return f"queries are answered as misses and saves dropped: {stopped}" if stopped else ""

    def _log_size(self) -> str:
        trouble = self.admission.journal.housekeeping_trouble
        return f"the log may grow beyond log_bytes_max: {trouble}" if trouble else ""

    def _ssd(self) -> str:
        """A store that is tried again counts as well only once it has taken a page: the try may fail."""
        state = self.state
        if not state.store_writable:
            self._ssd_trouble = (
                f"pages are saved in DRAM only, those on the SSD are still read: {state.store_reason}"
            )
            self._written_bytes = state.totals.write_bytes
        elif state.totals.write_bytes > self._written_bytes:
            self._ssd_trouble = ""
        return self._ssd_trouble

    def _processes(self) -> str:
        holders = unknown_holders(self.state)
        if not holders:
            return ""
        named = ", ".join(
            f"{number} (pid {self.state.processes[number].pid})" for number in holders[:TOLD_MAX]
        )
        more = f" and {len(holders) - TOLD_MAX} more" if len(holders) > TOLD_MAX else ""
        return (
            f"process {named}{more} left while copying and this host cannot tell whether it still runs, so "
            "its pages stay held: when it is gone, say so with `orbitkv admin release-process`"
        )
