"""The shapes of commands, facts and all that stands in them as plain data; and what it means that they grow.

A log holds arrays without field names and unions by integer tag, so tags, the order of fields and their
types are the format. New fields go last and have defaults; words of a closed set keep their numbers.
"""

import types
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from orbitkv.events import outcomes
from orbitkv.events.codec import FORMAT_VERSION
from orbitkv.events.commands import Command
from orbitkv.events.facts import Event
from orbitkv.events.record import Record

Schema = dict[str, Any]


def current() -> Schema:
    """The schema of the vocabulary as it is now."""
    found: dict[str, type] = {}
    for kind in (Record, *get_args(Command), *get_args(Event)):
        _collect(kind, found)
    words = {name: kind for name, kind in vars(outcomes).items() if _is_words(kind)}
    return {
        "format_version": FORMAT_VERSION,
        "commands": _tags(Command),
        "facts": _tags(Event),
        "structs": {name: _shape(kind) for name, kind in sorted(found.items())},
        "words": {name: {word.name: word.value for word in kind} for name, kind in sorted(words.items())},
    }


def _is_words(kind: object) -> bool:
    """A closed set of words whose numbers stand in logs. Refusals are answers, and stand in none."""
    return isinstance(kind, type) and issubclass(kind, IntEnum) and kind not in (IntEnum, outcomes.Refusal)


def _collect(kind: type, found: dict[str, type]) -> None:
    if kind.__name__ in found:
        return
    found[kind.__name__] = kind
    for hint in get_type_hints(kind).values():
        for part in _parts(hint):
            if isinstance(part, type) and issubclass(part, msgspec.Struct):
                _collect(part, found)


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for argument in get_args(hint):
        yield from _parts(argument)


def _tags(union: Any) -> dict[str, int]:
    tags = {kind.__name__: kind.__struct_config__.tag for kind in get_args(union)}
    return dict(sorted(tags.items(), key=lambda item: item[1]))


def _shape(kind: type) -> dict[str, Any]:
    config = kind.__struct_config__
    return {
        "array": config.array_like,
        "fields": [_field(field) for field in msgspec.structs.fields(kind)],
    }


def _field(field: Any) -> list[Any]:
    """[name, type] or [name, type, default]."""
    told = [field.encode_name, _type_text(field.type)]
    if field.default is not msgspec.NODEFAULT:
        told.append(repr(field.default))
    elif field.default_factory is not msgspec.NODEFAULT:
        told.append(f"{field.default_factory.__name__}()")
    return told


def _type_text(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return "Command" if set(arguments) == set(get_args(Command)) else "Event"
    if origin is not None:
        told = ", ".join("..." if argument is Ellipsis else _type_text(argument) for argument in arguments)
        return f"{origin.__name__}[{told}]"
    return hint.__name__ if isinstance(hint, type) else str(hint)


def breaks(recorded: Schema, now: Schema) -> list[str]:
    """What of the recorded schema is not there any more, or is something else; empty if it only grew."""
    found = []
    if now["format_version"] < recorded["format_version"]:
        found.append("the format version fell")
    for union in ("commands", "facts"):
        for name, tag in recorded[union].items():
            if now[union].get(name) != tag:
                found.append(f"{name} had tag {tag}, has {now[union].get(name)}")
        reused = {tag for name, tag in now[union].items() if recorded[union].get(name) != tag} & set(
            recorded[union].values()
        )
        found += [f"tag {tag} of {union} means something else" for tag in sorted(reused)]
    for name, shape in recorded["structs"].items():
        found += _struct_breaks(name, shape, now["structs"].get(name))
    for name, words in recorded["words"].items():
        now_words = now["words"].get(name, {})
        found += [
            f"{name}.{word} was {number}, is {now_words.get(word)}"
            for word, number in words.items()
            if now_words.get(word) != number
        ]
    return found


def _struct_breaks(name: str, recorded: dict[str, Any], now: dict[str, Any] | None) -> Iterator[str]:
    if now is None:
        yield f"{name} is gone"
        return
    if now["array"] != recorded["array"]:
        yield f"{name} is written in another way"
    for place, field in enumerate(recorded["fields"]):
        if now["fields"][place : place + 1] != [field]:
            there = now["fields"][place] if place < len(now["fields"]) else "nothing"
            yield f"field {place} of {name} was {field}, is {there}"
    for field in now["fields"][len(recorded["fields"]) :]:
        if len(field) < 3:
            yield f"the new field {field[0]} of {name} has no default, so older logs cannot be read"
