"""`cache_timeline` as engines write it: every stage in order, nothing secret, nothing unless asked for."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from orbitkv.adapters.timeline import REMEMBERED_MAX, EngineTimeline
from orbitkv.events.outcomes import SyncOutcome
from tests.channel.engine import KEYS, make_client, part
from tests.channel.stub import StubManager

FIELDS = {"event", "stage", "request_id", "attempt", "pid", "at_unix_ns", "monotonic_ns", "engine", "rank"}
SYNC = ([(0, 1)], 8, 10_000, 123)


@pytest.fixture
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBITKV_TRACE_TRANSFERS", "1")


def _stages(lines: list[str]) -> list[tuple[str, str, int]]:
    said = [json.loads(line) for line in lines]
    return [(line["stage"], line["request_id"], line["attempt"]) for line in said]


def test_a_requests_life(socket_path: Path, switched_on: None) -> None:
    lines: list[str] = []
    with (
        StubManager(socket_path) as manager,
        make_client(socket_path, timeline_write=lines.append) as client,
    ):
        client.register()
        manager.resident[KEYS[0]] = 0
        client.report_stage("request", 1, "queued")
        lease = client.query("request", 1, [part(KEYS[0])]).lease
        client.begin_restore(lease)
        client.report_sync(lease, SyncOutcome.SUCCEEDED, *SYNC)
        client.report_sync(lease, SyncOutcome.SUCCEEDED, *SYNC)
        client.report_stage("request", 1, "first_use", 11, 22)
    stages = ["queued", "restore_submit", "gpu_ready", "first_use"]
    assert _stages(lines) == [(stage, "request", 1) for stage in stages]
    queued, submitted, ready, used = (json.loads(line) for line in lines)
    assert queued.keys() == FIELDS
    assert (queued["event"], queued["engine"], queued["rank"]) == ("cache_timeline", "engine", 0)
    assert queued["pid"] == os.getpid()
    assert submitted["pages"] == 1
    assert (ready["copied_bytes"], ready["elapsed_us"]) == (10_000, 123)
    assert abs(ready["at_unix_ns"] - time.time_ns()) < 10e9
    assert queued["monotonic_ns"] <= submitted["monotonic_ns"] <= ready["monotonic_ns"]
    assert (used["at_unix_ns"], used["monotonic_ns"]) == (11, 22), "the same times as in the log"
    assert not any(key.hex() in line or str(key) in line for line in lines for key in KEYS)


def test_a_rank_names_the_request_of_a_lease_that_it_was_handed(socket_path: Path, switched_on: None) -> None:
    lines: list[str] = []
    with StubManager(socket_path) as manager:
        manager.resident[KEYS[0]] = 0
        with (
            make_client(socket_path, rank=-1, staging_bytes=0, groups=()) as scheduler,
            make_client(socket_path, timeline_write=lines.append) as worker,
        ):
            scheduler.register()
            worker.register()
            lease = scheduler.query("request", 2, [part(KEYS[0])]).lease
            worker.begin_restore(lease)
            worker.report_sync(lease, SyncOutcome.STOPPED, *SYNC)
    assert _stages(lines) == [("restore_submit", "request", 2)], "a failed copy is not ready"


def test_a_cancelled_query_is_said_once(socket_path: Path, switched_on: None) -> None:
    lines: list[str] = []
    with (
        StubManager(socket_path) as manager,
        make_client(socket_path, timeline_write=lines.append) as client,
    ):
        client.register()
        manager.resident[KEYS[0]] = 0
        operation = client.query("request", 0, [part(KEYS[0])]).operation
        client.cancel(operation)
        client.cancel(operation)
    assert _stages(lines) == [("query_cancel", "request", 0)]


def test_nothing_is_written_unless_asked_for(
    socket_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ORBITKV_TRACE_TRANSFERS", "0")
    lines: list[str] = []
    with StubManager(socket_path), make_client(socket_path, timeline_write=lines.append) as client:
        client.register()
        client.report_stage("request", 0, "queued")
        client.cancel(client.query("request", 0, [part(KEYS[0])]).operation)
        client.timeline.say("first_use", "request", 0)
    assert lines == []
    assert capsys.readouterr().err == ""


def test_lines_go_to_stderr_unless_there_is_a_writer(
    switched_on: None, capsys: pytest.CaptureFixture[str]
) -> None:
    timeline = EngineTimeline("engine", 3)
    timeline.say("first_use", "first of batch", 0, extras={"requests": ["first of batch", "second"]})
    (line,) = capsys.readouterr().err.splitlines()
    said: dict[str, Any] = json.loads(line)
    assert (said["stage"], said["rank"]) == ("first_use", 3)
    assert said["requests"] == ["first of batch", "second"]


def test_a_writer_in_trouble_troubles_nobody(switched_on: None) -> None:
    def broken(line: str) -> None:
        raise BrokenPipeError

    EngineTimeline("engine", 0, broken).say("queued", "request", 0)


def test_what_is_remembered_has_a_bound(switched_on: None) -> None:
    lines: list[str] = []
    timeline = EngineTimeline("engine", 0, lines.append)
    for number in range(REMEMBERED_MAX + 1):
        timeline.asked(number.to_bytes(24, "big"), f"request {number}", 0)
    timeline.cancelled((0).to_bytes(24, "big"))
    timeline.cancelled((1).to_bytes(24, "big"))
    assert _stages(lines) == [("query_cancel", "request 1", 0)]
