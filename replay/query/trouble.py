"""What is wrong with a question, in words: the place, the reason, the nearest names that there are."""

import re
from difflib import get_close_matches
from typing import Any

from orbitkv.events.frame import LogError

_KIND = re.compile(r"^[A-Z][A-Za-z /-]* Error: ")
_EXCERPT = re.compile(r"\n+LINE (\d+): (.*)\n( *)\^+", re.DOTALL)
_NO_TABLE = re.compile(r"Table with name (.+?) does not exist!")
_GUESS = re.compile(r'\nDid you mean "[^"]*"\?')
NAMES_MAX = 3


class QueryError(LogError):
    """The question cannot be answered. The message says where and why."""


def in_words(connection: Any, question: str, error: Exception) -> str:
    """DuckDB's message as a user can use it."""
    import duckdb

    text = str(error)
    if isinstance(error, duckdb.OutOfMemoryException):
        return (
            "the answer needs more memory or temporary space than it may have; ask for less (a WHERE,"
            f" a LIMIT, fewer columns to sort by), or set TMPDIR to a folder with more room"
            f" ({_first(text)})"
        )
    if isinstance(error, duckdb.PermissionException):
        return f"it wants to read or write files, and a question may only read the log ({_first(text)})"
    excerpt = _EXCERPT.search(text)
    where, body = "", text
    if excerpt is not None:
        where, body = _where(question, excerpt), text[: excerpt.start()]
    missing = _NO_TABLE.search(body)
    if missing:
        return f"there is no table or view {missing[1]}{_nearest(connection, missing[1])}{where}"
    if body.count("\n") > 2:
        body = _first(body)
    body = _KIND.sub("", body.strip()).replace("\n", "; ").replace("!;", ";")
    return f"{body[:1].lower()}{body[1:]}{where}"


def _where(question: str, excerpt: re.Match[str]) -> str:
    """The line with the place under it, as far as DuckDB shows it."""
    number, line, indent = excerpt.groups()
    column = len(indent) - len(f"LINE {number}: ")
    lines = question.splitlines()
    trimmed = int(number) > len(lines) or lines[int(number) - 1] != line
    place = f"line {number}" if trimmed else f"line {number}, column {column + 1}"
    return f"\n  {place}:\n    {line}\n    {' ' * column}^"


def _nearest(connection: Any, name: str) -> str:
    names = table_names(connection)
    near = get_close_matches(name.lower(), names, n=NAMES_MAX, cutoff=0.5)
    if not near:
        near = [each for each in names if name.lower() in each or each in name.lower()][:NAMES_MAX]
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return "; --tables lists what there is"


def table_names(connection: Any) -> list[str]:
    """Of all tables and views of the log."""
    rows = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE NOT internal"
        " UNION SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1"
    ).fetchall()
    return [name for (name,) in rows]


def _first(text: str) -> str:
    return _KIND.sub("", text.strip().partition("\n")[0])
