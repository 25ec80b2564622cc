"""`replay seal`: Parquet files that anyone reads, that stand for their segment and for no other bytes."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
import zstandard
from click.testing import CliRunner, Result

from orbitkv.events import facts
from orbitkv.events.frame import FRAME_HEAD_BYTES
from orbitkv.events.record import Record
from replay.__main__ import main
from replay.auditor import audit_log
from replay.warehouse import load_log, loading
from replay.warehouse.facts import Facts
from replay.warehouse.records import BareRecords
from replay.warehouse.tables import TABLES
from tests.disks import small_disk
from tests.log import samples
from tests.log.hinting import hinted_records
from tests.log.simulated import write_log

FACT_TABLES = ("records", *(table.name for table in TABLES))
Contents = dict[str, list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def told() -> list[list[Record]]:
    return hinted_records(4, 300)[0]


@pytest.fixture(autouse=True)
def small_segments_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sealed segments are taken however small they are."""
    monkeypatch.setattr(loading, "SEALED_FACTS_MIN", 0)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The segments whose records are decoded, from now on."""
    seen: list[Path] = []
    add = Facts.add

    def told_add(self: Facts, segment: Any, frame: Any, stretch: int, records: BareRecords) -> None:
        if segment.path not in seen:
            seen.append(segment.path)
        add(self, segment, frame, stretch, records)

    monkeypatch.setattr(Facts, "add", told_add)
    return seen


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["seal", *map(str, arguments)], catch_exceptions=False)


def contents(log: Path) -> Contents:
    with load_log(log) as warehouse:
        assert warehouse.log.troubles == []
        return {
            name: sorted(warehouse.connection.execute(f"FROM {name}").fetchall(), key=repr)
            for name in (*FACT_TABLES, "stretches", "segments", "cohorts")
        }


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- what is sealed ---------------------------------------------------------------------------------------


def test_the_sealed_files_stand_for_the_log(
    tmp_path: Path, told: list[list[Record]], decoded: list[Path]
) -> None:
    """Loaded from them, every table is the same, and nothing is decoded but what is still written to."""
    log = tmp_path / "log"
    files = write_log(log, told)
    files[-1].write_bytes(files[-1].read_bytes()[:-FRAME_HEAD_BYTES])
    expected = contents(log)
    assert decoded == files
    answer = run(log)
    assert answer.exit_code == 0, answer.output
    assert f"{len(files) - 1} segments sealed" in answer.stdout
    assert f"note: {files[-1].name} is not sealed" in answer.stderr
    decoded.clear()
    assert contents(log) == expected
    assert decoded == [files[-1]]
    assert audit_log(log).ok


def test_anything_that_reads_parquet_reads_them(tmp_path: Path, told: list[list[Record]]) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write_log(log, told)
    assert run(log, "--out", out).exit_code == 0
    with load_log(log) as warehouse, duckdb.connect() as connection:
        for name in ("query_opened", "pages_evicted", "records", "reads_submitted"):
            there = f"read_parquet('{out}/{name}/**/*.parquet', hive_partitioning = true)"
            of_log = f"{name} JOIN stretches USING (stretch)"
            columns = [row[0] for row in warehouse.connection.execute(f"DESCRIBE {name}").fetchall()]
            told_of = ", ".join(
                f"{column}::VARCHAR" for column in columns if column not in ("stretch", "fact")
            )
            found = connection.execute(
                f"SELECT incarnation::BIGINT, {told_of} FROM {there} ORDER BY ALL"
            ).fetchall()
            assert (
                found
                == warehouse.connection.execute(
                    f"SELECT incarnation, {told_of} FROM {of_log} ORDER BY ALL"
                ).fetchall()
            )
            assert found


def test_twice_changes_nothing_and_later_segments_are_added(tmp_path: Path, told: list[list[Record]]) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    files = write_log(log, told)
    kept = files[-1].read_bytes()
    files[-1].unlink()
    assert run(log, "--out", out).exit_code == 0
    before = tree(out)
    document = json.loads(run(log, "--out", out, "--json").stdout)
    assert (document["sealed"], document["before"]) == (0, len(files) - 1)
    assert tree(out) == before
    files[-1].write_bytes(kept)
    files[0].with_name(f"{files[0].name}.zst").write_bytes(zstandard.compress(files[0].read_bytes()))
    files[0].unlink()
    document = json.loads(run(log, "--out", out, "--json").stdout)
    assert (document["sealed"], document["before"]) == (1, len(files) - 1)
    assert {name: data for name, data in tree(out).items() if name in before} == before


def test_the_log_is_not_touched(tmp_path: Path, told: list[list[Record]]) -> None:
    log = tmp_path / "log"
    write_log(log, told)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in log.iterdir()}
    assert run(log).exit_code == 0
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in log.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log-sealed"]


def test_load_takes_them_from_where_they_were_written_to(
    tmp_path: Path, told: list[list[Record]], decoded: list[Path]
) -> None:
    log, out = tmp_path / "log", tmp_path / "elsewhere"
    write_log(log, told)
    assert run(log, "--out", out).exit_code == 0
    decoded.clear()
    arguments = ["load", str(log), "--db", str(tmp_path / "db"), "--sealed", str(out)]
    answer = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    assert decoded == []
    with duckdb.connect(str(tmp_path / "db"), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM records").fetchone() == (sum(map(len, told)),)


# --- what does not belong together ------------------------------------------------------------------------


def other_bytes(log: Path, folder: Path, told: list[list[Record]]) -> None:
    """The same segments of the same log, and in one frame less the same records."""
    write_log(log, told, frame_records=8)


def bit_flipped(log: Path, folder: Path, told: list[list[Record]]) -> None:
    path = next((folder / "records").rglob("*.parquet"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def file_lost(log: Path, folder: Path, told: list[list[Record]]) -> None:
    next((folder / "records").rglob("*.parquet")).unlink()


def manifest_torn(log: Path, folder: Path, told: list[list[Record]]) -> None:
    path = next((folder / "segments").iterdir())
    path.write_bytes(path.read_bytes()[:100])


def other_schema(log: Path, folder: Path, told: list[list[Record]]) -> None:
    path = next((folder / "segments").iterdir())
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": "of another OrbitKV"}))


def nonsense(log: Path, folder: Path, told: list[list[Record]]) -> None:
    next((folder / "segments").iterdir()).write_text('{"schema": [1, 2], "files": {"records": 7}}')


def files_from_elsewhere(log: Path, folder: Path, told: list[list[Record]]) -> None:
    """A manifest may name tables of facts and nothing else."""
    path = next((folder / "segments").iterdir())
    document = json.loads(path.read_text())
    document["files"]["../../elsewhere"] = document["files"]["records"]
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    "spoil",
    [other_bytes, bit_flipped, file_lost, manifest_torn, other_schema, nonsense, files_from_elsewhere],
    ids=lambda spoil: spoil.__name__,
)
def test_files_that_are_not_of_these_bytes_are_passed_over_and_made_again(
    tmp_path: Path, told: list[list[Record]], decoded: list[Path], spoil: Any
) -> None:
    log, folder = tmp_path / "log", tmp_path / "log-sealed"
    files = write_log(log, told)
    expected = contents(log)
    assert run(log).exit_code == 0
    spoil(log, folder, told)
    decoded.clear()
    found = contents(log)
    for name in FACT_TABLES:
        assert found[name] == expected[name], name
    assert len(decoded) == (len(files) if spoil is other_bytes else 1)


def test_damaged_segments_are_not_sealed(tmp_path: Path, told: list[list[Record]]) -> None:
    log = tmp_path / "log"
    files = write_log(log, told)
    data = bytearray(files[1].read_bytes())
    data[-200] ^= 1
    files[1].write_bytes(data)
    answer = run(log)
    assert answer.exit_code == 1
    assert files[1].name in answer.stderr
    assert f"{len(files) - 1} segments sealed" in answer.stdout


def test_a_segment_with_facts_that_no_table_takes_is_not_sealed(tmp_path: Path) -> None:
    broken = Record(1, 0, samples.record(2).cause, (facts.PagesPrepared(b"\0\0\0"),))
    data, _ = samples.segment([[broken]], closed=True)
    path = samples.write_segment(tmp_path / "log", data)
    answer = run(tmp_path / "log")
    assert f"note: {path.name} is not sealed" in answer.stderr
    assert not (tmp_path / "log-sealed").exists()


# --- trouble while sealing --------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from replay.warehouse import sealed
from replay.warehouse.sealing import seal_log
left = int(sys.argv[3])
replace = Path.replace
def killed(self, target):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(self, target)
Path.replace = killed
seal_log(Path(sys.argv[1]), sealed.SealedFolder(Path(sys.argv[2])))
"""


