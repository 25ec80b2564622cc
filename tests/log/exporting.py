"""Logs to export, with names in them, and what is left of those."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from orbitkv.events import commands, facts
from orbitkv.events.record import Record
from orbitkv.events.scan import expand
from replay.export.records import PLAIN_FIELDS
from replay.log import Log
from tests.log.simulated import write_log

SAMPLE = Path(__file__).parent / "sample"
"""Three incarnations, with hints."""
HISTORIES = Path(__file__).parents[1] / "histories"
TROUBLE, SHARED = HISTORIES / "trouble", HISTORIES / "shared"

SECRET = b"the secret of these tests, 32 by"
HOST = "workstation-of-alice.example.org"
DOCUMENT = '{"model":"our-unpublished-model","tenant":"ward 7"}'
REASON = "/home/alice/pages cannot be written"
UID = 70_123_456


def planted(incarnations: list[list[Record]]) -> list[list[Record]]:
    """With the names of a host, a user and a model in them, as a manager's log has."""

    def changed(value: Any) -> Any:
        match value:
            case commands.Start():
                return msgspec.structs.replace(value, host=HOST, io_reason=REASON)
            case facts.IncarnationStarted():
                return msgspec.structs.replace(value, host=HOST)
            case commands.RegisterRank():
                return msgspec.structs.replace(value, host=HOST, namespace_document=DOCUMENT)
            case commands.OpenSession():
                return msgspec.structs.replace(value, uid=UID)
            case commands.SetStore() | facts.StoreChanged() if value.reason:
                return msgspec.structs.replace(value, reason=REASON)
        return value

    return [
        [Record(r.seq, r.at_ns, changed(r.cause), tuple(map(changed, r.events))) for r in records]
        for records in incarnations
    ]


def write_planted(path: Path, source: Path, *, records_max: int = 1_000_000) -> list[Path]:
    """A recorded log's records, each incarnation in several segments, so that snapshots stand between."""
    told: list[list[Record]] = []
    for segment in Log.open(source).segments():
        if segment.header.number == 1:
            told.append([])
        told[-1] += [record for frame in segment.frames() for record in frame.records]
    return write_log(path, planted([records[:records_max] for records in told]), segment_records=90)


def records_of(path: Path) -> list[Record]:
    return [
        record
        for segment in Log.open(path).segments()
        for frame in segment.frames()
        for record in frame.records
    ]


def fields_of(value: Any, field: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in a record that is neither a struct nor a tuple, with the name of its field."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from fields_of(getattr(value, name), name)
    elif isinstance(value, tuple):
        for each in value:
            yield from fields_of(each, field)
    else:
        yield field, value


def is_name(field: str, value: Any) -> bool:
    return isinstance(value, (str, bytes)) and field not in PLAIN_FIELDS


def names_of(path: Path) -> set[bytes]:
    """All keys, names and digests of a log, but for a simulated one-letter name, which is everywhere."""
    found = (value for r in records_of(path) for field, value in fields_of(r) if is_name(field, value))
    names = {value.encode() if isinstance(value, str) else value for value in found}
    return {name for name in names if len(name) > 1} - {b"queued", b"first_use"}


def content_of(path: Path) -> bytes:
    return b"".join(expand(file.read_bytes()).data for file in sorted(path.iterdir()))
