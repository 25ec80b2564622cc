"""`replay sql`: answers in every form, for scripts and for people."""

import csv
import io
import json
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from orbitkv.events import facts
from orbitkv.events.record import Record
from replay.__main__ import main
from replay.log import Log
from replay.query.asking import ask
from replay.query.table import write_table
from replay.warehouse import load_log
from tests.log.sql_asking import run


def opened(told: list[list[Record]]) -> list[facts.QueryOpened]:
    return [e for records in told for r in records for e in r.events if isinstance(e, facts.QueryOpened)]


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
