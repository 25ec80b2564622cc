"""How a broken rule is told: which rule, what was found, and the last records that led to it."""

from collections import deque

import attrs
import msgspec

from orbitkv.events.record import Record
from tests.models.columns import numbers

_WIDE_OR_OPAQUE = {"offsets", "staging_offsets", "generations", "outcomes", "namespace_digest"}


class BrokenRuleError(AssertionError):
    """A rule of the contract does not hold for the facts seen."""


def require(holds: object, rule: str, **found: object) -> None:
    """Raises BrokenRuleError with the rule in words and what was found, unless it holds."""
    if not holds:
        details = ", ".join(f"{name}={value!r}" for name, value in found.items())
        raise BrokenRuleError(f"{rule} ({details})" if details else rule)


def told(struct: object) -> str:
    """One command or fact as a short line."""
    parts = []
    for field in msgspec.structs.fields(type(struct)):  # type: ignore[arg-type]  # any struct of the vocabulary
        value = getattr(struct, field.name)
        if isinstance(value, bytes) and field.name not in _WIDE_OR_OPAQUE and len(value) % 4 == 0:
            value = numbers(value)
        elif isinstance(value, bytes):
            value = value.hex()
        parts.append(f"{field.name}={value!r}")
    return f"{type(struct).__name__}({', '.join(parts)})"


@attrs.define
class Story:
    """The last records, to be read by a person when a rule is broken."""

    records: deque[Record] = attrs.Factory(lambda: deque(maxlen=12))

    def __str__(self) -> str:
        lines = []
        for record in self.records:
            lines.append(f"{record.seq:6d}  {record.at_ns / 1e9:10.3f} s  {told(record.cause)[:400]}")
            lines += [f"{'':22}{told(event)[:400]}" for event in record.events]
        return "\n".join(lines)
