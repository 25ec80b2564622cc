"""`replay sql`: answers in every form, and questions that cannot be answered, in words."""

import csv
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner, Result
from crc32c import crc32c

from orbitkv.events import facts
from orbitkv.events.record import Record
from replay.__main__ import main
from replay.log import Log
from replay.query import lock
from replay.query_table import write_table
from replay.sql_command import QUERY_BYTES_MAX
from replay.warehouse import load_log
from tests.log.exporting import SAMPLE
from tests.log.question_facts import lives_of
from tests.log.simulated import write_log


@pytest.fixture(scope="module")
def told() -> list[list[Record]]:
    return [life.records for life in lives_of(SAMPLE)]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, told: list[list[Record]]) -> Path:
    path = tmp_path_factory.mktemp("sql") / "log"
    write_log(path, told)
    return path


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory, log: Path) -> Path:
    path = tmp_path_factory.mktemp("loaded") / "warehouse.duckdb"
    with load_log(log, path):
        pass
    return path


def run(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["sql", *map(str, arguments)], input=stdin, catch_exceptions=False)


def opened(told: list[list[Record]]) -> list[facts.QueryOpened]:
    return [e for records in told for r in records for e in r.events if isinstance(e, facts.QueryOpened)]


# --- answers ------------------------------------------------------------------------------------------


def test_an_answer_as_csv_is_what_the_facts_say(log: Path, told: list[list[Record]]) -> None:
    result = run(log, "SELECT operation, request, asked_pages FROM query_opened ORDER BY fact")
    assert result.exit_code == 0
    rows = list(csv.reader(io.StringIO(result.stdout)))
    assert rows[0] == ["operation", "request", "asked_pages"]
    expected = [[str(each.operation), each.request, str(each.asked_pages)] for each in opened(told)]
    assert rows[1:] == expected
    assert len(expected) > 5
    assert "note: speaks from incarnation 1 seq 1" in result.stderr


def test_json_is_one_list_of_objects(log: Path, told: list[list[Record]]) -> None:
    result = run(log, "SELECT operation, request FROM query_opened ORDER BY fact", "--format", "json")
    answer = json.loads(result.stdout)
    assert answer == [{"operation": e.operation, "request": e.request} for e in opened(told)]
    empty = run(log, "SELECT 1 AS one WHERE false", "--format", "json")
    assert json.loads(empty.stdout) == []


def test_every_type_has_a_place_in_csv_and_json(database: Path) -> None:
    query = """SELECT 1 AS a, 2 AS a, 170141183460469231731687303715884105727::HUGEINT AS huge, true AS yes,
        NULL AS nothing, '\\x00\\xff'::BLOB AS bytes, 1.50::DECIMAL(4, 2) AS exact, 'nan'::DOUBLE AS nan,
        0.1::DOUBLE AS tenth, [1, 2] AS list, {'x': 'y'} AS struct, 'a,"b"' AS text,
        INTERVAL 90 SECONDS AS wait, TIMESTAMP '2026-01-02 03:04:05' AS at"""
    (answer,) = json.loads(run("--db", database, query, "--format", "json").stdout)
    assert answer == {
        "a": 1,
        "a_2": 2,
        "huge": 170141183460469231731687303715884105727,
        "yes": True,
        "nothing": None,
        "bytes": "00ff",
        "exact": 1.5,
        "nan": None,
        "tenth": 0.1,
        "list": [1, 2],
        "struct": {"x": "y"},
        "text": 'a,"b"',
        "wait": 90.0,
        "at": "2026-01-02T03:04:05",
    }
    header, row = csv.reader(io.StringIO(run("--db", database, query, "--format", "csv").stdout))
    cells = dict(zip(header[1:], row[1:], strict=True))
    assert cells["huge"] == "170141183460469231731687303715884105727"
    assert (cells["yes"], cells["nothing"], cells["bytes"]) == ("true", "", "00ff")
    assert (cells["exact"], cells["list"], cells["text"]) == ("1.50", "[1, 2]", 'a,"b"')


