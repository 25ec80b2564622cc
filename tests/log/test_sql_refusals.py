"""`replay sql`: questions and logs that get no answer, in words; and what a question must never do."""

from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner
from crc32c import crc32c

from replay.__main__ import main
from replay.query.asking import lock
from replay.sql_command import QUERY_BYTES_MAX
from replay.warehouse import load_log
from tests.log.sql_asking import run

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
