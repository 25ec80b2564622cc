"""What happened in a window of time, from the manager's log alone: differences of totals, and peaks.

Peaks are over every record of the window, so nothing between two samples is missed. The ledger of
prepared pages is checked at every record; a window that does not balance is no window.
"""

from pathlib import Path
from typing import Any

import attrs

from orbitkv.events.commands import Start
from orbitkv.events.facts import AllocationFailed, HintAdmitted
from orbitkv.events.outcomes import HintSkip, Phase
from orbitkv.events.record import Record
from orbitkv.manager import kernel
from orbitkv.manager.kernel import State
from replay.fold import Folder, walk
from replay.log import Log, LogFrame
from replay.totals import totals_of

MIB = 1 << 20
KIB_US_PER_MIB_S = 1024 * 1_000_000


class WrongWindow(Exception):
    """The log does not add up."""


@attrs.define
class Watch(Folder):
    """Follows a log, and notes the totals at both ends of a window and the peaks in between."""

    start_ns: int
    end_ns: int
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    peaks: dict[str, int] = attrs.Factory(dict)
    store: Start | None = None
    no_room: dict[int, None] = attrs.Factory(dict)
    """Hints of the window for which reclaim found no room."""
    _hints: dict[int, None] = attrs.Factory(dict)

    def advance(self, state: State, frame: LogFrame) -> None:
        for record in frame.records:
            if self.before is None and record.at_ns >= self.start_ns:
                self.before = totals_of(state)
            if self.after is None and record.at_ns > self.end_ns:
                self.after = totals_of(state)
            kernel.fold(state, record)
            self._look(state, record)

    def _look(self, state: State, record: Record) -> None:
        if isinstance(record.cause, Start):
            self.store = record.cause
        totals = state.totals
        outcomes = totals.restored_bytes + sum(totals.unused_bytes.values()) + state.pending_bytes
        if totals.prepared_bytes != outcomes:
            raise WrongWindow(
                f"record {record.seq}: {totals.prepared_bytes} prepared bytes, {outcomes} accounted for"
            )
        if self.before is None or self.after is not None:
            return
        self._peak("pending", state.pending_bytes)
        self._peak("reserved", state.reserved_bytes)
        for phase in Phase:
            self._peak(phase.name.lower(), state.reserved_by_phase[phase])
        for event in record.events:
            if isinstance(event, HintAdmitted):
                self._hints[event.operation] = None
            elif isinstance(event, AllocationFailed) and event.operation in self._hints:
                self.no_room[event.operation] = None

    def _peak(self, name: str, value: int) -> None:
        self.peaks[name] = max(self.peaks.get(name, 0), value)


def watch(log_path: Path, start_ns: int, end_ns: int) -> Watch:
    """Raises WrongWindow."""
    seen = Watch(start_ns, end_ns)
    report = walk(Log.open(log_path), seen)
    if report.difference is not None:
        raise WrongWindow(str(report.difference))
    if seen.before is None or seen.after is None or seen.store is None:
        raise WrongWindow("the log does not cover the window")
    return seen


def figures_of(seen: Watch, requests: int) -> dict[str, float]:
    """Of the window; MiB, seconds, counts. `requests`: those that were served in it."""
    assert seen.before is not None and seen.after is not None
    before, after = seen.before, seen.after

    def grown(name: str) -> int:
        grown: int = after[name] - before[name]
        return grown

    read, loaded = grown("read_bytes"), grown("load_bytes")
    prepared, restored = grown("prepared_bytes"), grown("restored_bytes")
    unused = sum(after["unused_bytes"].values()) - sum(before["unused_bytes"].values())
    figures = {
        "ssd_mib_per_request": read / MIB / max(1, requests),
        "ssd_read_mib": read / MIB,
        "restored_to_gpu_mib": loaded / MIB,
        "amplification": _share(read, loaded),
        "prepared_mib": prepared / MIB,
        "restored_mib": restored / MIB,
        "unused_mib": unused / MIB,
        "pending_start_mib": before["pending_bytes"] / MIB,
        "pending_end_mib": after["pending_bytes"] / MIB,
        "restored_share": _share(restored, prepared),
        "residency_restored_s": _share(grown("restored_wait_kib_us") / KIB_US_PER_MIB_S, restored / MIB),
        "residency_unused_s": _share(grown("unused_wait_kib_us") / KIB_US_PER_MIB_S, unused / MIB),
        "hints_admitted": grown("hints_admitted"),
        "hints_not_needed": grown("hints_not_needed"),
        "hints_no_room": len(seen.no_room),
        "dram_pages": grown("dram_pages"),
        "ssd_pages": grown("ssd_pages"),
        "miss_pages": grown("miss_pages"),
        "read_failures": _sum(after["read_failures"]) - _sum(before["read_failures"]),
    }
    for reason in HintSkip:
        name = reason.name.lower()
        figures[f"skips_{name}"] = after["hint_skips"].get(name, 0) - before["hint_skips"].get(name, 0)
    figures |= {f"peak_{name}_mib": peak / MIB for name, peak in seen.peaks.items()}
    return figures


def _sum(by_reason: dict[str, int]) -> int:
    return sum(by_reason.values())


def _share(part: float, whole: float) -> float:
    """Not a number where there is no whole: nothing was prepared, or nothing restored."""
    return part / whole if whole else float("nan")
