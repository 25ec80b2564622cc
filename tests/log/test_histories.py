"""Logs that were recorded by earlier versions: still read, folded to the same states, verified and audited.

`tests/histories/README.md` says how each was made. They freeze the format: a change of an event's shape
that would make older logs unreadable fails here.
"""

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from orbitkv.events.commands import Command, PollQuery
from orbitkv.events.facts import Event
from orbitkv.manager.kernel import KERNEL_REVISION
from replay.auditor import audit_log
from replay.findings import Incarnation
from replay.fold import fold_log
from replay.log import Log
from replay.verify import verify_log
from tests.golden_files import compare
from tests.histories.schema import Schema, breaks, current

HISTORIES = Path(__file__).parent.parent / "histories"
LOGS = sorted(path for path in HISTORIES.iterdir() if list(path.glob("*.orbitlog*")))
log = pytest.mark.parametrize("path", LOGS, ids=[path.name for path in LOGS])


def told(found: Incarnation) -> dict[str, Any]:
    """What is recorded of an incarnation: where it begins and ends, and the state that its facts lead to."""
    known = ("incarnation", "kernel_revision", "first_seq", "next_seq", "records", "closed", "lost_tail")
    return {**{name: getattr(found, name) for name in known}, "digest": found.digest, "state": found.state}


@log
def test_it_folds_to_the_recorded_states(path: Path, pytestconfig: pytest.Config) -> None:
    report = fold_log(path)
    assert report.ok, report.difference or report.log.troubles
    document = {
        "incarnations": [told(found) for found in report.incarnations],
        "troubles": [trouble.what for trouble in report.log.troubles],
        "notes": report.log.notes,
    }
    recorded = HISTORIES / f"{path.name}.json"
    compare(recorded, json.dumps(document, indent=1) + "\n", pytestconfig)


@log
def test_it_is_decided_alike_where_the_kernel_is_the_same(path: Path) -> None:
    report = verify_log(path)
    assert report.ok, report.difference
    for found in report.incarnations:
        assert found.decided == (found.kernel_revision == KERNEL_REVISION)


@log
def test_its_books_balance(path: Path) -> None:
    audit = audit_log(path)
    assert audit.ok, audit.as_json()


def test_the_histories_hold_every_kind_of_command_and_fact() -> None:
    """But for the poll, of which no record is ever made."""
    kinds: set[type] = set()
    for path in LOGS:
        for segment in Log.open(path).segments():
            for frame in segment.frames():
                for record in frame.records:
                    kinds |= {type(record.cause), *map(type, record.events)}
    missing = {*get_args(Command), *get_args(Event)} - kinds - {PollQuery}
    assert not missing, f"record a history with {', '.join(kind.__name__ for kind in missing)}"


def test_there_is_every_shape_of_a_log() -> None:
    files = [file for path in LOGS for file in path.iterdir()]
    assert any(file.suffix == ".zst" for file in files), "compressed"
    reports = [fold_log(path) for path in LOGS]
    assert any(len(report.incarnations) > 2 for report in reports), "several incarnations"
    assert any(found.lost_tail for report in reports for found in report.incarnations), "a lost tail"
    assert any(found.snapshots_compared for report in reports for found in report.incarnations)
    assert any(report.incarnations[0].first_seq > 1 for report in reports), "an older part was dropped"
    assert any("not whole" in note for report in reports for note in report.log.notes), "a torn end"
    assert sum(file.stat().st_size for file in files) < 500_000, "they are kept small"


# --- the schema -----------------------------------------------------------------------------------------


def test_the_vocabulary_is_the_recorded_one_or_has_grown(pytestconfig: pytest.Config) -> None:
    """A new shape is recorded with --golden-rewrite; a changed or lost one is never taken."""
    path = HISTORIES / "schema.json"
    if path.exists():
        assert breaks(json.loads(path.read_text()), current()) == []
    compare(path, json.dumps(current(), indent=1) + "\n", pytestconfig)


def changed(change: str) -> Schema:
    """The schema after a change that somebody might make."""
    schema: Schema = json.loads(json.dumps(current()))
    opened = schema["structs"]["QueryOpened"]["fields"]
    match change:
        case "a field that is gone":
            opened.pop()
        case "fields in another order":
            opened.insert(0, opened.pop())
        case "another type":
            opened[4][1] = "str"
        case "another default":
            opened[-1][2] = "1"
        case "a new field without a default":
            opened.append(["tokens", "int"])
        case "another tag":
            schema["facts"]["QueryOpened"] = 999
        case "a tag that is used again":
            schema["facts"]["Other"] = schema["facts"].pop("QueryOpened")
        case "a word with another number":
            schema["words"]["QueryEnd"]["MISSED"] = 77
        case "a setting under another name":
            schema["structs"]["KernelConfig"]["fields"][0][0] = "dram_bytes"
        case "maps instead of arrays":
            schema["structs"]["Record"]["array"] = False
        case "a new field with a default":
            opened.append(["tokens", "int", "0"])
        case "a new fact":
            schema["facts"]["Other"] = 999
        case "a new word":
            schema["words"]["QueryEnd"]["LATE"] = 77
    return schema


@pytest.mark.parametrize(
    "change",
    [
        "a field that is gone",
        "fields in another order",
        "another type",
        "another default",
        "a new field without a default",
        "another tag",
        "a tag that is used again",
        "a word with another number",
        "a setting under another name",
        "maps instead of arrays",
    ],
)
def test_a_change_that_breaks_older_logs_is_named(change: str) -> None:
    assert breaks(current(), changed(change))


@pytest.mark.parametrize("change", ["a new field with a default", "a new fact", "a new word"])
def test_growth_breaks_nothing(change: str) -> None:
    grown = changed(change)
    assert grown != current()
    assert breaks(current(), grown) == []
