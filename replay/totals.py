"""A state's totals as plain JSON: what the log alone adds up to, in words instead of numbers.

For tools that quote a log's figures. They are fields of the state that only facts change; nothing is
counted here.
"""

from enum import IntEnum
from typing import Any

import attrs

from orbitkv.events.commands import Start
from orbitkv.events.outcomes import (
    EvictionReason,
    HintEnd,
    HintSkip,
    LeaseEnd,
    PageClass,
    QueryEnd,
    ReadOutcome,
    SaveDrop,
    Unused,
    WriteDrop,
)
from orbitkv.manager.kernel import State

_WORDS: dict[str, type[IntEnum]] = {
    "query_ends": QueryEnd,
    "lease_ends": LeaseEnd,
    "read_failures": ReadOutcome,
    "write_drops": WriteDrop,
    "save_drops": SaveDrop,
    "hint_skips": HintSkip,
    "hint_ends": HintEnd,
    "unused_bytes": Unused,
    "residence_us": EvictionReason,
}


def totals_of(state: State) -> dict[str, Any]:
    """Numbers, and dicts of numbers by reason; evictions by class and reason.

    One of them falls too: `pending_bytes`, which with restored and unused ones makes the prepared bytes.
    """
    plain: dict[str, Any] = attrs.asdict(state.totals, recurse=False)
    for name, kinds in _WORDS.items():
        plain[name] = {kinds(number).name.lower(): count for number, count in plain[name].items()}
    plain["evictions"] = {
        f"{PageClass(page_class).name.lower()} {EvictionReason(reason).name.lower()}": count
        for (page_class, reason), count in plain["evictions"].items()
    }
    plain["pending_bytes"] = state.pending_bytes
    return plain


def store_of(start: Start) -> dict[str, Any]:
    """What drove the SSD, and why."""
    return {"engine": start.io_engine, "direct": start.io_direct, "reason": start.io_reason}