def test_parquet_holds_the_same(log: Path, tmp_path: Path, told: list[list[Record]]) -> None:
    target = tmp_path / "answer's.parquet"
    query = "SELECT operation, request FROM query_opened ORDER BY fact -- the end"
    assert run(log, query, "-o", target).exit_code == 0
    rows = duckdb.sql(f"SELECT * FROM '{str(target).replace(chr(39), chr(39) * 2)}'").fetchall()
    assert rows == [(each.operation, each.request) for each in opened(told)]
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("ending", ["csv", "json", "txt"])
def test_the_ending_of_the_file_says_the_form(database: Path, tmp_path: Path, ending: str) -> None:
    target = tmp_path / f"answer.{ending}"
    result = run("--db", database, "SELECT 1 AS one", "-o", target)
    assert (result.exit_code, result.stdout) == (0, "")
    text = target.read_text()
    expected = {"csv": "one\n1\n", "json": '[\n{"one": 1}\n]\n'}
    assert text == expected[ending] if ending in expected else "one" in text
    again = run("--db", database, "SELECT 2 AS one", "-o", target)
    assert again.exit_code == 2
    assert "exists already" in again.stderr
    assert target.read_text() == text
    assert run("--db", database, "SELECT 2 AS one", "-o", target, "--force").exit_code == 0
    assert "2" in target.read_text()


def test_a_file_without_a_form_and_parquet_without_a_file_are_refused(log: Path, tmp_path: Path) -> None:
    for arguments in (("-o", tmp_path / "answer"), ("--format", "parquet")):
        result = run(log, "SELECT 1", *arguments)
        assert result.exit_code == 2
        assert "-o" in result.stderr or "--format" in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_failed_question_leaves_no_file(database: Path, tmp_path: Path) -> None:
    for ending in ("csv", "json", "parquet", "txt"):
        assert run("--db", database, "SELECT error('no')", "-o", tmp_path / f"a.{ending}").exit_code == 2
    assert not list(tmp_path.iterdir())


def test_a_table_says_how_much_it_leaves_out(database: Path) -> None:
    result = run(
        "--db", database, "SELECT seq FROM records ORDER BY fact", "--format", "table", "--rows", "3"
    )
    assert [line.strip() for line in result.stdout.splitlines() if line.strip()][2:] == ["1", "2", "3"]
    assert "note: the first 3 rows; --rows N shows more of them, --format csv gives all" in result.stderr
    whole = run("--db", database, "SELECT 1 AS one", "--format", "table")
    assert "the first" not in whole.stderr
    assert "note: no row" in run("--db", database, "SELECT 1 AS one WHERE false", "--format", "table").stderr


