"""Folding and verifying logs of simulated runs: true ones pass, lies are named, and no clock is read."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import msgspec
import pytest
from click.testing import CliRunner, Result

from orbitkv.events import commands, facts
from orbitkv.events.record import Record
from orbitkv.manager import kernel
from orbitkv.manager.kernel import KERNEL_REVISION
from replay.__main__ import main
from replay.fold import fold_log
from replay.verify import verify_log
from tests.log import samples
from tests.log.simulated import simulated_records, write_log

SEED = 3
STEPS = 2500


@pytest.fixture(scope="module")
def told() -> list[list[Record]]:
    return simulated_records(SEED, STEPS)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


@pytest.mark.parametrize("seed", range(4))
def test_what_the_kernel_wrote_verifies(tmp_path: Path, seed: int) -> None:
    incarnations = simulated_records(seed, 1200)
    write_log(tmp_path, incarnations, segment_records=40)
    verified, folded = verify_log(tmp_path), fold_log(tmp_path)
    assert verified.ok, verified.difference or verified.log.troubles
    assert verified.records == sum(map(len, incarnations))
    assert sum(found.snapshots_compared for found in verified.incarnations) > 0
    for one, other in zip(verified.incarnations, folded.incarnations, strict=True):
        assert one.decided
        assert not other.decided
        assert (one.digest, one.state) == (other.digest, other.state)
    assert all(found.closed for found in verified.incarnations[:-1])


def test_the_command_line_says_ok(tmp_path: Path, told: list[list[Record]]) -> None:
    write_log(tmp_path, told)
    count = sum(map(len, told))
    for command in ("fold", "verify"):
        answer = run(command, str(tmp_path))
        assert answer.exit_code == 0
        assert f"{command}: ok, {count} records" in answer.stdout
        assert answer.stdout.count("  digest ") == len(told)
        assert "speaks from incarnation 1 seq 1" in answer.stderr
        document = json.loads(run(command, "--json", str(tmp_path)).stdout)
        assert (document["ok"], document["records"], document["difference"]) == (True, count, None)


def _drop_a_fact(record: Record) -> Record:
    return msgspec.structs.replace(record, events=record.events[:-1])


def _add_a_fact(record: Record) -> Record:
    return msgspec.structs.replace(record, events=(*record.events, facts.StaleCompletion("lie", 1)))


def _swap_facts(record: Record) -> Record:
    return msgspec.structs.replace(record, events=record.events[::-1])


def _change_a_byte_count(record: Record) -> Record:
    first = record.events[0]
    assert isinstance(first, facts.QueryOpened)
    lie = msgspec.structs.replace(first, charge_bytes=first.charge_bytes + 1)
    return msgspec.structs.replace(record, events=(lie, *record.events[1:]))


def _change_the_cause(record: Record) -> Record:
    return msgspec.structs.replace(record, cause=commands.PollQuery(1, 1))


def _empty(record: Record) -> Record:
    return msgspec.structs.replace(record, events=())


@pytest.mark.parametrize(
    ("lie", "what"),
    [
        (_drop_a_fact, "differs"),
        (_add_a_fact, "differs"),
        (_swap_facts, "fact 1 of"),
        (_change_a_byte_count, "charge_bytes"),
        (_change_the_cause, "its cause leads to no record"),
        (_empty, "fact 1 of"),
    ],
)
def test_a_lie_in_a_whole_frame_is_named(
    tmp_path: Path, told: list[list[Record]], lie: Callable[[Record], Record], what: str
) -> None:
    """Checksums and chain are right: only deciding again can find it."""
    incarnation = told.index(max(told, key=len)) + 1
    true = next(
        record
        for record in told[incarnation - 1][20:]
        if isinstance(record.events[0], facts.QueryOpened) and len(record.events) > 1
    )
    write_log(tmp_path, told, lies={(incarnation, true.seq): lie(true)})
    report = verify_log(tmp_path)
    assert report.difference is not None
    assert (report.difference.incarnation, report.difference.seq) == (incarnation, true.seq)
    assert what in str(report.difference)
    answer = run("verify", str(tmp_path))
    assert answer.exit_code == 1
    assert f"difference: incarnation {incarnation} seq {true.seq} (" in answer.stdout
    for word in ("cause ", "expected ", "got ", "verify: FAILED, a difference"):
        assert word in answer.stdout
    document = json.loads(run("verify", "--json", str(tmp_path)).stdout)
    assert (document["ok"], document["difference"]["seq"]) == (False, true.seq)


def test_facts_that_do_not_fit_are_named_by_fold(tmp_path: Path, told: list[list[Record]]) -> None:
    true = told[0][5]
    lie = msgspec.structs.replace(true, events=(facts.BuffersFreed(samples.column([12345])),))
    write_log(tmp_path, told, lies={(1, true.seq): lie})
    report = fold_log(tmp_path)
    assert report.difference is not None
    assert report.difference.seq == true.seq
    assert "do not fit the state" in report.difference.what


def test_a_snapshot_that_is_not_the_folded_state_is_named(tmp_path: Path, told: list[list[Record]]) -> None:
    longest = max(told, key=len)
    write_log(tmp_path / "true", [longest], segment_records=100)
    # The second segment gets the snapshot of one record earlier: restorable, chained, and wrong.
    state = kernel.new_state()
    for record in longest[:99]:
        kernel.fold(state, record)
    first = (tmp_path / "true" / "00000001-00000001.orbitlog").read_bytes()
    at = attrs.evolve(
        samples.header(1, 2, 101, samples.last_checksum(first)), kernel_revision=KERNEL_REVISION
    )
    data, _ = samples.segment([longest[100:150]], at=at, snapshot=kernel.snapshot(state))
    samples.write_segment(tmp_path, first)
    samples.write_segment(tmp_path, data, number=2)
    for report in (fold_log(tmp_path), verify_log(tmp_path)):
        assert report.difference is not None
        assert report.difference.seq == 101
        assert "not the state that the records before it lead to" in report.difference.what
    samples.write_segment(tmp_path, samples.segment([], at=at, snapshot=b"no state")[0], number=2)
    report = fold_log(tmp_path)
    assert report.difference is not None
    assert "cannot be restored" in report.difference.what


def test_logs_of_another_kernel_revision_are_folded_only_and_it_says_so(
    tmp_path: Path, told: list[list[Record]]
) -> None:
    true = told[0][5]
    lie = msgspec.structs.replace(true, events=(*true.events, facts.StaleCompletion("read", 1)))
    write_log(
        tmp_path,
        told[:1],
        lies={(1, true.seq): lie},
        segment_records=10_000,
        kernel_revision=KERNEL_REVISION + 1,
    )
    answer = run("verify", str(tmp_path))
    assert answer.exit_code == 0
    assert f"incarnation 1 is of kernel revision {KERNEL_REVISION + 1}" in answer.stderr
    assert "folded, not verified" in answer.stderr


def test_any_suffix_verifies(tmp_path: Path, told: list[list[Record]]) -> None:
    files = write_log(tmp_path, told, segment_records=30)
    for file in files[: len(files) // 2]:
        file.unlink()
        report = verify_log(tmp_path)
        assert report.ok, report.difference or report.log.troubles


def test_a_growing_a_cut_and_a_damaged_log(tmp_path: Path, told: list[list[Record]]) -> None:
    files = write_log(tmp_path, told, segment_records=60)
    last = files[-1].read_bytes()
    for lost_bytes in (40, 41, 200):
        files[-1].write_bytes(last[:-lost_bytes])
        assert run("verify", str(tmp_path)).exit_code == 0
    files[-1].write_bytes(last)
    damaged = bytearray(files[2].read_bytes())
    damaged[len(damaged) // 2] ^= 1
    files[2].write_bytes(bytes(damaged))
    answer = run("verify", str(tmp_path))
    assert answer.exit_code == 1
    assert f"damage: {files[2]} byte " in answer.stderr
    assert "verify: FAILED, damage" in answer.stdout
    report = verify_log(tmp_path)
    assert report.difference is None
    assert report.records > 0.7 * sum(map(len, told)), (
        "what lies behind the damage is verified from its snapshot"
    )


def test_what_is_no_log_is_refused_without_a_traceback(tmp_path: Path) -> None:
    for command in ("fold", "verify", "timeline"):
        answer = run(command, str(tmp_path / "nowhere"))
        assert answer.exit_code == 2
        assert answer.stderr.startswith("Error: ")
        assert "name the log's directory" in answer.stderr


def test_progress_is_told_in_bytes_of_the_disk(tmp_path: Path, told: list[list[Record]]) -> None:
    files = write_log(tmp_path, told, segment_records=60)
    seen: list[int] = []
    verify_log(tmp_path, seen.append)
    assert seen == sorted(seen)
    assert 0.5 < seen[-1] / sum(file.stat().st_size for file in files) <= 1


IN_A_WORLD_WITHOUT_CLOCKS = """
import os, random, sys, time
from replay.__main__ import main

