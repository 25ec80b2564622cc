"""Commands and facts as short phrases: what happened, to whom, how much. For the timeline.

`replay.wording.lines` gives every field; here the ones that a reader asks for first, in units that he reads.
"""

import re
from enum import IntEnum

import msgspec

from orbitkv.events.commands import QueryPart

_WORD = re.compile(r"(?<!^)(?=[A-Z])")
_COUNTED = {
    "pages": 4,
    "buffers": 4,
    "reads": 4,
    "slots": 4,
}
"""Packed columns that are told by how many they hold, and the bytes of one."""
_LEFT_OUT = frozenset(
    {
        "positions",
        "offsets",
        "staging_offsets",
        "generations",
        "generation",
        "incarnations",
        "footprints",
        "spaces",
        "scopes",
        "outcomes",
        "namespace_digest",
        "namespace_document",
        "config",
        "groups",
        "body",
        "at_unix_ns",
        "monotonic_ns",
        "uid",
        "quarantined",
    }
)
_NAMED = frozenset(
    {"session", "process", "instance", "lease", "rank", "superblock", "segment", "incarnation"}
)
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


def phrase(struct: msgspec.Struct, at_ns: int) -> str:
    """E.g. "query opened: op 3.1, request 'a', 256 pages asked, 2.2 GiB charge"."""
    kind = name_of(struct)
    told = [
        words
        for name in struct.__struct_fields__
        if name not in _LEFT_OUT and (words := _field(name, getattr(struct, name), at_ns))
    ]
    return f"{kind}: {', '.join(told)}" if told else kind


def name_of(struct: msgspec.Struct) -> str:
    """E.g. "query opened"."""
    return _WORD.sub(" ", type(struct).__name__).lower()


def size_text(size_bytes: int) -> str:
    size, unit = float(size_bytes), 0
    while size >= 1024 and unit < len(_SIZES) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_SIZES[unit]}" if unit else f"{size_bytes} B"


def _field(name: str, value: object, at_ns: int) -> str:
    match value:
        case bytes():
            count = len(value) // _COUNTED[name] if name in _COUNTED else 0
            return f"{count} {name if count != 1 else name[:-1]}" if count else ""
        case bool():
            return _spaced(name) if value else ""
        case IntEnum():
            return _spaced(value.name.lower())
        case int():
            return _number(name, value, at_ns)
        case str():
            return f"{_spaced(name)} {value!r}" if value else ""
        case tuple():
            return _several(name, value)
        case _:
            return ""


def _number(name: str, value: int, at_ns: int) -> str:
    if name == "operation":
        return f"op {value >> 32}.{value & 0xFFFF_FFFF}" if value else ""
    if name in _NAMED:
        return f"{name} {value}"
    if not value:
        return ""
    unit = name.rsplit("_", 1)[-1]
    match unit:
        case "bytes":
            return f"{size_text(value)} {_spaced(name[:-6])}".strip()
        case "us":
            return f"{value / 1000:.1f} ms {_spaced(name[:-3])}"
        case "ns":
            return f"{_spaced(name[:-3])} in {(value - at_ns) / 1e9:.3f} s"
        case "pages":
            return f"{value} pages {_spaced(name[:-6])}" if value != 0xFFFF_FFFF else ""
        case _:
            return f"{_spaced(name)} {value}"


def _several(name: str, values: tuple[object, ...]) -> str:
    if not values:
        return ""
    if isinstance(values[0], QueryPart):
        count = sum(len(part.pages) // 4 for part in values if isinstance(part, QueryPart))
        return f"{count} pages"
    if name == "ranges":
        return f"pages in {len(values)} ranges"
    if name == "reach":
        return f"reach {'+'.join(map(str, values))} pages"
    if name in ("keys", "unknown"):
        return f"{len(values)} {'new keys' if name == 'keys' else 'unknown keys'}"
    return ""


def _spaced(name: str) -> str:
    return name.replace("_", " ")
