"""Asks a log whether it adds up: runs the invariants of `replay/sql` over its facts.

`python -m replay audit LOG`. Every file there is one invariant; it gives a row (stretch, seq, why) for
each place where the log breaks it. Must not know the kernel: what the facts should add up to is written
down a second time, in SQL, so that one mistake cannot hide in both.
"""

import time
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import attrs

from replay.log import Log, Progress
from replay.warehouse import Warehouse, load_log, sql_text

VIOLATIONS_TOLD_MAX = 100
"""Per invariant, if nothing else is said; all are counted."""

_Sums = TypeVar("_Sums", "Cohort", "Decisions")


@attrs.frozen(slots=True)
class Violation:
    incarnation: int
    seq: int
    why: str

    def __str__(self) -> str:
        return f"incarnation {self.incarnation} seq {self.seq}: {self.why}"


@attrs.frozen(slots=True)
class Verdict:
    invariant: str
    meaning: str
    """The invariant in prose."""
    count: int
    first: list[Violation]
    """In the order of the log; only the first are told."""
    elapsed_ms: int
    remark: str = ""
    """What else is to be known of how it was found."""


@attrs.frozen(slots=True, kw_only=True)
class Cohort:
    """The cohort ledger as the facts tell it. It balances where the invariant holds."""

    prepared_bytes: int = 0
    restored_bytes: int = 0
    unused_bytes: int = 0
    unused_bytes_by_cause: dict[str, int] = attrs.field(factory=dict)
    pending_bytes: int = 0
    restored_wait_kib_us: int = 0
    """KiB x microseconds from landing to outcome."""
    unused_wait_kib_us: int = 0
    unjudged_pages: int = 0
    """Prepared pages of which a part of their life lies before the log."""


@attrs.frozen(slots=True, kw_only=True)
class Decisions:
    """The decision ledger of one kind, in pages."""

    decisions: int = 0
    asked: int = 0
    dram: int = 0
    peer: int = 0
    ssd: int = 0
    miss: int = 0
    unjudged: int = 0
    """Decisions on demands that were opened before the log begins; only their sum is judged."""


@attrs.frozen(slots=True, kw_only=True)
class Ledgers:
    cohort: Cohort = Cohort()
    demand: Decisions = Decisions()
    warm: Decisions = Decisions()
    """What the lookups of hints saw."""

    def __add__(self, other: "Ledgers") -> "Ledgers":
        return Ledgers(
            cohort=_added(self.cohort, other.cohort),
            demand=_added(self.demand, other.demand),
            warm=_added(self.warm, other.warm),
        )


@attrs.frozen(slots=True)
class Audit:
    log: Log
    records: int
    verdicts: list[Verdict]
    by_incarnation: dict[int, Ledgers]

    @property
    def ok(self) -> bool:
        return not self.log.troubles and not any(verdict.count for verdict in self.verdicts)

    @property
    def totals(self) -> Ledgers:
        return sum(self.by_incarnation.values(), Ledgers())

    def as_json(self) -> dict[str, Any]:
        return {
            "log": str(self.log.path),
            "ok": self.ok,
            "records": self.records,
            "invariants": [attrs.asdict(verdict) for verdict in self.verdicts],
            "totals": attrs.asdict(self.totals),
            "incarnations": [
                {"incarnation": number} | attrs.asdict(ledgers)
                for number, ledgers in self.by_incarnation.items()
            ],
            "troubles": [attrs.asdict(each) | {"path": str(each.path)} for each in self.log.troubles],
            "notes": self.log.notes,
        }


def audit_log(
    path: Path,
    progress: Progress | None = None,
    *,
    violations_max: int = VIOLATIONS_TOLD_MAX,
    only: Iterable[str] | None = None,
) -> Audit:
    """`only`: names of the invariants to look at; else all.

    Raises LogError: it cannot be read as asked, or DuckDB is not there or lacks room.
    """
    with load_log(path, progress=progress) as warehouse:
        return audit_loaded(warehouse, violations_max=violations_max, only=only)


def audit_loaded(
    warehouse: Warehouse, *, violations_max: int = VIOLATIONS_TOLD_MAX, only: Iterable[str] | None = None
) -> Audit:
    """Of a log that is loaded already."""
    warehouse.connection.execute(sql_text("macros/operation_name"))
    names = invariants() if only is None else only
    verdicts = [_verdict(warehouse, name, violations_max) for name in names]
    return Audit(warehouse.log, warehouse.records, verdicts, _ledgers(warehouse))


def invariants() -> list[str]:
    """Names of the files, without their ending."""
    names = (entry.name for entry in (files("replay") / "sql").iterdir())
    return sorted(name.removesuffix(".sql") for name in names if name.endswith(".sql"))


def meaning(sql: str) -> str:
    """The first paragraph of the comment that a file begins with, as one line."""
    lines = []
    for line in sql.splitlines():
        text = line.removeprefix("--").strip()
        if not line.startswith("--") or not text:
            break
        lines.append(text)
    return " ".join(lines)


def _verdict(warehouse: Warehouse, name: str, violations_max: int) -> Verdict:
    sql = sql_text(name)
    began = time.monotonic()
    rows = warehouse.connection.execute(
        f"SELECT s.incarnation, v.seq, v.why, count(*) OVER () FROM ({sql.rstrip().removesuffix(';')}) v"
        " JOIN stretches s USING (stretch) ORDER BY v.stretch, v.seq, v.why LIMIT ?",
        [violations_max],
    ).fetchall()
    first = [Violation(incarnation, seq, why) for incarnation, seq, why, _ in rows]
    elapsed_ms = round((time.monotonic() - began) * 1000)
    return Verdict(name, meaning(sql), rows[0][3] if rows else 0, first, elapsed_ms)


def _ledgers(warehouse: Warehouse) -> dict[int, Ledgers]:
    found = {
        row.pop("incarnation"): Ledgers(cohort=Cohort(**row)) for row in _rows(warehouse, "totals/cohort")
    }
    for row in _rows(warehouse, "totals/decisions"):
        incarnation, kind = row.pop("incarnation"), row.pop("kind")
        part = Ledgers(demand=Decisions(**row)) if kind == "demand" else Ledgers(warm=Decisions(**row))
        found[incarnation] += part
    return found


def _rows(warehouse: Warehouse, name: str) -> list[dict[str, Any]]:
    cursor = warehouse.connection.execute(sql_text(name))
    columns = [column[0] for column in cursor.description]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def _added(one: _Sums, other: _Sums) -> _Sums:
    """The sums of their fields, those in dicts key by key."""
    left, right = (attrs.asdict(each) for each in (one, other))
    for name, value in right.items():
        if isinstance(value, dict):
            left[name] = {key: left[name].get(key, 0) + value.get(key, 0) for key in left[name] | value}
        else:
            left[name] += value
    return type(one)(**left)
