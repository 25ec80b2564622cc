"""The records that a report speaks of, as the timeline tells them. It goes through the log for that."""

from collections.abc import Collection
from pathlib import Path

import attrs

from orbitkv.events.record import Record
from replay.log import Log
from replay.timeline import wall_time
from replay.wording.phrases import phrase
from replay.wording.sentences import sentence

FACTS_SHOWN_MAX = 25
TEXT_SHOWN_MAX = 400

Place = tuple[int, int]
"""(incarnation, seq)"""


@attrs.frozen
class Cited:
    incarnation: int
    seq: int
    when: str
    cause: str
    facts: list[str]
    left_out: int


def cited_records(path: Path, places: Collection[Place]) -> list[Cited]:
    """Those that are there, in the order of the log. Raises LogError."""
    wanted = set(places)
    found = []
    for segment in Log.open(path).segments():
        header = segment.header
        for frame in segment.frames():
            for record in frame.records:
                if (header.incarnation, record.seq) in wanted:
                    when = wall_time(header, record.at_ns)
                    found.append(_cited(header.incarnation, record, f"{when:%Y-%m-%d %H:%M:%S.%f} UTC"))
    return found


def _cited(incarnation: int, record: Record, when: str) -> Cited:
    shown = record.events[:FACTS_SHOWN_MAX]
    return Cited(
        incarnation,
        record.seq,
        when,
        _short(phrase(record.cause, record.at_ns)),
        [_short(sentence(fact, record.at_ns)) for fact in shown],
        len(record.events) - len(shown),
    )


def _short(text: str) -> str:
    return text if len(text) <= TEXT_SHOWN_MAX else f"{text[: TEXT_SHOWN_MAX - 1]}…"