def test_several_logs_are_asked_together(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    CliRunner().invoke(main, ["simulate", "--seed", "11", "--steps", "300", "--log", str(other)])
    query = "SELECT count(*) AS n FROM records"
    counts = [int(run(*logs, query).stdout.split()[1]) for logs in ((log,), (other,), (log, other))]
    assert counts[0] + counts[1] == counts[2]
    twice = run(log, log, query)
    assert twice.exit_code == 2
    assert "named twice" in twice.stderr


def test_a_loaded_database_answers_alike_and_stays_as_it_is(log: Path, database: Path) -> None:
    before = database.read_bytes()
    query = "SELECT request, count(*) AS n FROM query_opened GROUP BY ALL ORDER BY ALL"
    assert run("--db", database, query).stdout == run(log, query).stdout
    assert database.read_bytes() == before


def test_the_query_may_come_from_a_file_or_standard_input(log: Path, tmp_path: Path) -> None:
    file = tmp_path / "question.sql"
    file.write_text("\ufeff-- how many?\nSELECT 7 AS n;\n", encoding="utf-8")
    assert run(log, "-f", file).stdout == "n\n7\n"
    assert run(log, "-f", "-", stdin="SELECT 8 AS n").stdout == "n\n8\n"


def test_damage_is_told_beside_the_answer(log: Path, tmp_path: Path) -> None:
    hurt = tmp_path / "hurt"
    hurt.mkdir()
    for file in log.iterdir():
        (hurt / file.name).write_bytes(file.read_bytes())
    second = sorted(hurt.iterdir())[1]
    data = bytearray(second.read_bytes())
    data[len(data) // 2] ^= 1
    second.write_bytes(data)
    result = run(hurt, "SELECT count(*) > 0 AS some FROM records")
    assert (result.exit_code, result.stdout) == (1, "some\ntrue\n")
    assert f"damage: {second} byte" in result.stderr


def test_a_log_that_grows_is_asked_as_far_as_it_is_whole(log: Path, tmp_path: Path) -> None:
    growing = tmp_path / "growing"
    growing.mkdir()
    first, second, *_ = sorted(log.iterdir())
    (growing / first.name).write_bytes(first.read_bytes())
    (growing / second.name).write_bytes(second.read_bytes()[:-300])
    result = run(growing, "SELECT count(*) AS n FROM records")
    whole = sum(len(f.records) for s in Log.open(growing).segments() for f in s.frames())
    assert (result.exit_code, result.stdout) == (0, f"n\n{whole}\n")
    assert "the last frame is not whole" in result.stderr


# --- for people ---------------------------------------------------------------------------------------


def shown(query: str, width: int | None) -> str:
    from replay.query import ask

    out = io.StringIO()
    with duckdb.connect() as connection:
        write_table(ask(connection, query), out, width=width, rows_max=10)
    return out.getvalue()


def test_a_narrow_table_stays_a_table_and_a_wide_one_becomes_blocks() -> None:
    table = shown("SELECT 1 AS one, 'text' AS word", 40)
    assert table.splitlines()[0].split() == ["one", "word"]
    blocks = shown("SELECT " + ", ".join(f"{n} AS column_number_{n}" for n in range(9)), 40)
    assert blocks.splitlines()[:2] == ["row 1", "  column_number_0  0"]
    wide = shown("SELECT " + ", ".join(f"{n} AS column_number_{n}" for n in range(9)), None)
    assert len(wide.splitlines()) == 3


def test_long_text_is_folded_and_numbers_never_are() -> None:
    table = shown(f"SELECT 12345678901234567 AS number, '{'w' * 60}' AS text", 50)
    assert max(map(len, table.splitlines())) <= 50
    assert table.count("w") == 60
    assert "12345678901234567" in table


def test_text_of_a_log_cannot_steer_the_terminal() -> None:
    table = shown("SELECT chr(27) || '[31mred' || chr(7) || '[bold]x[/bold]' || chr(8238) AS name", None)
    assert "\x1b" not in table
    assert "\x07" not in table
    assert "\u202e" not in table
    assert "\\x1b[31mred\\x07[bold]x[/bold]" in table


# --- logs that cannot be asked ---------------------------------------------------------------------------


def test_a_log_of_a_later_version_is_not_guessed_at(log: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer"
    newer.mkdir()
    segment = min(log.iterdir())
    data = bytearray(segment.read_bytes())
    header_bytes = int.from_bytes(data[12:16], "little")
    data[8:12] = (99).to_bytes(4, "little")
    data[header_bytes - 4 : header_bytes] = crc32c(bytes(data[: header_bytes - 4])).to_bytes(4, "little")
    (newer / segment.name).write_bytes(data)
    result = run(newer, "SELECT 1 AS one")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "it has log format 99" in result.stderr


def test_two_logs_in_one_directory_are_answered_and_told(log: Path, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    CliRunner().invoke(main, ["simulate", "--seed", "11", "--steps", "60", "--log", str(mixed)])
    for file in mixed.iterdir():
        file.rename(mixed / file.name.replace("00000001-", "00000009-"))
    first = min(log.iterdir())
    (mixed / first.name).write_bytes(first.read_bytes())
    result = run(mixed, "SELECT count(DISTINCT log) AS logs FROM stretches")
    assert result.exit_code == 1
    assert "the segment belongs to another log" in result.stderr


# --- questions that cannot be answered -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "complaints"),
    [
        ("", ["there is no question in it"]),
        ("  -- only words\n;", ["there is no question in it"]),
        ("SELECT 1; SELECT 2", ["there are 2 statements"]),
        (
            "SELECT * FROM query_opend",
            ["no table or view query_opend; did you mean query_opened", "column 15"],
        ),
        ("SELECT * FROM qqqqqqqqq", ["no table or view qqqqqqqqq; --tables lists"]),
        (
            "SELECT\n  requst\nFROM query_opened",
            ['column "requst" not found', '"request"', "line 2, column 3", "    " + "  requst", "      ^"],
        ),
        ("SELECT foo(1)", ["unction with name foo does not exist", "line 1, column 8"]),
        ("SELCT 1", ['syntax error at or near "SELCT"', "line 1, column 1"]),
        ("SELECT (1", ["syntax error", "line 1"]),
        ("SELECT 'a'::INT", ["convert string 'a'"]),
        ("SELECT error('because')", ["because"]),
        ("CREATE TABLE x (a INT)", ["it is a CREATE statement, and a log is only asked"]),
        ("DROP TABLE query_opened", ["it is a DROP statement"]),
        ("INSERT INTO query_opened SELECT * FROM query_opened RETURNING *", ["it is a INSERT statement"]),
        ("SET threads = 1", ["it is a SET statement"]),
        ("COPY query_opened TO 'x.csv'", ["it is a COPY statement"]),
        ("ATTACH 'x.db'", ["it is a ATTACH statement"]),
        ("INSTALL httpfs", ["it is a LOAD statement"]),
    ],
)
def test_what_is_wrong_with_a_question_is_said(database: Path, query: str, complaints: list[str]) -> None:
    result = run("--db", database, query)
    assert (result.exit_code, result.stdout) == (2, "")
    for complaint in complaints:
        assert complaint in result.stderr
    assert "Traceback" not in result.stderr


def test_a_wrong_question_is_refused_before_a_log_is_loaded(tmp_path: Path) -> None:
    assert "syntax error" in run(tmp_path / "nowhere", "SELCT 1").stderr


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_blob('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM read_json_auto('{file}')",
        "SELECT * FROM parquet_scan('{file}')",
        "SELECT * FROM read_csv('http://127.0.0.1:9/x.csv')",
        "SELECT * FROM sniff_csv('{file}')",
        "SELECT * FROM read_ndjson_objects('{file}')",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/x.csv'",
        "FROM query('SELECT * FROM read_text(''{file}'')')",
    ],
)
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_question_reads_no_file(database: Path, tmp_path: Path, query: str, form: str) -> None:
    file = tmp_path / "file.csv"
    file.write_text("precious,secret\n1,2\n")
    question = query.format(file=file, folder=tmp_path)
    result = run("--db", database, question, *(("-o", tmp_path / "out.parquet") if form == "parquet" else ()))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "secret" not in result.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["file.csv"]


def test_a_locked_database_stays_locked(log: Path, tmp_path: Path) -> None:
    secret = [("variable of this process",)]
    with load_log(log) as warehouse:
        lock(warehouse.connection)
        assert secret
        for statement in (
            *(
                "SET enable_external_access = true",
                "SET lock_configuration = false",
                "SET memory_limit = '99GB'",
            ),
            *("RESET threads", "SELECT * FROM secret", f"COPY records TO '{tmp_path}/x.csv'"),
            *(f"ATTACH '{tmp_path}/x.db'", "LOAD httpfs", f"EXPORT DATABASE '{tmp_path}/x'"),
        ):
            with pytest.raises(duckdb.Error):
                warehouse.connection.execute(statement)
    assert not list(tmp_path.iterdir())


def test_parquet_may_be_written_to_its_own_place_alone(log: Path, tmp_path: Path) -> None:
    with load_log(log) as warehouse:
        lock(warehouse.connection, writes=tmp_path / "its own.parquet")
        warehouse.connection.execute(f"COPY (SELECT 1) TO '{tmp_path}/its own.parquet' (FORMAT parquet)")
        with pytest.raises(duckdb.Error, match="disabled by configuration"):
            warehouse.connection.execute(f"COPY (SELECT 1) TO '{tmp_path}/other.parquet' (FORMAT parquet)")
    assert [each.name for each in tmp_path.iterdir()] == ["its own.parquet"]


def test_files_that_hold_no_query_are_told_apart(log: Path, tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes("SELECT 'ä'".encode("latin-1"))
    (tmp_path / "huge").write_bytes(b" " * (QUERY_BYTES_MAX + 1))
    for name, complaint in (
        ("nowhere", "cannot be read: No such file"),
        (".", "cannot be read: Is a directory"),
        ("latin", "is no text in UTF-8 (byte 8)"),
        ("huge", "that is no query"),
    ):
        result = run(log, "-f", tmp_path / name)
        assert (result.exit_code, result.stdout) == (2, "")
        assert complaint in result.stderr
    assert "there is no question" in run(log, "-f", "-", stdin="").stderr


def test_words_that_are_no_question_are_told_apart(log: Path, database: Path, tmp_path: Path) -> None:
    for arguments, complaint in (
        ((), "there is no log and no query"),
        ((log,), "is not followed by a query"),
        (("--db", database), "there is no log and no query"),
        (("--db", database, log, "SELECT 1"), "not both"),
        (("--tables",), "which log?"),
        ((log, "--tables", "-f", "x"), "give one of"),
        ((tmp_path / "nowhere", "SELECT 1"), "does not exist"),
        ((tmp_path, "SELECT 1"), "holds no log segment"),
        (("--db", tmp_path / "nowhere", "SELECT 1"), "does not exist"),
        (("--db", tmp_path, "SELECT 1"), "is no file"),
        (("--db", min(log.iterdir()), "SELECT 1"), "cannot be opened"),
    ):
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert complaint in result.stderr


def test_a_database_of_something_else_is_not_asked(tmp_path: Path) -> None:
    path = tmp_path / "mine.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE mine AS SELECT 1 AS a")
    result = run("--db", path, "SELECT * FROM mine")
    assert result.exit_code == 2
    assert "without a log in it" in result.stderr


# --- tables -------------------------------------------------------------------------------------------


def test_all_tables_are_listed_with_their_kind(log: Path, database: Path) -> None:
    listed = run(log, "--tables", "--format", "csv")
    assert listed.exit_code == 0
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(listed.stdout))}
    with load_log(log) as warehouse:
        there = warehouse.connection.execute(
            "SELECT table_name FROM duckdb_tables() UNION SELECT view_name FROM duckdb_views()"
            " WHERE NOT internal"
        ).fetchall()
    assert set(rows) == {name for (name,) in there}
    assert [name for name, row in rows.items() if not row["meaning"]] == []
    assert rows["pages_evicted"]["kind"] == "fact"
    assert rows["pages_evicted"]["meaning"] == "These buffers left the index"
    assert rows["gpu_synced_ranges"]["kind"] == "list"
    assert rows["cohorts"]["meaning"].startswith("one row for each prepared generation")
    assert run("--db", database, "--tables", "--format", "csv").stdout == listed.stdout
    assert len(run(log, "--tables").stdout.splitlines()) >= len(rows)