def refuse(*_, **__):
    raise AssertionError("a clock was read or a random number drawn")

for module, names in {
    time: [name for name in dir(time) if callable(getattr(time, name)) and name != "struct_time"],
    random: [name for name in dir(random) if callable(getattr(random, name))],
    os: ["urandom", "getrandom", "times"],
}.items():
    for name in names:
        setattr(module, name, refuse)
main([sys.argv[1], "--json", sys.argv[2]], prog_name="replay")
"""


def test_verify_reads_no_clock_and_draws_no_random_number(tmp_path: Path, told: list[list[Record]]) -> None:
    write_log(tmp_path, told, segment_records=60)
    documents = []
    for command, hash_seed in (("verify", "1"), ("verify", "2"), ("fold", "3")):
        answer = subprocess.run(
            [sys.executable, "-c", IN_A_WORLD_WITHOUT_CLOCKS, command, str(tmp_path)],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
        )
        assert answer.returncode == 0, answer.stderr
        documents.append(json.loads(answer.stdout))
    digests = [[found["digest"] for found in document["incarnations"]] for document in documents]
    assert digests[0] == digests[1] == digests[2]
    assert all(digests[0])


@pytest.mark.parametrize("column", [b"\0\0\0", b"\1\0\0\0\2"])
def test_columns_and_words_that_no_kernel_writes_are_told(
    tmp_path: Path, told: list[list[Record]], column: bytes
) -> None:
    """They stand in a difference as they are; the tool that found it does not fall over them."""
    incarnation = told.index(max(told, key=len)) + 1
    true = next(record for record in told[incarnation - 1][20:] if record.events)
    events = (facts.ReadsFailed(column, b"\x63"), *true.events)
    lie = msgspec.structs.replace(true, events=events)
    write_log(tmp_path, told, lies={(incarnation, true.seq): lie})
    difference = verify_log(tmp_path).difference
    assert difference is not None
    assert (difference.incarnation, difference.seq) == (incarnation, true.seq)
    assert "outcomes=[99]" in difference.expected
    timeline = run("timeline", str(tmp_path)).stdout
    assert "failed (99)" in timeline
