"""The worked questions of `replay/QUESTIONS.md`, by name: the page is the only place where they stand."""

import re
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

import attrs

from replay.query.asking import Answer, Column
from replay.query.trouble import QueryError

_QUESTION = re.compile(
    r"^## (?P<name>[a-z-]+)\n\n(?P<asks>.+?)\n\n```sql\n(?P<sql>.+?)\n```\n(?P<reading>.*?)(?=^## |\Z)",
    re.M | re.S,
)


@attrs.frozen(slots=True)
class Question:
    name: str
    asks: str
    """The question in words."""
    sql: str


@cache
def questions() -> dict[str, Question]:
    """In the order of the page."""
    page = (files("replay") / "QUESTIONS.md").read_text(encoding="utf-8")
    return {
        found["name"]: Question(found["name"], " ".join(found["asks"].split()), found["sql"])
        for found in _QUESTION.finditer(page)
    }


def listed_questions() -> Answer:
    rows = [(each.name, each.asks) for each in questions().values()]
    return Answer([Column("question", "VARCHAR"), Column("asks", "VARCHAR")], iter(rows))


def question_named(name: str) -> Question:
    """Raises QueryError with the nearest names."""
    known = questions()
    if name not in known:
        near = get_close_matches(name, known, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else "--questions lists them"
        raise QueryError(f"there is no worked question {name}; {hint}")
    return known[name]
