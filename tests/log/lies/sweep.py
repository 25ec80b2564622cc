"""Every field of every kind of fact, altered in a few true places: who notices?

A field is altered to another value that it has somewhere in the same story, if there is one, and to one that
it has nowhere. Choices follow from the field's name alone, so that a new kind of fact changes no other's.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from enum import IntEnum
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Any, TypeAlias, get_args

import attrs
import msgspec

from orbitkv.events.config import KernelConfig
from orbitkv.events.facts import Event, IncarnationStarted
from orbitkv.events.record import Record
from replay.log import Log

Stories: TypeAlias = Sequence[Sequence[Record]]

HISTORIES = tuple(
    Path(__file__).parents[2] / "histories" / name
    for name in ("plain", "real", "shared", "torn", "trouble", "waiting")
)
"""Recorded logs, which never change. Named, so that a later one does not change which places are drawn."""

WIDE = {"offsets", "staging_offsets", "generations"}
"""Packed columns of u64."""
PLAIN = {"namespace_digest"}
"""Byte strings that are one value."""
PER_BYTE = {"outcomes"}


@attrs.frozen
class Field:
    kind: type[msgspec.Struct]
    name: str

    def __str__(self) -> str:
        return f"{self.kind.__name__}.{self.name}"


@attrs.frozen
class Alteration:
    """One field of one fact has another value; all else is true."""

    field: Field
    seq: int
    told: tuple[Record, ...]


@attrs.frozen
class Place:
    story: int
    seq: int
    position: int
    """Among the record's facts."""


def recorded() -> list[tuple[Record, ...]]:
    """Every incarnation of the recorded logs that is there from its beginning."""
    incarnations: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for log in HISTORIES:
        for segment in Log.open(log).segments():
            for frame in segment.frames():
                incarnations[log.name, segment.header.incarnation] += frame.records
    return [tuple(records) for records in incarnations.values() if records and records[0].seq == 1]


def fields() -> list[Field]:
    """Each setting in the first record counts as a field of its own."""
    found = [Field(kind, each.name) for kind in get_args(Event) for each in msgspec.structs.fields(kind)]
    settings = [
        Field(IncarnationStarted, f"config.{each.name}") for each in msgspec.structs.fields(KernelConfig)
    ]
    return [*settings, *(field for field in found if field != Field(IncarnationStarted, "config"))]


def places(stories: Stories) -> dict[type[msgspec.Struct], list[Place]]:
    """Where each kind of fact stands."""
    found: dict[type[msgspec.Struct], list[Place]] = defaultdict(list)
    for number, story in enumerate(stories):
        for record in story:
            for position, event in enumerate(record.events):
                found[type(event)].append(Place(number, record.seq, position))
    return found


def alterations(stories: Stories, *, places_max: int) -> Iterator[Alteration]:
    """Up to `places_max` places for each field, each altered in up to two ways."""
    found = places(stories)
    for field in fields():
        random = Random(str(field))
        here = [place for place in found[field.kind] if _value(stories, place, field) not in ((), b"", None)]
        for place in random.sample(here, min(places_max, len(here))):
            story = stories[place.story]
            others = [
                _value(stories, other, field) for other in found[field.kind] if other.story == place.story
            ]
            for value in altered(field.name, _value(stories, place, field), others, random):
                yield Alteration(field, place.seq, _told(story, place, field, value))


def _value(stories: Stories, place: Place, field: Field) -> Any:
    return attrgetter(field.name)(stories[place.story][place.seq - 1].events[place.position])


def _told(story: Sequence[Record], place: Place, field: Field, value: Any) -> tuple[Record, ...]:
    record = story[place.seq - 1]
    event = _with(record.events[place.position], field.name.split("."), value)
    events = (*record.events[: place.position], event, *record.events[place.position + 1 :])
    return (*story[: place.seq - 1], msgspec.structs.replace(record, events=events), *story[place.seq :])


def _with(struct: Any, path: Sequence[str], value: Any) -> Any:
    inner = _with(getattr(struct, path[0]), path[1:], value) if path[1:] else value
    return msgspec.structs.replace(struct, **{path[0]: inner})


def altered(name: str, value: Any, others: Sequence[Any], random: Random) -> list[Any]:
    """Other values of the same shape: one that stands elsewhere, and one that stands nowhere."""
    elsewhere = [other for other in others if other != value and _alike(other, value)]
    chosen = [random.choice(elsewhere)] if elsewhere else []
    return [*chosen, *(new for new in [_new(name, value, random)] if new != value and new not in chosen)]


def _alike(other: Any, value: Any) -> bool:
    """Columns keep their length: uneven ones do not get past the reader."""
    return not isinstance(value, bytes | tuple) or len(other) == len(value)


def _new(name: str, value: Any, random: Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, IntEnum):
        return random.choice([member for member in type(value) if member is not value])
    if isinstance(value, int):
        # Settings are limits: a smaller one may have been broken.
        return value // 2 if name.startswith("config.") else value + 1
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, tuple | bytes) and not value:
        return value
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:] if name in PLAIN else _new_column(name, value, random)
    if isinstance(value, tuple):
        at = random.randrange(len(value))
        return (*value[:at], _new(name, value[at], random), *value[at + 1 :])
    assert isinstance(value, msgspec.Struct), f"{name} holds {value!r}"
    changed = random.choice(msgspec.structs.fields(type(value))).name
    return msgspec.structs.replace(value, **{changed: _new(changed, getattr(value, changed), random)})


def _new_column(name: str, value: bytes, random: Random) -> bytes:
    """One entry is greater by one."""
    width = 8 if name in WIDE else 1 if name in PER_BYTE or len(value) % 4 else 4
    at = random.randrange(len(value) // width) * width
    entry = int.from_bytes(value[at : at + width], "little")
    new = entry ^ 1 if width == 1 else (entry + 1) % (1 << 8 * width)
    return value[:at] + new.to_bytes(width, "little") + value[at + width :]
