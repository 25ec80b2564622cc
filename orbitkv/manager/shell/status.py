"""How the manager is, as one JSON document: for `/health` and `orbitkv admin status`.

Read from the state when somebody asks; nothing is kept for it.
"""

import json
from typing import Any

import attrs

from orbitkv.manager.kernel.effects import outstanding
from orbitkv.manager.kernel.state import State
from orbitkv.manager.ports import Clock, Journal, StoreInfo
from orbitkv.manager.shell.admission import Admission
from orbitkv.manager.shell.health import Health

SHOWN_MAX = 64
"""The document must fit one message of the channel."""


def ssd_pages(state: State) -> int:
    """Pages that can be found on the SSD."""
    return sum(segment.written_count() for segment in state.slots.segments.values())


@attrs.frozen(slots=True)
class StatusReader:
    version: str
    socket_path: str
    state: State
    health: Health
    journal: Journal
    admission: Admission
    store: StoreInfo
    clock: Clock
    started_ns: int

    def document(self) -> dict[str, Any]:
        state = self.state
        return {
            "status": self.health.status,
            "serving": self.health.serving,
            "version": self.version,
            "incarnation": state.incarnation,
            "uptime_s": (self.clock.monotonic_ns() - self.started_ns) // 1_000_000_000,
            "socket": self.socket_path,
            "degradations": self.health.degradations,
            "io": {"engine": self.store.engine, "direct": self.store.direct, "reason": self.store.reason},
            "ssd": {
                "writable": state.store_writable,
                "reason": state.store_reason,
                "pages": ssd_pages(state),
                "quarantined": state.slots.quarantined_count(),
            },
            "log": {
                "records": state.seq,
                "lag_bytes": self.journal.lag_bytes,
                "trouble": self.journal.trouble,
                "unlogged_queries": self.admission.unlogged_queries,
                "unlogged_save_pages": self.admission.unlogged_save_pages,
                "unlogged_hints": self.admission.unlogged_hints,
            },
            "refused_hints": {
                reason.name.lower(): count for reason, count in self.admission.refused_hints.items()
            },
            "sessions": len(state.sessions),
            "instances": [
                {"name": one.name, "ranks": sorted(one.ranks), "sealed": one.sealed}
                for one in list(state.instances.values())[:SHOWN_MAX]
            ],
            "processes": [
                {
                    "process": number,
                    "pid": process.pid,
                    "sessions": len(process.sessions),
                    "copies_held": process.copies,
                    "end_observable": process.end_observable,
                }
                for number, process in list(state.processes.items())[:SHOWN_MAX]
            ],
            "outstanding": attrs.asdict(outstanding(state)),
            "state": repr(state),
        }

    def json(self) -> str:
        return json.dumps(self.document(), indent=2)
