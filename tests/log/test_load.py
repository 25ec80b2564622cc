"""`replay load`: logs in a database that grows with them, whatever happens in between."""

import json
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import duckdb
import pytest
import zstandard
from click.testing import CliRunner, Result
from crc32c import crc32c

from orbitkv.events import facts
from orbitkv.events.frame import Chain, FrameKind, decode_header, encode_header
from orbitkv.events.record import Record
from orbitkv.events.scan import Scan
from replay.__main__ import main
from replay.warehouse import load_log
from replay.warehouse.derived import TABLES as DERIVED
from replay.warehouse.tables import TABLES
from tests.log import samples
from tests.log.hinting import hinted_records
from tests.log.simulated import write_log

OTHER_LOG_ID = b"another sixteen."
FACT_TABLES = ("records", "stretches", *(table.name for table in TABLES))


@pytest.fixture(scope="module")
def told() -> list[list[Record]]:
    return hinted_records(4, 450)[0]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["load", *map(str, arguments)], catch_exceptions=False)


@contextmanager
def reading(database: Path) -> Iterator[Any]:
    with duckdb.connect(str(database), read_only=True) as connection:
        yield connection


def contents(database: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All that was loaded, and what is derived from it."""
    with reading(database) as connection:
        return {
            name: sorted(connection.execute(f"FROM {name}").fetchall(), key=repr)
            for name in (*FACT_TABLES, *DERIVED)
        }


def loaded_at_once(log: Path, database: Path) -> dict[str, list[tuple[Any, ...]]]:
    with load_log(log, database):
        pass
    return contents(database)


def frame_cuts(data: bytes, percents: tuple[int, ...]) -> list[int]:
    """So far into a segment's frames. No crash leaves one without its snapshot."""
    begin = next(iter(Scan(data))).end_offset
    return [begin + (len(data) - begin) * percent // 100 for percent in percents]


# --- growing --------------------------------------------------------------------------------------------


def test_tables_of_a_long_log_stand_in_a_file_that_goes_with_them(
    tmp_path: Path, told: list[list[Record]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "log", told)
    placed = "SELECT path FROM duckdb_databases() WHERE NOT internal"
    with load_log(tmp_path / "log") as warehouse:
        (in_memory,) = warehouse.connection.execute(placed).fetchone()
    monkeypatch.setattr("replay.warehouse.loading.LARGE_BYTES", 0)
    with load_log(tmp_path / "log") as warehouse:
        (path,) = warehouse.connection.execute(placed).fetchone()
        assert Path(path).is_file()
        (records,) = warehouse.connection.execute("SELECT count(*) FROM records").fetchone()
        assert records == sum(map(len, told))
    assert in_memory is None and not Path(path).exists()


def test_twice_changes_nothing(tmp_path: Path, told: list[list[Record]]) -> None:
    log, database = tmp_path / "log", tmp_path / "db"
    write_log(log, told)
    first = run(log, "--db", database)
    assert first.exit_code == 0, first.output
    before = contents(database)
    again = json.loads(run(log, "--db", database, "--json").stdout)
    assert [each["new_records"] for each in again["logs"]] == [0]
    assert contents(database) == before
    assert [each["records"] for each in again["logs"]] == [sum(map(len, told))]


def test_a_log_that_grows_gives_the_same_as_one_loaded_at_once(
    tmp_path: Path, told: list[list[Record]]
) -> None:
    """Frame by frame, over the ends of segments and incarnations, the last frame torn in between."""
    whole, log, database = tmp_path / "whole", tmp_path / "log", tmp_path / "db"
    files = write_log(whole, told, segment_records=60)
    expected = loaded_at_once(whole, tmp_path / "whole.db")
    log.mkdir()
    new_records = 0
    for number, file in enumerate(files):
        data = file.read_bytes()
        for size in frame_cuts(data, (100,) if number % 3 else (0, 30, 55, 100)):
            (log / file.name).write_bytes(data[:size])
            if number % 4 == 0 or file is files[-1]:
                answer = run(log, "--db", database, "--json")
                assert answer.exit_code == 0, answer.output
                new_records += json.loads(answer.stdout)["logs"][0]["new_records"]
        if number >= 2 and number % 2:
            compressed = files[number - 2]
            (log / f"{compressed.name}.zst").write_bytes(zstandard.compress(compressed.read_bytes()))
            (log / compressed.name).unlink()
    assert new_records == sum(map(len, told))
    found = contents(database)
    assert {name: rows for name, rows in found.items() if name != "stretches"} == {
        name: rows for name, rows in expected.items() if name != "stretches"
    }
    assert [row[2:] for row in found["stretches"]] == [row[2:] for row in expected["stretches"]]


def test_segments_that_the_log_has_dropped_stay_and_the_rest_goes_on(
    tmp_path: Path, told: list[list[Record]]
) -> None:
    whole, log, database = tmp_path / "whole", tmp_path / "log", tmp_path / "db"
    files = write_log(whole, told, segment_records=60)
    expected = loaded_at_once(whole, tmp_path / "whole.db")
    log.mkdir()
    for file in files[:3]:
        (log / file.name).write_bytes(file.read_bytes())
    assert run(log, "--db", database).exit_code == 0
    for file in files[:3]:
        (log / file.name).unlink()
    for file in files[3:]:
        (log / file.name).write_bytes(file.read_bytes())
    assert run(log, "--db", database).exit_code == 0
    found = contents(database)
    assert found["records"] == expected["records"]
    assert [row[2:] for row in found["stretches"]] == [row[2:] for row in expected["stretches"]]


def test_sealed_segments_are_not_read_again(
    tmp_path: Path, told: list[list[Record]], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, database = tmp_path / "log", tmp_path / "db"
    files = write_log(log, told, segment_records=60)
    data = files[-1].read_bytes()
    files[-1].write_bytes(data[: frame_cuts(data, (50,))[0]])
    assert run(log, "--db", database).exit_code == 0
    files[-1].write_bytes(data)
    read: list[Path] = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path) or read_bytes(path))
    assert run(log, "--db", database).exit_code == 0
    assert read == [files[-1]]


KILLED = """
import os, signal, sys
from pathlib import Path
from replay.warehouse import load_log, loading
loading.FLUSH_FACTS, loading.LOT_RECORDS, calls = 300, 20, 0
commit = loading.Loader._commit
def killed(self):
    global calls
    calls += 1
    if calls == int(sys.argv[3]) and sys.argv[4] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    if calls == int(sys.argv[3]) and sys.argv[4] == "within":
        write = self._book.write
        self._book.write = lambda: (write(), os.kill(os.getpid(), signal.SIGKILL))
    commit(self)
    if calls == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
loading.Loader._commit = killed
with load_log(Path(sys.argv[1]), Path(sys.argv[2])):
    pass
"""


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("moment", ["before", "within", "after"])
def test_a_kill_loses_nothing_that_the_next_load_does_not_bring(
    tmp_path: Path, told: list[list[Record]], moment: str, at: int
) -> None:
    log, database = tmp_path / "log", tmp_path / "db"
    write_log(log, told)
    command = [sys.executable, "-c", KILLED, str(log), str(database), str(at), moment]
    killed = subprocess.run(command, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    if moment == "after":
        with duckdb.connect(str(database)) as connection:
            (kept,) = connection.execute("SELECT count(*) FROM records").fetchone() or (0,)
        assert 0 < kept < sum(map(len, told))
    assert run(log, "--db", database).exit_code == 0
    assert contents(database) == loaded_at_once(log, tmp_path / "whole.db")


# --- more than one --------------------------------------------------------------------------------------


def other_log_id(files: list[Path]) -> None:
    """Make these segments another manager's, with the same records."""
    previous = 0
    for file in files:
        data = file.read_bytes()
        header = attrs.evolve(decode_header(data), log_id=OTHER_LOG_ID, previous_checksum=previous)
        made = bytearray(encode_header(header))
        chain = Chain.after_header(bytes(made), header.first_seq)
        for frame in Scan(data):
            payload, synced_seq = bytes(frame.payload), frame.synced_seq
            if frame.kind is FrameKind.SNAPSHOT:
                made += chain.snapshot_head(payload, synced_seq=synced_seq)
            elif frame.kind is FrameKind.RECORDS:
                made += chain.records_head(frame.last_seq, payload, synced_seq=synced_seq)
            else:
                made += chain.closing_head(synced_seq=synced_seq)
            made += payload
        previous = chain.checksum
        file.write_bytes(made)


def test_two_managers_logs_stand_side_by_side(tmp_path: Path, told: list[list[Record]]) -> None:
    one, two, database = tmp_path / "one", tmp_path / "two", tmp_path / "db"
    write_log(one, told)
    other_log_id(write_log(two, told))
    assert run(one, two, "--db", database).exit_code == 0
    with reading(database) as connection:
        rows = connection.execute(
            "SELECT log, count(*) FROM records JOIN stretches USING (stretch) GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        assert rows == [(str(one), sum(map(len, told))), (str(two), sum(map(len, told)))]
        doubled = "SELECT fact FROM query_opened GROUP BY fact HAVING count(*) > 1"
        assert connection.execute(doubled).fetchall() == []
    assert run(two, one, "--db", database).exit_code == 0
    assert json.loads(run(one, "--db", database, "--json").stdout)["logs"][0]["new_records"] == 0


def test_two_managers_logs_in_one_directory_are_damage(tmp_path: Path, told: list[list[Record]]) -> None:
    log, database = tmp_path / "log", tmp_path / "db"
    files = write_log(log, told)
    other_log_id(files[len(files) // 2 :])
    answer = run(log, "--db", database)
    assert answer.exit_code == 1
    words = "the segment belongs to another log; keep the logs of two managers in two directories"
    assert words in answer.stderr
    with reading(database) as connection:
        logs = connection.execute("SELECT DISTINCT log FROM segments ORDER BY log").fetchall()
        assert [name for (name,) in logs] == [str(log), f"{log} ({OTHER_LOG_ID.hex()[:8]})"]
        assert connection.execute("SELECT count(*) FROM records").fetchone() == (sum(map(len, told)),)


def test_a_moved_log_is_the_same_log(tmp_path: Path, told: list[list[Record]]) -> None:
    log, database = tmp_path / "log", tmp_path / "db"
    write_log(log, told)
    assert run(log, "--db", database).exit_code == 0
    log.rename(tmp_path / "elsewhere")
    document = json.loads(run(tmp_path / "elsewhere", "--db", database, "--json").stdout)
    assert (document["logs"][0]["new_records"], document["logs"][0]["records"]) == (0, sum(map(len, told)))


# --- damage ---------------------------------------------------------------------------------------------


def test_damage_is_told_each_time_and_the_rest_is_loaded(tmp_path: Path, told: list[list[Record]]) -> None:
    log, database = tmp_path / "log", tmp_path / "db"
    files = write_log(log, told, segment_records=60)
    data = bytearray(files[1].read_bytes())
    data[len(data) // 2] ^= 1
    files[1].write_bytes(data)
    files[3].write_bytes(b"not even a header")
    answers = [run(log, "--db", database) for _ in range(2)]
    for answer in answers:
        assert answer.exit_code == 1
        assert files[1].name in answer.stderr and files[3].name in answer.stderr
        assert "DAMAGED" in answer.stdout
    assert answers[0].stderr == answers[1].stderr
    with reading(database) as connection:
        told_segments = connection.execute("SELECT DISTINCT segment FROM troubles ORDER BY 1").fetchall()
        (count,) = connection.execute("SELECT count(*) FROM records").fetchone() or (0,)
    assert {files[1].name, files[3].name} <= {name for (name,) in told_segments}
    assert 0 < count < sum(map(len, told))


def test_facts_that_are_left_out_are_told_by_later_loads_too(tmp_path: Path) -> None:
    broken = Record(1, 0, samples.record(2).cause, (facts.PagesPrepared(b"\0\0\0"),))
    first, _ = samples.segment([[broken]], closed=True)
    path = samples.write_segment(tmp_path / "log", first).parent
    assert run(path, "--db", tmp_path / "db").exit_code == 1
    at = samples.header(1, 2, 2, samples.last_checksum(first))
    second, _ = samples.segment([[samples.record(2)]], at=at)
    samples.write_segment(path, second, 1, 2)
    answer = run(path, "--db", tmp_path / "db")
    assert answer.exit_code == 1
    assert answer.stderr.count("PagesPrepared") == 1
    assert "1 of them new" in answer.stdout


@pytest.mark.parametrize("cut", [True, False])
def test_a_segment_that_changed_after_it_was_loaded_is_damage(
    tmp_path: Path, told: list[list[Record]], cut: bool
) -> None:
    log, database = tmp_path / "log", tmp_path / "db"
    (file, *_) = write_log(log, told[:1], segment_records=len(told[0]))
    data = file.read_bytes()
    file.write_bytes(data[: len(data) - 30])
    assert run(log, "--db", database).exit_code == 0
    before = contents(database)
    if cut:
        file.write_bytes(data[: frame_cuts(data, (50,))[0]])
    else:
        write_log(log, told[:1], segment_records=len(told[0]), frame_records=9)
    answer = run(log, "--db", database)
    assert answer.exit_code == 1
    assert "what was loaded from it is no longer there" in answer.stderr
    assert contents(database)["records"] == before["records"]


# --- what cannot be done --------------------------------------------------------------------------------


def test_a_newer_format_is_refused(tmp_path: Path, told: list[list[Record]]) -> None:
    (file, *_) = write_log(tmp_path / "log", told[:1])
    data = bytearray(file.read_bytes())
    struct.pack_into("<I", data, 8, 99)
    (size,) = struct.unpack_from("<I", data, 12)
    struct.pack_into("<I", data, size - 4, crc32c(bytes(data[: size - 4])))
    file.write_bytes(data)
    answer = run(tmp_path / "log", "--db", tmp_path / "db")
    assert answer.exit_code == 2
    assert "it has log format 99" in answer.stderr and "use the OrbitKV that wrote it" in answer.stderr
    assert not (tmp_path / "db").exists()


def test_what_is_no_log_is_refused_before_anything_is_loaded(
    tmp_path: Path, told: list[list[Record]]
) -> None:
    write_log(tmp_path / "log", told[:1])
    answer = run(tmp_path / "log", tmp_path / "missing", "--db", tmp_path / "db")
    assert answer.exit_code == 2
    assert "missing does not exist; name the log's directory" in answer.stderr
    assert not (tmp_path / "db").exists()


def make_text(path: Path) -> None:
    path.write_text("this is a letter to my grandmother, not a database\n" * 100)


def make_foreign(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE mine AS SELECT 1 AS one")


def make_older(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE warehouse AS SELECT 'another' AS schema, '' AS derived_from")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (make_text, "cannot be opened"),
        (make_foreign, "is a DuckDB file without a log in it; name another one"),
        (make_older, "was made by another version of OrbitKV"),
    ],
)
def test_a_file_of_another_kind_is_left_alone(
    tmp_path: Path, told: list[list[Record]], make: Callable[[Path], None], words: str
) -> None:
    log, database = tmp_path / "log", tmp_path / "db"
    write_log(log, told[:1])
    make(database)
    before = database.read_bytes()
    answer = run(log, "--db", database)
    assert answer.exit_code == 2
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr
    assert database.read_bytes() == before


FULL = """
mount -t tmpfs -o size=$1 orbitkv-test "$2" || exit 77
shift
disk=$1; shift
"$@"; code=$?
cp "$disk"/* "$disk/../kept/"
exit $code
"""


@pytest.mark.parametrize("size_bytes", [100_000, 400_000, 1_500_000])
def test_a_full_disk_is_told_and_the_next_load_goes_on(
    tmp_path: Path, told: list[list[Record]], size_bytes: int
) -> None:
    """On a file system that only this process sees. DuckDB follows links, so it needs a mounted one."""
    log, disk, kept = tmp_path / "log", tmp_path / "disk", tmp_path / "kept"
    write_log(log, told)
    disk.mkdir()
    kept.mkdir()
    command = [sys.executable, "-m", "replay", "load", str(log), "--db", str(disk / "db")]
    space = ["unshare", "--mount", "sh", "-c", FULL, "sh", str(size_bytes), str(disk)]
    answer = subprocess.run([*space, *command], capture_output=True, text=True)
    if answer.returncode == 77 or "unshare failed" in answer.stderr:
        pytest.skip(f"needs the right to mount: {answer.stderr}")
    if answer.returncode:
        assert answer.returncode == 2, answer.stderr
        assert "there is no room left" in answer.stderr
        assert "run the same command again" in answer.stderr
        assert "Traceback" not in answer.stderr
    else:
        assert size_bytes > 1_000_000, "so little room cannot be enough"
        assert contents(kept / "db")["records"], "what is called ok is there"
    assert run(log, "--db", kept / "db").exit_code == 0
    assert contents(kept / "db") == loaded_at_once(log, tmp_path / "whole.db")


def test_reading_never_changes_a_log(tmp_path: Path, told: list[list[Record]]) -> None:
    files = write_log(tmp_path / "log", told)
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}
    assert run(tmp_path / "log", "--db", tmp_path / "db").exit_code == 0
    after = (tmp_path / "log").iterdir()
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in after} == before
