"""What the connector counts between two looks of vLLM's statistics: names, meanings, and a place to add.

Hits by tier, bytes read and the ledgers of hints are the manager's to tell; these are what only the engine
sees. vLLM is not imported; `stats` hands them on in its form.
"""

import threading
from typing import Final

NAMES: Final = {
    "lookups": "Lookups sent to the manager.",
    "lookup_hit_tokens": "Prompt tokens that lookups found and the scheduler took.",
    "lookups_unanswered": "Lookups that the manager did not answer: taken as misses.",
    "lookups_cancelled": "Lookups withdrawn before they were used.",
    "hints_sent": "Queued requests of which the manager was told what GPU memory misses.",
    "hints_unsent": "Hints that were due and could not be sent.",
    "loads": "Restores of one rank that ended well.",
    "load_failures": "Restores of one rank that failed: their blocks are computed instead.",
    "load_bytes": "Bytes copied from the manager's pool into KV blocks.",
    "load_us": "Time that these copies took, the beginning of the restore included.",
    "saved_pages": "Pages of which a rank handed its slices to the manager.",
    "save_bytes": "Bytes of these slices.",
    "known_pages": "Pages that the manager had already, or was being given by another request.",
    "unsaved_pages": "Pages not saved: no manager, no staging space, or too many blocks held.",
}
"""Name -> what it counts. All of them only rise."""


class Counts:
    """May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, int] = {}

    def add(self, **amounts: int) -> None:
        with self._lock:
            for name, amount in amounts.items():
                assert name in NAMES, name
                if amount:
                    self._values[name] = self._values.get(name, 0) + amount

    def take(self) -> dict[str, int]:
        """What was added since last time; empty when nothing was."""
        with self._lock:
            values, self._values = self._values, {}
        return values
