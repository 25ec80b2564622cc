"""Records as lines that a person reads: commands and facts by name, columns unpacked, words for numbers.

For transcripts, tails of timelines and messages. It decides nothing and reads no state.
"""

from collections.abc import Container
from enum import IntEnum

import msgspec
import numpy as np

from orbitkv.events import commands, facts
from orbitkv.events.ids import NONE_U32
from orbitkv.events.outcomes import CopyOutcome, ReadOutcome, WriteOutcome
from orbitkv.events.record import Record

_WIDE = frozenset({"offsets", "staging_offsets", "generations"})
_OUTCOMES: dict[type, type[IntEnum]] = {
    commands.CompleteReads: ReadOutcome,
    commands.CompleteWrites: WriteOutcome,
    commands.CompleteCopies: CopyOutcome,
    facts.ReadsFailed: ReadOutcome,
    facts.WritesFailed: WriteOutcome,
}


def key_text(key: bytes) -> str:
    """A page key: as text where it is printable ASCII, else its first 8 bytes in hexadecimal."""
    if key and all(0x20 < byte < 0x7F for byte in key):
        return key.decode("ascii")
    return key[:8].hex()


def struct_text(struct: msgspec.Struct, hidden: Container[str] = ()) -> str:
    """`Name field=value ...`, fields in their order, without those that are `hidden`."""
    kind = type(struct)
    told = [
        f"{field.name}={_value_text(kind, field.name, getattr(struct, field.name))}"
        for field in msgspec.structs.fields(kind)
        if field.name not in hidden
    ]
    return " ".join([kind.__name__, *told])


def _value_text(kind: type, name: str, value: object) -> str:
    match value:
        case IntEnum():
            return value.name.lower()
        case bytes() if name == "outcomes":
            words = _OUTCOMES[kind]
            return f"[{' '.join(word_of(words, number) for number in value)}]"
        case bytes() if name in ("namespace_digest", "scopes"):
            return value[:4].hex()
        case bytes():
            return _column_text(value, "<u8" if name in _WIDE else "<u4")
        case tuple():
            return f"({' '.join(_item_text(kind, name, item) for item in value)})"
        case msgspec.Struct():
            return f"<{struct_text(value)}>"
        case str():
            return repr(value)
        case _:
            return str(value)


def _item_text(kind: type, name: str, value: object) -> str:
    if isinstance(value, bytes) and name in ("keys", "unknown"):
        return key_text(value)
    return _value_text(kind, name, value)


def word_of(words: type[IntEnum], number: int) -> str:
    """A damaged log may hold a number that stands for nothing."""
    try:
        return words(number).name.lower()
    except ValueError:
        return str(number)


def _column_text(column: bytes, dtype: str) -> str:
    if len(column) % np.dtype(dtype).itemsize:
        return f"<{len(column)} bytes>"
    values = np.frombuffer(column, dtype).tolist()
    return f"[{' '.join('-' if value == NONE_U32 else str(value) for value in values)}]"


def record_line(record: Record) -> str:
    """One record in one line: seq, time, cause and the names of its facts with how often each came."""
    counts: dict[str, int] = {}
    for event in record.events:
        name = type(event).__name__
        counts[name] = counts.get(name, 0) + 1
    told = ", ".join(name if count == 1 else f"{name} x{count}" for name, count in counts.items())
    return f"{record.seq:8d} {record.at_ns / 1e9:12.3f} s  {type(record.cause).__name__} -> {told}"
