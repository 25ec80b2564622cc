"""The questions of the report: runs the SQL of this package over a warehouse and hands out rows.

Charts over time count in buckets and show a bounded number of points, however long the log is.
"""

from importlib.resources import files
from typing import Any, TypeAlias

import attrs

from replay.warehouse import Warehouse

BUCKETS_MAX = 6000
"""Over all stretches together: a chart of a line for each stays small."""
BUCKETS_PER_STRETCH_MAX = 400
BUCKETS_PER_STRETCH_MIN = 20
BARS = 80
"""Over all stretches together: what is added up is drawn as bars, which want to be wider than a step."""
SCATTER_MAX = 3000
SLOWEST_MAX = 40
FAILURES_MAX = 30
FAILURES_PER_KIND_MAX = 5

Row: TypeAlias = dict[str, Any]

_PREPARED = ("moments", "spans", "grid", "level_changes", "amounts", "queries")


@attrs.frozen(slots=True)
class Data:
    headline: Row
    incarnations: list[Row]
    levels: list[Row]
    """(series, stretch, ms, value)"""
    amounts: list[Row]
    """(chart, series, stretch, left_ms, right_ms, amount)"""
    totals: dict[str, dict[str, float]]
    """Chart -> series -> amount, the largest first."""
    slowest: list[Row]
    scatter: list[Row]
    instances: list[Row]
    failures: list[Row]
    bucket_ms: float
    """The longest bucket."""
    bar_ms: float

    def level(self, *series: str) -> dict[str, list[Row]]:
        """Those of them that are in the log."""
        found: dict[str, list[Row]] = {}
        for row in self.levels:
            if row["series"] in series:
                found.setdefault(row["series"], []).append(row)
        return found

    def chart(self, name: str) -> dict[str, list[Row]]:
        """Series -> its rows, in the order of their totals."""
        found: dict[str, list[Row]] = {series: [] for series in self.totals.get(name, {})}
        for row in self.amounts:
            if row["chart"] == name and row["series"] in found:
                found[row["series"]].append(row)
        return found


def ask(warehouse: Warehouse) -> Data:
    asking = _Asking(warehouse.connection)
    (stretches,) = warehouse.connection.execute("SELECT count(*) FROM stretches").fetchone()
    buckets = BUCKETS_MAX // max(stretches, 1)
    asking.prepare(buckets=min(max(buckets, BUCKETS_PER_STRETCH_MIN), BUCKETS_PER_STRETCH_MAX), bars=BARS)
    totals: dict[str, dict[str, float]] = {}
    for row in asking.rows("amounts_in_all"):
        totals.setdefault(row["chart"], {})[row["series"]] = row["amount"]
    (headline,) = asking.rows("headline")
    spans = asking.rows("incarnations")
    return Data(
        headline=headline,
        incarnations=spans,
        levels=asking.rows("levels"),
        amounts=asking.rows("amounts_over_time"),
        totals=totals,
        slowest=asking.rows("slowest", limit=SLOWEST_MAX),
        scatter=asking.rows("scatter", limit=SCATTER_MAX),
        instances=asking.rows("instances"),
        failures=asking.rows("failures", each=FAILURES_PER_KIND_MAX, limit=FAILURES_MAX),
        bar_ms=max((row["bar_ms"] for row in spans), default=0.0),
        bucket_ms=max((row["bucket_ms"] for row in spans), default=0.0),
    )


class _Asking:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def prepare(self, **parameters: int) -> None:
        for name in _PREPARED:
            self._run(name, parameters)

    def rows(self, name: str, **parameters: int) -> list[Row]:
        cursor = self._run(name, parameters)
        columns = [column[0] for column in cursor.description]
        return [dict(zip(columns, values, strict=True)) for values in cursor.fetchall()]

    def _run(self, name: str, parameters: dict[str, int]) -> Any:
        sql = (files("replay.report") / "sql" / f"{name}.sql").read_text(encoding="utf-8")
        named = {key: value for key, value in parameters.items() if f"${key}" in sql}
        return self._connection.execute(sql, named) if named else self._connection.execute(sql)
