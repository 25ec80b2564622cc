"""Commands with names instead of numbers (`Wish`): of a log's record, as text, and as a command again.

    > +0.25s SubmitQuery session=1 request="r-4" ... parts=[{"group":0,"page_tokens":64,...,"keys":["a","b"]}]

One wish a line: the seconds since the one before, the command's name, its fields as JSON. Everything that a
command says is in it, so that it can be read, written and changed by hand. It decides nothing.
"""

import json
import re
from decimal import Decimal
from enum import IntEnum
from typing import Any, TypeAlias, get_args

import attrs
import msgspec

from orbitkv.events import commands
from orbitkv.events.commands import Command
from orbitkv.events.config import SECOND_NS, KernelConfig
from orbitkv.events.ids import NONE_U32
from orbitkv.events.outcomes import CopyOutcome, ReadOutcome, WriteOutcome
from orbitkv.events.record import Record
from replay.fixture_names import Names, key_name, numbers, operation_name

Fields: TypeAlias = dict[str, Any]
"""A command's fields as JSON holds them."""

KINDS: dict[str, type] = {kind.__name__: kind for kind in get_args(Command)}
_OUTCOMES: dict[type, type[IntEnum]] = {
    commands.CompleteReads: ReadOutcome,
    commands.CompleteWrites: WriteOutcome,
    commands.CompleteCopies: CopyOutcome,
}
_COUNTS = frozenset({"read_bytes", "elapsed_us"})
_LINE = re.compile(r"\+(?P<seconds>[0-9.]+)s (?P<kind>\w+)(?P<fields>.*)")
_FIELD = re.compile(r" (\w+)=")


class ScriptError(ValueError):
    """A line that is no wish; says which and what it should be."""


@attrs.frozen
class Wish:
    """One command of a script."""

    at_ns: int
    """From the script's beginning."""
    kind: str
    fields: Fields

    @property
    def keys(self) -> set[str]:
        """Page keys that it names, by name and without their space."""
        found: set[str] = set()
        for part in self.fields.get("parts", ()):
            found.update(part["keys"])
        for name in PAGE_COLUMNS:
            found.update(str(told).partition("@")[0] for told in self.fields.get(name, ()))
        return found


PAGE_COLUMNS = ("keys", "buffers", "reads", "slots")
"""Fields that name pages; every other list of such a wish runs in parallel to it."""


def only_of(wish: Wish, keys: set[str]) -> Wish:
    """What a save, a completion or a recovered segment says of these pages alone."""
    named = next((name for name in PAGE_COLUMNS if name in wish.fields), None)
    if named is None:
        return wish
    column = wish.fields[named]
    places = [place for place, told in enumerate(column) if told.partition("@")[0] in keys]
    thinned = {
        name: [value[place] for place in places]
        if isinstance(value, list) and name not in ("scopes", "quarantined")
        else value
        for name, value in wish.fields.items()
    }
    return attrs.evolve(wish, fields=thinned)


def wish_of(record: Record, names: Names, start_ns: int) -> Wish:
    """The record's cause. `names` knows what came before it."""
    return Wish(record.at_ns - start_ns, type(record.cause).__name__, _told(record.cause, names))


# --- text -----------------------------------------------------------------------------------------------


def wish_line(wish: Wish, before_ns: int) -> str:
    seconds = Decimal(wish.at_ns - before_ns) / SECOND_NS
    told = [f"{name}={json.dumps(value, separators=(',', ':'))}" for name, value in wish.fields.items()]
    return " ".join([f"+{seconds.normalize():f}s", wish.kind, *told])


def wish_from(line: str, before_ns: int) -> Wish:
    """Raises ScriptError."""
    found = _LINE.fullmatch(line)
    if found is None or found["kind"] not in KINDS:
        raise ScriptError(f"no wish: {line!r}; write `+SECONDSs COMMAND field=JSON ...`")
    fields: Fields = {}
    rest, decoder = found["fields"], json.JSONDecoder()
    while rest:
        name = _FIELD.match(rest)
        if name is None:
            raise ScriptError(f"no field begins at {rest[:40]!r} in {line!r}")
        try:
            fields[name[1]], end = decoder.raw_decode(rest, name.end())
        except json.JSONDecodeError as error:
            raise ScriptError(f"field {name[1]} of {line!r} is no JSON: {error}") from error
        rest = rest[end:]
    return Wish(before_ns + int(Decimal(found["seconds"]) * SECOND_NS), found["kind"], fields)


# --- from a command -------------------------------------------------------------------------------------


def _told(command: Command, names: Names) -> Fields:
    kind = type(command)
    told: Fields = {}
    for field in msgspec.structs.fields(kind):
        value = getattr(command, field.name)
        if field.default is msgspec.NODEFAULT or value != field.default or field.name == "unknown":
            told.update(_field(command, field.name, value, names))
    return told


def _field(command: Command, name: str, value: Any, names: Names) -> Fields:
    match command, name:
        case commands.RecoverSegment(), _:
            return {name: _recovered(name, value)}
        case _, "parts":
            return {name: [_part(part, names) for part in value]}
        case commands.BeginSave(), "pages":
            return {"keys": _keys(value, command.unknown, names)}
        case _, "unknown" | "generations":
            return {}  # told with the pages, or known from the buffers
        case _, "operation":
            return {name: operation_name(value)}
        case _, "lease":
            return {name: names.lease(value)}
        case commands.CommitSave() | commands.AbortSave(), "buffers":
            planned = zip(_wide(command.generations), numbers(value), strict=True)
            return {name: [names.generation(generation, buffer) for generation, buffer in planned]}
        case _, "buffers":
            return {name: [names.buffer(buffer) for buffer in numbers(value)]}
        case _, "reads":
            return {name: [names.reads.name(number) for number in numbers(value)]}
        case _, "slots":
            return {name: [names.slots.name(number) for number in numbers(value)]}
        case _, "outcomes":
            words = _OUTCOMES[type(command)]
            return {name: [words(number).name.lower() for number in value]}
        case _, "staging_offsets":
            return {name: _wide(value)}
        case _, _ if name in _COUNTS and isinstance(value, bytes):
            return {name: list(numbers(value))}
        case _:
            return {name: _plain(value)}


def _plain(value: Any) -> Any:
    """Numbers, words, structs and tuples of them as JSON holds them; digests in hexadecimal."""
    if isinstance(value, KernelConfig):
        defaults = msgspec.structs.fields(KernelConfig)
        return {each.name: told for each in defaults if (told := getattr(value, each.name)) != each.default}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, IntEnum):
        return value.name.lower()
    return msgspec.json.decode(msgspec.json.encode(value))


def _part(part: commands.QueryPart, names: Names) -> Fields:
    told = {"group": part.group, "page_tokens": part.page_tokens, "trailing": part.trailing}
    return {**told, "keys": _keys(part.pages, part.unknown, names)}


def _keys(pages: bytes, unknown: tuple[bytes, ...], names: Names) -> list[str]:
    fresh = iter(unknown)
    return [key_name(next(fresh) if page == NONE_U32 else names.key(page)) for page in numbers(pages)]


def _wide(column: bytes) -> list[int]:
    return [int.from_bytes(column[at : at + 8], "little") for at in range(0, len(column), 8)]


def _recovered(name: str, value: Any) -> Any:
    match name:
        case "keys":
            return [key_name(key) for key in value]
        case "scopes":
            return [[digest.hex(), group] for digest, group in value]
        case "generations":
            return _wide(value)
        case _:
            return list(numbers(value)) if isinstance(value, bytes) else value
