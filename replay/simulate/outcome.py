"""What a simulated run came to: counts, the trouble that struck, how things ended, the last lines.

`Tally` counts facts as they come; it reads no state. Reports and JSON are made of `Outcome` alone.
"""

from collections import Counter, deque
from enum import IntEnum
from typing import Any

import attrs
from rich.table import Table

from orbitkv.events import facts
from orbitkv.events.outcomes import (
    EvictionReason,
    HintEnd,
    HintSkip,
    LeaseEnd,
    QueryEnd,
    Refusal,
    SaveDrop,
    SessionEnd,
    Share,
    SlotEnd,
    Unused,
    WriteDrop,
)
from orbitkv.events.record import Record
from replay.wording.lines import record_line

TAIL_RECORDS = 20

_ENDS: dict[type, tuple[str, type[IntEnum]]] = {
    facts.QueryEnded: ("end", QueryEnd),
    facts.LeaseEnded: ("end", LeaseEnd),
    facts.ShareEnded: ("share", Share),
    facts.HintSkipped: ("reason", HintSkip),
    facts.HintEnded: ("end", HintEnd),
    facts.PagesUnused: ("cause", Unused),
    facts.PagesEvicted: ("reason", EvictionReason),
    facts.SavesDropped: ("reason", SaveDrop),
    facts.WritesDropped: ("reason", WriteDrop),
    facts.SlotsFreed: ("end", SlotEnd),
    facts.SessionClosed: ("cause", SessionEnd),
}
"""Facts that say how something ended, the field that says it, and its words."""
_UNREACHABLE: dict[type, frozenset[str]] = {
    Share: frozenset({"open", "restoring"}),
    SaveDrop: frozenset({"degraded"}),
    Refusal: frozenset({"degraded"}),
}
"""Words that no fact can hold: they name a beginning, or something that only the wire says."""


@attrs.define
class Outcome:
    """A run's sum."""

    seed: int
    steps: int = 0
    records: int = 0
    refused: int = 0
    answers: int = 0
    incarnations: int = 1
    digest: int = 0
    faults: dict[str, int] = attrs.Factory(dict)
    """Kind of trouble -> how often it struck."""
    facts: dict[str, int] = attrs.Factory(dict)
    outcomes: dict[str, dict[str, int]] = attrs.Factory(dict)
    """What ended -> how -> how often; ends that never came are there with 0."""
    tail: tuple[str, ...] = ()
    """The last records, a line each."""


class Tally:
    """Counts as records come."""

    def __init__(self) -> None:
        self.facts: Counter[type] = Counter()
        self.ends: Counter[tuple[type, int]] = Counter()
        self.refusals: Counter[Refusal] = Counter()
        self.last: deque[Record] = deque(maxlen=TAIL_RECORDS)

    def add(self, record: Record) -> None:
        counts = self.facts
        for event in record.events:
            kind = type(event)
            counts[kind] += 1
            if kind in _ENDS:
                self.ends[kind, getattr(event, _ENDS[kind][0])] += 1
        self.last.append(record)

    def told(self) -> dict[str, Any]:
        """The fields of an `Outcome` that come from here."""
        outcomes = {kind.__name__: _words(words, self._of(kind)) for kind, (_, words) in _ENDS.items()}
        outcomes["Refused"] = _words(Refusal, self.refusals)
        named = {kind.__name__: count for kind, count in self.facts.items()}
        return {
            "facts": dict(sorted(named.items())),
            "outcomes": outcomes,
            "tail": tuple(record_line(record) for record in self.last),
        }

    def _of(self, kind: type) -> Counter[int]:
        return Counter({number: count for (told, number), count in self.ends.items() if told is kind})


def _words(words: type[IntEnum], counts: Counter[Any]) -> dict[str, int]:
    never = _UNREACHABLE.get(words, frozenset())
    return {word.name.lower(): counts[word] for word in words if word.name.lower() not in never}


def outcome_table(outcome: Outcome) -> Table:
    """Ends that were reached, a row for each kind, and those that were not."""
    made = Table(title="outcomes reached", title_justify="left")
    for column in ("fact", "reached", "how often", "not reached"):
        made.add_column(column, overflow="fold")
    for fact, counts in outcome.outcomes.items():
        reached = {word: count for word, count in counts.items() if count}
        told = ", ".join(f"{word} {count:,}" for word, count in reached.items())
        missed = ", ".join(word for word in counts if word not in reached)
        made.add_row(fact, f"{len(reached)} of {len(counts)}", told, missed)
    return made


def fault_table(outcome: Outcome, chances: dict[str, float]) -> Table:
    """Trouble that was switched on, with its chance and how often it struck."""
    made = Table(title="faults injected", title_justify="left")
    for column in ("kind", "chance", "struck"):
        made.add_column(column, justify="left" if column == "kind" else "right")
    for kind, chance in chances.items():
        made.add_row(kind, f"{chance:.4g}", f"{outcome.faults.get(kind, 0):,}")
    return made
