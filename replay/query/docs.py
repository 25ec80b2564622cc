"""What the tables and views of a loaded log mean, from where it is written down.

Tables of facts are explained by the docstrings of `orbitkv.events.facts`, everything else by the comment
that its SQL file begins with: `-- name: meaning`, then lines `-- column   meaning`. Both are read as text,
so that no word stands in two places.
"""

import ast
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from inspect import cleandoc, getsource
from typing import Any

import attrs

from orbitkv.events import facts
from replay.query.asking import Answer, Column, Row
from replay.query.trouble import QueryError, table_names

_PLACE = {
    "stretch": "run of records without a gap; `stretches` tells of which log and incarnation",
    "seq": "the record's place in its incarnation",
    "fact": "place among all facts of the database, rising in log order",
}
_BOOK: dict[str, tuple[str, dict[str, str]]] = {
    "records": (
        "one row for each record of a log",
        {
            "at_ns": "the manager's monotonic clock",
            "cause": "the command that led to it",
            "fact": "its last fact; that of a record before where it has none",
        },
    ),
    "stretches": (
        "one row for each run of records without a gap, of one incarnation of one log",
        {
            "log": "its directory",
            "next_seq": "behind the last",
            "whole": "it begins with the incarnation, so nothing that it speaks of is older",
        },
    ),
    "segments": (
        "one row for each segment that was loaded",
        {
            "wall_offset_ns": "at_ns + this is a wall time, in nanoseconds since 1970",
            "stop": "how its bytes end: open, sealed, torn, hole or damaged",
            "next_seq": "behind the last record that was loaded",
        },
    ),
    "troubles": ("one row for each thing in a log that no healthy log has", {"what": "in words"}),
    "config": ("one row for each incarnation: the settings that its decisions depend on", {}),
    "warehouse": ("what the database is made of, for `replay load`", {}),
}
"""Tables that are neither facts nor made by a file of SQL."""
_COLUMN = re.compile(r"--\s{1,3}(\S+(?:, \S+)*)\s{2,}(\S.*)")


@attrs.define
class Doc:
    kind: str
    """fact, list, view or table."""
    meaning: str = ""
    columns: dict[str, str] = attrs.field(factory=dict)


def listed(connection: Any) -> Answer:
    """All tables and views: views for people first, then facts and their lists, then the rest."""
    docs = documents()
    rows = []
    for name, is_view in _names(connection):
        doc = _doc_of(name, docs, is_view=is_view)
        rows.append((doc.kind, name, _first_sentence(doc.meaning)))
    order = {"view": 0, "fact": 1, "list": 2, "table": 3}
    rows.sort(key=lambda row: (order[row[0]], row[1]))
    columns = [Column("kind", "VARCHAR"), Column("name", "VARCHAR"), Column("meaning", "VARCHAR")]
    return Answer(columns, iter(rows))


def described(connection: Any, name: str) -> Answer:
    """The columns of one of them. Raises QueryError with the nearest names."""
    names = dict(_names(connection))
    wanted = name.strip().lower()
    if wanted not in names:
        near = get_close_matches(wanted, table_names(connection), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "--tables lists what there is"
        raise QueryError(f"there is no table or view {name}; {hint}")
    doc = _doc_of(wanted, documents(), is_view=names[wanted])
    return Answer(
        [Column("column", "VARCHAR"), Column("type", "VARCHAR"), Column("meaning", "VARCHAR")],
        _described(connection, wanted, doc),
        f"{wanted}: {' '.join(doc.meaning.split())}" if doc.meaning else wanted,
    )


def _described(connection: Any, name: str, doc: Doc) -> Iterator[Row]:
    rows = connection.execute(
        "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? AND NOT internal"
        " ORDER BY column_index",
        [name],
    ).fetchall()
    for column, kind in rows:
        yield column, _short(kind), _meaning(doc, column)


def _short(kind: str) -> str:
    """Of an ENUM the words, as far as they say what it is."""
    return kind if len(kind) <= 60 else kind[:57] + "..."


def _meaning(doc: Doc, column: str) -> str:
    told = doc.columns.get(column)
    if told is None:
        told = next(
            (
                text
                for name, text in doc.columns.items()
                if name.endswith("*") and column.startswith(name.rstrip("*"))
            ),
            None,
        )
    return told or _PLACE.get(column, "")


def _names(connection: Any) -> list[tuple[str, bool]]:
    """Of each whether it is a view."""
    views = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    known = {name for (name,) in views}
    return [(name, name in known) for name in table_names(connection)]


def _doc_of(name: str, docs: dict[str, Doc], *, is_view: bool) -> Doc:
    if name in docs:
        return docs[name]
    owners = [each for each in docs if docs[each].kind == "fact" and name.startswith(f"{each}_")]
    if owners:
        owner = max(owners, key=len)
        what = name.removeprefix(f"{owner}_")
        columns = docs[owner].columns
        return Doc("list", columns.get(what) or f"`{what}` of {owner}, one row for each", columns)
    return Doc("view" if is_view else "table")


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0].rstrip(".")


# --- where it is written down -------------------------------------------------------------------------


@cache
def documents() -> dict[str, Doc]:
    book = {name: Doc("table", meaning, columns) for name, (meaning, columns) in _BOOK.items()}
    derived, views = _sql_files("derived", "table"), _sql_files("views", "view")
    return {**dict(_facts()), **book, **dict(derived), **dict(views)}


def _facts() -> Iterator[tuple[str, Doc]]:
    """Docstrings of the kinds, and the strings behind their fields."""
    for node in ast.parse(getsource(facts)).body:
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        doc = Doc("fact", cleandoc(ast.get_docstring(node) or ""))
        before = ""
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                before = statement.target.id
            elif before and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                told = " ".join(str(statement.value.value).split())
                doc.columns[before] = doc.columns[before.removesuffix("s")] = told
                before = ""
        yield re.sub(r"(?<!^)(?=[A-Z])", "_", node.name).lower(), doc


def _sql_files(folder: str, kind: str) -> Iterator[tuple[str, Doc]]:
    place = files("replay") / "sql" / folder
    if not place.is_dir():
        return
    for entry in place.iterdir():
        if entry.name.endswith(".sql"):
            name = entry.name.removesuffix(".sql")
            yield name, sql_doc(name, kind, entry.read_text(encoding="utf-8"))


def sql_doc(name: str, kind: str, text: str) -> Doc:
    """From the comment that a file begins with."""
    doc, last = Doc(kind), ""
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        said = line.removeprefix("--")
        column = _COLUMN.match(line)
        if line.startswith(f"-- {name}:"):
            doc.meaning = said.strip().removeprefix(f"{name}:").strip()
        elif column is not None and not said.startswith("    "):
            for last in column[1].split(", "):
                doc.columns[last] = column[2]
        elif last and said.startswith("    "):
            doc.columns[last] += f" {said.strip()}"
        elif said.strip():
            last = ""
            doc.meaning += f" {said.strip()}"
    return doc
