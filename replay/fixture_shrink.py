"""Makes a script smaller while something still holds: commands are left out, then keys of what is left.

Halves first, then quarters, down to single commands, from the end to the beginning, again and again until
nothing can be left out any more. No randomness: same script and same condition, same result. A shorter
script is another story; that the condition holds in it is all that is promised.
"""

import importlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import attrs

from orbitkv.events.frame import LOG_ID_BYTES, SegmentHeader
from orbitkv.events.record import Record
from orbitkv.manager.kernel import KERNEL_REVISION, new_state, snapshot
from replay.fixture_log import Piece, write_pieces
from replay.fixture_story import Telling, tell
from replay.fixture_wishes import Fields, ScriptError, Wish, only_of
from replay.wording.lines import struct_text

Condition: TypeAlias = Callable[[Telling], bool]
Told: TypeAlias = Callable[[int, int], None]
"""Is told how many commands are left, and how many tellings there were."""


class ConditionError(ValueError):
    """No such condition; says what there is."""


def condition(text: str) -> Condition:
    """`FACT [field=value ...]`, `broken`, `audit[:INVARIANT]`, `call:MODULE:FUNCTION`. Or ConditionError."""
    first, *rest = text.split()
    if first == "broken":
        return lambda telling: bool(telling.broken)
    if first == "audit" or first.startswith("audit:"):
        return _audit(first.partition(":")[2])
    if first.startswith("call:"):
        return _call(first)
    if not first[0].isupper() or any("=" not in word for word in rest):
        raise ConditionError(
            f"{text!r} is no condition; write a fact with fields if wished (HintSkipped reason=foreground), "
            "broken, audit, audit:INVARIANT or call:MODULE:FUNCTION"
        )
    wanted = set(rest)
    return lambda telling: any(_happens(record, first, wanted) for record in telling.records)


def _happens(record: Record, fact: str, wanted: set[str]) -> bool:
    return any(
        type(event).__name__ == fact and wanted <= set(struct_text(event).split()[1:])
        for event in record.events
    )


def _call(text: str) -> Condition:
    """A function of somebody's own: records in, whether it holds out."""
    _, module, name = text.split(":")
    try:
        function: Callable[[list[Record]], bool] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConditionError(f"{text!r} cannot be called: {error}") from error
    return lambda telling: bool(function(telling.records))


def _audit(invariant: str) -> Condition:
    """The audit finds a contradiction (of this invariant)."""
    from replay.auditor import audit_log  # DuckDB is an extra, and loads slowly

    def breaks(telling: Telling) -> bool:
        if not telling.records:
            return False
        with tempfile.TemporaryDirectory() as directory:
            write_records(Path(directory) / "log", telling.records)
            verdicts = audit_log(Path(directory) / "log").verdicts
        return any(found.count for found in verdicts if invariant in ("", found.invariant))

    return breaks


def write_records(directory: Path, records: list[Record]) -> None:
    """The records of a telling as a log."""
    header = SegmentHeader(
        log_id=bytes(LOG_ID_BYTES),
        incarnation=1,
        number=1,
        first_seq=1,
        wall_offset_ns=0,
        kernel_revision=KERNEL_REVISION,
        previous_checksum=0,
    )
    write_pieces(directory, [Piece(header, snapshot(new_state()), records)])


def shrink(wishes: Sequence[Wish], holds: Condition, told: Told | None = None) -> list[Wish]:
    """The condition must hold for the whole. Raises ConditionError if it does not."""
    shrinker = _Shrinker(holds, told)
    if not shrinker.still(wishes):
        raise ConditionError("the condition does not hold for the whole script, so there is nothing to keep")
    return shrinker.shrink(list(wishes))


@attrs.define
class _Shrinker:
    holds: Condition
    told: Told | None
    tries: int = 0

    def still(self, wishes: Sequence[Wish]) -> bool:
        self.tries += 1
        if self.told is not None:
            self.told(len(wishes), self.tries)
        try:
            return self.holds(tell(wishes))
        except ScriptError:
            return False

    def shrink(self, wishes: list[Wish]) -> list[Wish]:
        while True:
            before = wishes
            size = max(1, len(wishes) // 2)
            while size:
                wishes = self._without(wishes, size)
                size //= 2
            wishes = self._with_fewer_keys(wishes)
            if wishes == before:
                return wishes

    def _without(self, wishes: list[Wish], size: int) -> list[Wish]:
        """Runs of so many wishes left out, where that does no harm."""
        end = len(wishes)
        while end > 0:
            start = max(0, end - size)
            shorter = wishes[:start] + wishes[end:]
            if self.still(shorter):
                wishes = shorter
            end = start
        return wishes

    def _with_fewer_keys(self, wishes: list[Wish]) -> list[Wish]:
        """Queries, hints, saves and recovery of fewer pages: single keys left out, the last first."""
        for place in range(len(wishes)):
            for path, count in _key_lists(wishes[place]):
                for index in reversed(range(count)):
                    fields = _without_key(wishes[place].fields, path, index)
                    thinner = attrs.evolve(wishes[place], fields=fields)
                    shorter = [*wishes[:place], thinner, *wishes[place + 1 :]]
                    if self.still(shorter):
                        wishes = shorter
        return wishes


def _key_lists(wish: Wish) -> list[tuple[int, int]]:
    """(part, keys) of every list of keys that may be cut; part -1: the wish's own."""
    if wish.kind in ("BeginSave", "RecoverSegment"):
        return [(-1, len(wish.fields["keys"]))]
    return [(part, len(told["keys"])) for part, told in enumerate(wish.fields.get("parts", ()))]


def _without_key(fields: Fields, part: int, index: int) -> Fields:
    if part < 0:
        left = [key for place, key in enumerate(fields["keys"]) if place != index]
        return only_of(Wish(0, "", fields), set(left)).fields
    parts = [dict(told) for told in fields["parts"]]
    parts[part]["keys"] = _without_item(parts[part]["keys"], index)
    return {**fields, "parts": parts}


def _without_item(items: list[str], index: int) -> list[str]:
    return items[:index] + items[index + 1 :]