def test_a_table_is_described_column_by_column(database: Path) -> None:
    result = run("--db", database, "--describe", "StoreChanged".lower(), "--format", "csv")
    assert "did you mean store_changed" in result.stderr
    described = run("--db", database, "--describe", "Reads_Submitted", "--format", "csv")
    rows = {row["column"]: row for row in csv.DictReader(io.StringIO(described.stdout))}
    assert list(rows)[:3] == ["stretch", "seq", "fact"]
    assert rows["origin"]["meaning"] == "Of the earliest owner that was still interested."
    assert rows["read"]["type"] == "BIGINT"
    table = run("--db", database, "--describe", "pages_unused")
    assert "pages_unused: Prepared generations whose last cache" in table.stdout


# --- the world outside --------------------------------------------------------------------------------


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "replay", "sql", *map(str, arguments)]


def test_a_reader_that_has_had_enough_is_no_error(database: Path) -> None:
    query = "SELECT * FROM records, range(20000)"
    with subprocess.Popen(
        command("--db", database, query), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("stretch,seq,")
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait() == 0
    assert "Traceback" not in errors
    assert "Error" not in errors


@pytest.mark.parametrize("form", ["csv", "json", "table"])
def test_a_full_device_is_named(database: Path, form: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("--db", database, "SELECT 1 AS one", "--format", form),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2
    assert "cannot be written to standard output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_standard_output_is_named(database: Path) -> None:
    words = shlex.join(command("--db", database, "SELECT 1 AS one"))
    done = subprocess.run(f"{words} >&-", shell=True, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert "standard output is closed" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_a_long_question(database: Path) -> None:
    """The header comes with the first rows, so that the question is known to be at work."""
    query = "SELECT a.range FROM range(1000000) a, range(1000000) b WHERE hash(a.range, b.range) > 0"
    with subprocess.Popen(
        command("--db", database, query), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "range\n"
        drain = threading.Thread(target=lambda: list(iter(lambda: process.stdout.read(1 << 16), "")))
        process.send_signal(signal.SIGINT)
        drain.start()
        errors = process.stderr.read()
        assert process.wait() == 130
        drain.join()
    assert "interrupted" in errors
    assert "Traceback" not in errors


@pytest.fixture
def crowded() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:", config={"memory_limit": "20MB", "max_temp_directory_size": "0MB"}) as it:
        yield it


def test_a_question_that_needs_too_much_room_is_told_so(crowded: duckdb.DuckDBPyConnection) -> None:
    from replay.query import ask
    from replay.query_trouble import QueryError

    with pytest.raises(QueryError, match="needs more memory or temporary space than it may have"):
        list(ask(crowded, "SELECT range, range::VARCHAR FROM range(3000000) ORDER BY range % 97").rows)


def test_help_names_the_exit_codes() -> None:
    assert "Exit codes: 0 answered" in run("--help").stdout
    assert os.linesep.join(["replay sql LOG --tables"]) in run("--help").stdout
