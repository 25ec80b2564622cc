"""The timeline: one line a record, in words, and one request's life picked out of it."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orbitkv.events import commands, facts
from orbitkv.events.ids import NONE_U32
from orbitkv.events.outcomes import Origin, QueryEnd
from orbitkv.events.record import Record
from replay.__main__ import main
from replay.log import Log
from replay.timeline import lines
from replay.trail import RequestTrail
from replay.wording.phrases import phrase, size_text
from tests.log import samples
from tests.log.simulated import simulated_records, write_log


@pytest.fixture(scope="module")
def told() -> list[list[Record]]:
    return simulated_records(5, 1500)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["timeline", *arguments], catch_exceptions=False)


def test_each_record_is_one_line(tmp_path: Path, told: list[list[Record]]) -> None:
    write_log(tmp_path, told)
    answer = run(str(tmp_path))
    assert answer.exit_code == 0
    printed = [line for line in answer.stdout.splitlines() if not line.startswith("incarnation")]
    expected = [record for records in told for record in records]
    assert [int(line.split()[0]) for line in printed] == [record.seq for record in expected]
    assert re.match(r" +1 \+ +0\.000000 s  start: incarnation 1", printed[0])
    assert "incarnation 1, 2023-11-14 22:13:20.000 UTC" in answer.stdout
    assert "\x1b" not in answer.stdout, "no colours where nobody sees them"


def test_one_request_is_followed_through_operation_reads_and_lease(
    tmp_path: Path, told: list[list[Record]]
) -> None:
    write_log(tmp_path, told)
    found: dict[type, int] = {}
    requests = {
        event.request
        for records in told
        for r in records
        for event in r.events
        if isinstance(event, facts.QueryOpened)
    }
    for request in sorted(requests):
        mine: set[tuple[int, int]] = set()
        for line in lines(Log.open(tmp_path), request):
            for fact in line.facts:
                found[type(fact)] = found.get(type(fact), 0) + 1
                if isinstance(fact, facts.QueryOpened | facts.HintAdmitted):
                    assert fact.request == request
                    mine.add((line.incarnation, fact.operation))
                elif hasattr(fact, "operation"):
                    assert (line.incarnation, fact.operation) in mine
    opened = sum(isinstance(e, facts.QueryOpened) for records in told for r in records for e in r.events)
    ended = sum(isinstance(e, facts.QueryEnded) for records in told for r in records for e in r.events)
    assert (found[facts.QueryOpened], found[facts.QueryEnded]) == (opened, ended)
    for kind in (facts.LeaseGranted, facts.ReadsLanded, facts.DecisionSettled):
        assert found[kind] > 0, kind


def test_facts_about_others_are_not_told() -> None:
    trail = RequestTrail("mine")
    ended = [facts.QueryEnded(operation, QueryEnd.MISSED) for operation in (1, 2)]
    opened = facts.StageReported(1, "mine", 0, "queued")
    record = Record(1, 0, commands.Tick(), (opened, *ended))
    assert trail.facts_of(record) == (opened,)
    assert not trail.asked_by(record)
    queued = facts.ReadsQueued(7, 40, samples.column([1, 2]), samples.column([0, 1]), Origin.DEMAND)
    assert trail.facts_of(Record(2, 0, commands.Tick(), (queued,))) == ()


def test_full_adds_every_field(tmp_path: Path, told: list[list[Record]]) -> None:
    write_log(tmp_path, told[:1])
    answer = run("--full", str(tmp_path))
    assert "IncarnationStarted incarnation=1" in answer.stdout


def test_an_unknown_request_is_an_error_in_words(tmp_path: Path, told: list[list[Record]]) -> None:
    write_log(tmp_path, told[:1])
    answer = run("--request", "nobody's", str(tmp_path))
    assert answer.exit_code == 2
    assert 'has no record of a request "nobody\'s"' in answer.stderr


@pytest.mark.parametrize(
    ("struct", "told_as"),
    [
        (commands.Tick(), "tick"),
        (facts.BuffersFreed(samples.column([1])), "buffers freed: 1 buffer"),
        (facts.BuffersFreed(samples.column(range(3))), "buffers freed: 3 buffers"),
        (facts.QueryEnded(3 << 32 | 2, QueryEnd.LEASE_EXPIRED), "query ended: op 3.2, lease expired"),
        (
            facts.LeaseGranted(9, 3 << 32 | 1, 128, 3 << 20, 5_000_000_000),
            "lease granted: lease 9, op 3.1, boundary tokens 128, 3.0 MiB charge, deadline in 4.000 s",
        ),
        (
            commands.BeginSave(1, 0, samples.column([NONE_U32]), (b"key",)),
            "begin save: session 1, 1 page, 1 unknown keys",
        ),
    ],
)
def test_phrases(struct: commands.Command | facts.Event, told_as: str) -> None:
    assert phrase(struct, 1_000_000_000) == told_as


def test_sizes_are_for_people() -> None:
    assert [size_text(size) for size in (0, 1023, 1024, 9 << 20, 3 << 40, 1 << 60)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "9.0 MiB",
        "3.0 TiB",
        "1048576.0 TiB",
    ]
