"""One question in SQL to a loaded log, and its answer row by row.

Exists so that SQL of a user can do nothing but ask. The database is locked before the question is run:
DuckDB reads and writes no file for it, loads no extension, sees no variable of this process, and keeps the
limits on memory and threads that it was opened with. Whatever is wrong with a question is a QueryError.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from replay.query.trouble import QueryError, in_words

ROWS_AT_ONCE = 2048
_QUESTIONS = ("SELECT", "EXPLAIN", "MULTI")
"""Kinds of statements that ask: WITH, FROM, VALUES, SUMMARIZE, DESCRIBE, SHOW are of the first, PIVOT of the
last."""

Row: TypeAlias = tuple[Any, ...]


@attrs.frozen(slots=True)
class Column:
    name: str
    type: str
    """As SQL writes it."""


@attrs.frozen(slots=True)
class Answer:
    columns: Sequence[Column]
    rows: Iterator[Row]
    """Once. Raises QueryError, KeyboardInterrupt."""
    title: str = ""
    """In words; for people."""


def lock(connection: Any, *, writes: Path | None = None) -> None:
    """From now on nothing but questions. `writes`: the one file that answers may be written to."""
    connection.execute("SET python_enable_replacements = false")
    if writes is not None:
        connection.execute("SET allowed_paths = [$path]", {"path": str(writes)})
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def checked(text: str) -> str:
    """The question without the semicolon. Raises QueryError unless it is one, and only one.

    Looks at its form alone: that is known before a log is loaded.
    """
    import duckdb

    with _words(None, text):
        statements = duckdb.extract_statements(text)
    if not statements:
        raise QueryError('there is no question in it; give one, for example "SELECT * FROM requests"')
    if len(statements) > 1:
        raise QueryError(
            f"there are {len(statements)} statements in it, and one is answered at a time;"
            " give each a call of its own"
        )
    kind = statements[0].type.name
    if kind not in _QUESTIONS:
        raise QueryError(
            f"it is a {kind} statement, and a log is only asked; begin with SELECT, WITH, FROM, SUMMARIZE,"
            " DESCRIBE or EXPLAIN, or load the log into a database of your own with `replay load`"
        )
    return text.strip().removesuffix(";")


def ask(connection: Any, text: str) -> Answer:
    """Raises QueryError, KeyboardInterrupt."""
    question = checked(text)
    with _words(connection, question):
        cursor = connection.execute(question)
    columns = [Column(name, str(kind)) for name, kind, *_ in cursor.description or ()]
    return Answer(columns, _rows(connection, cursor, question))


def write_parquet(connection: Any, text: str, path: Path) -> int:
    """The answer as a Parquet file; gives its rows. `lock` must have allowed `path`. Raises as `ask` does."""
    question = checked(text)
    with _words(connection, question):
        target = str(path).replace("'", "''")
        cursor = connection.execute(f"COPY (\n{question}\n) TO '{target}' (FORMAT parquet)")
        return int(cursor.fetchone()[0])


def _rows(connection: Any, cursor: Any, question: str) -> Iterator[Row]:
    while True:
        with _words(connection, question):
            rows = cursor.fetchmany(ROWS_AT_ONCE)
        if not rows:
            return
        yield from rows


@contextmanager
def _words(connection: Any, question: str) -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except duckdb.Error as error:
        raise QueryError(in_words(connection, question, error)) from error
    except RuntimeError as error:
        if "interrupted" in str(error).lower():
            raise KeyboardInterrupt from None
        raise