@pytest.mark.parametrize("at", [17, 100])
def test_a_kill_leaves_nothing_that_is_believed(
    tmp_path: Path, told: list[list[Record]], decoded: list[Path], at: int
) -> None:
    log, folder = tmp_path / "log", tmp_path / "log-sealed"
    files = write_log(log, told)
    expected = contents(log)
    command = [sys.executable, "-c", KILLED, str(log), str(folder), str(at)]
    killed = subprocess.run(command, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    sealed = len(list((folder / "segments").glob("*.json"))) if (folder / "segments").exists() else 0
    decoded.clear()
    assert contents(log) == expected
    assert len(decoded) == len(files) - sealed
    assert run(log).exit_code == 0
    decoded.clear()
    assert contents(log) == expected
    assert decoded == []
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_a_full_disk_leaves_no_half_file_and_says_what_to_do(
    tmp_path: Path, told: list[list[Record]]
) -> None:
    log = tmp_path / "log"
    write_log(log, told)
    with small_disk(300_000) as disk:
        answer = run(log, "--out", disk / "out")
        assert answer.exit_code == 2
        assert "run the same command again" in answer.stderr
        assert "Traceback" not in answer.stderr
        whole = {path.stem for path in (disk / "out" / "segments").glob("*.json")}
        assert not (disk / "out" / ".partial").exists()
        for path in (disk / "out").rglob("*.parquet"):
            with duckdb.connect() as connection:
                data = tmp_path / "copy.parquet"
                data.write_bytes(path.read_bytes())
                connection.execute(f"SELECT count(*) FROM read_parquet('{data}')")
    assert len(whole) < len(list(log.iterdir()))


def test_one_seals_at_a_time(tmp_path: Path, told: list[list[Record]]) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write_log(log, told[:1])
    out.mkdir()
    descriptor = os.open(out, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        answer = run(log, "--out", out)
    finally:
        os.close(descriptor)
    assert answer.exit_code == 2
    assert "another process seals into" in answer.stderr
    assert run(log, "--out", out).exit_code == 0


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, told: list[list[Record]]) -> None:
    log = tmp_path / "log"
    write_log(log, told[:1])
    (tmp_path / "file").write_text("in the way")
    answer = run(log, "--out", tmp_path / "file" / "out")
    assert answer.exit_code == 2
    assert "cannot be written" in answer.stderr and "--out" in answer.stderr
