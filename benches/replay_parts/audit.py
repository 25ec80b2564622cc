"""What each invariant of the audit costs, as a multiple of counting the log's records by kind.

Wall time, because DuckDB works in threads; the log is loaded once. `count by kind` is the plainest question
that goes through a whole table (the baseline; again as the null run).
"""

import time

from benches.common import Arm, Report, Sample, interleave, table
from benches.replay_parts.logs import BenchLog
from replay.auditor import invariants
from replay.warehouse import Warehouse, load_log, sql_text

BASELINE = "count by kind"
_COUNT = "SELECT cause, count(*) FROM records GROUP BY cause"


def measure(report: Report, log: BenchLog, rounds: int) -> None:
    with load_log(log.path) as warehouse:
        warehouse.connection.execute(sql_text("macros/operation_name"))
        arms: dict[str, Arm] = {
            BASELINE: _ask(warehouse, _COUNT),
            f"{BASELINE} again": _ask(warehouse, _COUNT),
        }
        for name in invariants():
            arms[name] = _ask(warehouse, sql_text(name).rstrip().removesuffix(";"), finds_nothing=True)
        found = interleave(arms, rounds=rounds)
    rows = table("audit", "invariant", "ms", f"times {BASELINE}")
    figures: dict[str, object] = {}
    for arm in arms:
        spread, ratio = found.spread(arm, "ms"), found.ratio(arm, BASELINE, "ms")
        rows.add_row(arm, spread.text(1), ratio.text(1))
        figures[f"audit: {arm}"] = {"ms": spread.median, f"times {BASELINE}": ratio.median}
    whole_ms = sum(found.spread(name, "ms").median for name in arms if not name.startswith(BASELINE))
    figures["audit: all invariants"] = {"ms": whole_ms, "us_per_record": whole_ms * 1e3 / len(log.records)}
    report.add(rows, figures)
    report.condition(
        "audit", f"{whole_ms:,.0f} ms for all invariants, {whole_ms * 1e3 / len(log.records):.1f} us a record"
    )


def _ask(warehouse: Warehouse, sql: str, *, finds_nothing: bool = False) -> Arm:
    def run(_: int) -> Sample:
        started = time.perf_counter_ns()
        rows = warehouse.connection.execute(sql).fetchall()
        elapsed_ms = (time.perf_counter_ns() - started) / 1e6
        assert not (finds_nothing and rows), f"the log is healthy, and the audit says {rows[:2]}"
        return {"ms": elapsed_ms}

    return run
