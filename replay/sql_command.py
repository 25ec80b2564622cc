"""`replay sql`: any question about a log, in SQL."""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import attrs
import click

from replay.command_line import errors_in_words, print_remarks
from replay.output_file import check_output
from replay.query.asking import Answer, ask, checked, lock, write_parquet
from replay.query.docs import described, listed
from replay.query.output import answer_file, text_of, write_csv, write_json
from replay.query.questions import listed_questions, question_named
from replay.query.source import opened
from replay.query.table import ROWS_SHOWN_MAX, write_table
from replay.query.trouble import QueryError

FORMATS = {".txt": "table", ".csv": "csv", ".json": "json", ".parquet": "parquet"}
QUERY_BYTES_MAX = 1 << 20
ALL_ROWS = 100_000
"""More than there are tables, or columns of one."""


@click.command("sql")
@click.argument("words", nargs=-1, metavar="[LOG]... [QUERY]")
@click.option(
    "-f",
    "--file",
    "query_file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Read the query from this file; - is standard input.",
)
@click.option(
    "--db",
    "database",
    type=click.Path(path_type=Path),
    help="Ask a database that `replay load` has made, instead of a log.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS.values())),
    help="Default: what the ending of -o says; else table on a terminal and csv elsewhere.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the answer to this file.")
@click.option("--force", is_flag=True, help="Replace the file of -o if it exists.")
@click.option(
    "--rows",
    "rows_max",
    type=click.IntRange(1),
    default=ROWS_SHOWN_MAX,
    show_default=True,
    help="Most rows that a table shows.",
)
@click.option("--question", metavar="NAME", help="Ask one of the worked questions.")
@click.option("--questions", is_flag=True, help="List the worked questions.")
@click.option("--tables", is_flag=True, help="List the tables and views, and what they mean.")
@click.option("--describe", metavar="NAME", help="The columns of a table or view, and what they mean.")
def sql_command(
    words: tuple[str, ...],
    query_file: Path | None,
    database: Path | None,
    form: str | None,
    output: Path | None,
    force: bool,
    rows_max: int,
    question: str | None,
    questions: bool,
    tables: bool,
    describe: str | None,
) -> None:
    """Answer a QUERY in SQL (DuckDB's) about one LOG or several.

    \b
    replay sql LOG "SELECT request, reason FROM hint_skipped"
    replay sql LOG --tables
    replay sql LOG --describe requests
    replay sql LOG --question wasted-hints
    replay sql --db warehouse.duckdb -f question.sql --format csv

    The query reads the log and nothing else. Every call loads the log anew: for many questions about a long
    one, load it once with `replay load`. --questions lists worked questions; replay/QUESTIONS.md says how to
    read their answers.

    Exit codes: 0 answered, 1 answered, and the log is damaged, 2 not answered.
    """
    with errors_in_words():
        if sum(map(bool, (query_file, question, questions, tables, describe))) > 1:
            raise click.UsageError("give one of -f, --question, --questions, --tables and --describe")
        if output is None and sys.stdout is None:
            raise click.UsageError("standard output is closed; write the answer to a file with -o")
        shows = questions or tables or bool(describe)
        asked = _Asked(_form(form, output, shows=shows), output, rows_max, force)
        asked.check()
        if questions:
            _write(listed_questions(), attrs.evolve(asked, rows_max=ALL_ROWS))
            return
        logs, query = _logs_and_query(words, query_file, question, database, shows=shows)
        if not shows:
            checked(query)
        with opened(logs, database) as source:
            if asked.form == "parquet":
                _write_parquet(source.connection, query, asked)
            elif shows:
                lock(source.connection)
                answer = described(source.connection, describe) if describe else listed(source.connection)
                _write(answer, attrs.evolve(asked, rows_max=ALL_ROWS))
            else:
                lock(source.connection)
                title = question_named(question).asks if question else ""
                _write(attrs.evolve(ask(source.connection, query), title=title), asked)
        for log in source.logs:
            print_remarks(log)
    sys.exit(1 if any(log.troubles for log in source.logs) else 0)


@attrs.frozen
class _Asked:
    """How an answer is wanted."""

    form: str
    output: Path | None
    rows_max: int
    force: bool

    def check(self) -> None:
        """Before a log is loaded for it. Raises LogError."""
        if self.output is not None:
            check_output(self.output, force=self.force)


def _write_parquet(connection: Any, query: str, asked: _Asked) -> None:
    """By way of a file that DuckDB may write, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="orbitkv-sql-") as folder:
        path = Path(folder) / "answer.parquet"
        lock(connection, writes=path)
        write_parquet(connection, query, path)
        with answer_file(asked.output, force=asked.force) as file, path.open("rb") as written:
            shutil.copyfileobj(written, file)


def _write(answer: Answer, asked: _Asked) -> None:
    note = ""
    with answer_file(asked.output, force=asked.force) as file, text_of(file) as out:
        match asked.form:
            case "csv":
                write_csv(answer, out)
            case "json":
                write_json(answer, out)
            case _:
                on_terminal = asked.output is None and sys.stdout.isatty()
                width = shutil.get_terminal_size().columns if on_terminal else None
                note = write_table(answer, out, width=width, rows_max=asked.rows_max)
    if note:
        click.echo(f"note: {note}", err=True)


def _form(form: str | None, output: Path | None, *, shows: bool) -> str:
    if form is None and output is not None:
        form = FORMATS.get(output.suffix.lower())
        if form is None:
            raise click.UsageError(
                f"{output} does not say in which form; end it in {', '.join(FORMATS)}, or give --format"
            )
    if form is None:
        form = "table" if sys.stdout.isatty() or shows else "csv"
    if form == "parquet" and (output is None or shows):
        raise click.UsageError("Parquet is for the answer to a query, in a file: name that with -o")
    return form


def _logs_and_query(
    words: tuple[str, ...],
    query_file: Path | None,
    question: str | None,
    database: Path | None,
    *,
    shows: bool,
) -> tuple[list[Path], str]:
    """The words of the command line are logs, and the last is the query unless that comes from elsewhere."""
    query = ""
    if question:
        query = question_named(question).sql
    elif query_file is not None:
        query = _read(query_file)
    elif not shows:
        if not words or (len(words) == 1 and database is None):
            what = f"{words[0]} is not followed by a query" if words else "there is no log and no query"
            raise click.UsageError(
                f'{what}; try `replay sql LOG "SELECT * FROM requests"`, -f FILE, --questions or --tables'
            )
        *words_left, query = words
        words = tuple(words_left)
    if database is not None and words:
        raise click.UsageError(f"give either a log or --db, not both: {words[0]} and {database}")
    if database is None and not words:
        raise click.UsageError("which log? Name its directory (setting log_path), or a database with --db")
    return [Path(word) for word in words], query


def _read(path: Path) -> str:
    """The query in this file. Raises QueryError."""
    try:
        source: Any = sys.stdin.buffer if str(path) == "-" else path.open("rb")
        with source as file:
            data = file.read(QUERY_BYTES_MAX + 1)
    except OSError as error:
        raise QueryError(
            f"the query in {path} cannot be read: {error.strerror}; name a readable file"
        ) from error
    if len(data) > QUERY_BYTES_MAX:
        raise QueryError(f"{path} has more than {QUERY_BYTES_MAX} bytes: that is no query")
    try:
        return str(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise QueryError(
            f"{path} is no text in UTF-8 (byte {error.start}); save the query as such"
        ) from error
