"""What the demo writes to `summary.json`: named by who says it.

Hits, traffic, restored bytes and the log's size are totals of the manager's log, read by another
process from the files alone. Times and wrong bytes are what the engines saw.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from orbitkv.adapters.demo.feed import Played
from orbitkv.adapters.demo.plan import DemoPlan
from orbitkv.adapters.embedded.messages import EngineReport
from orbitkv.adapters.trace_statistics import quantiles


class Tiers(msgspec.Struct):
    dram: int
    ssd: int


class ModelledMs(msgspec.Struct):
    """Milliseconds on a clock that waits for a modelled GPU; see `model`."""

    p50: float
    p95: float
    modelled: bool = True
    model: str = ""


class ExposedMs(msgspec.Struct):
    """Milliseconds that a request which could have been let in waited for its restored KV to be usable."""

    p50: float
    p95: float
    restores: int
    """Over so many restored requests; the copies' comparison, which only this engine does, is left out."""


class Workload(msgspec.Struct, kw_only=True):
    source: str
    warmup: bool
    speed: float
    seed: int
    engines: int
    ranks: int
    scale: float
    """One factor for page bytes and compute time."""
    page_bytes: int
    pool_pages: int
    hbm_pages: int
    working_set_pages: int


class Summary(msgspec.Struct, kw_only=True):
    requests: int
    completed: int
    ttft_ms: ModelledMs
    asked_pages: int
    """Pages that engines asked the manager for: hits and misses add up to it."""
    hit_pages: Tiers
    missed_pages: int
    ssd_read_bytes: int
    ssd_write_bytes: int
    restored_bytes: int
    """Bytes that ranks copied out of the pool, as they reported them."""
    ssd_bytes_per_request: int
    """Read from the SSD, over the requests that were served."""
    exposed_wait_ms: ExposedMs
    prepared_bytes: int
    """Footprints of pages whose read a hint started, each at its own verified landing. This is the sum of
    the following three."""
    restored_warm_bytes: int
    """Of those, what a successful copy named at least once."""
    unused_bytes: int
    """Of those, what left before that."""
    pending_bytes: int
    """Of those, what was still there without an outcome when the manager was stopped."""
    hints_admitted: int
    hint_skips: dict[str, int]
    """Hints that the manager did not admit, by reason."""
    byte_mismatches: int
    io_engine: str
    io_direct: bool
    io_reason: str
    log_records: int
    log_bytes: int
    verify: str
    """ "ok", or the first difference."""
    wall_s: float
    workload: Workload
    engine: dict[str, int]
    """Sums over the engines, as they saw it."""
    manager: dict[str, Any]
    """All totals of the log."""
    trouble: list[str] = []
    """What was not as it should be; empty after a good run."""

    @property
    def good(self) -> bool:
        return not self.trouble

    @property
    def requests_per_s(self) -> float:
        return self.completed / self.wall_s if self.wall_s else 0.0


def summarise(plan: DemoPlan, played: Played, folded: dict[str, Any], log_bytes: int, verify: str) -> Summary:
    """`folded`: what the fold of the log says, as JSON."""
    engine = _sum(played.reports)
    figures = log_figures(folded)
    summary = Summary(
        requests=len(plan.requests),
        completed=engine.completed,
        ttft_ms=_ttft(played.first_tokens_us, plan),
        exposed_wait_ms=_exposed(played.exposed_waits_us),
        ssd_bytes_per_request=figures["ssd_read_bytes"] // max(1, engine.completed),
        verify=verify,
        wall_s=round(played.wall_s, 3),
        byte_mismatches=engine.byte_mismatches,
        workload=_workload(plan),
        engine=msgspec.structs.asdict(engine),
        log_bytes=log_bytes,
        **figures,
    )
    summary.trouble = list(_trouble(summary))
    return summary


def log_figures(folded: dict[str, Any]) -> dict[str, Any]:
    """The part of the summary that the log alone tells; one incarnation, as the log is new."""
    (incarnation,) = folded["incarnations"]
    totals, store = incarnation["totals"], incarnation["store"]
    return {
        "asked_pages": totals["asked_pages"],
        "hit_pages": Tiers(totals["dram_pages"], totals["ssd_pages"]),
        "missed_pages": totals["miss_pages"],
        "ssd_read_bytes": totals["read_bytes"],
        "ssd_write_bytes": totals["write_bytes"],
        "restored_bytes": totals["load_bytes"],
        **_cohort(totals),
        "hints_admitted": totals["hints_admitted"],
        "hint_skips": totals["hint_skips"],
        "io_engine": store["engine"],
        "io_direct": store["direct"],
        "io_reason": store["reason"],
        "log_records": incarnation["records"],
        "manager": totals,
    }


def _cohort(totals: dict[str, Any]) -> dict[str, int]:
    """What became of prepared pages. A manager that stops closes the books of pending ones as `restart`."""
    unused: dict[str, int] = dict(totals["unused_bytes"])
    return {
        "prepared_bytes": totals["prepared_bytes"],
        "restored_warm_bytes": totals["restored_bytes"],
        "pending_bytes": totals["pending_bytes"] + unused.pop("restart", 0),
        "unused_bytes": sum(unused.values()),
    }


def _sum(reports: Sequence[EngineReport]) -> EngineReport:
    fields = EngineReport.__struct_fields__
    return EngineReport(**{name: sum(getattr(report, name) for report in reports) for name in fields})


def _ttft(first_tokens_us: Sequence[int], plan: DemoPlan) -> ModelledMs:
    p50, p95 = quantiles(first_tokens_us, (0.50, 0.95))
    model = (
        f"compute time of Qwen3-8B on one H20 by formula, divided by {plan.scale:g}; queueing and copies real"
    )
    return ModelledMs(round(p50 / 1000, 3), round(p95 / 1000, 3), model=model)


def _exposed(waits_us: Sequence[int]) -> ExposedMs:
    p50, p95 = quantiles(waits_us, (0.50, 0.95))
    return ExposedMs(round(p50 / 1000, 3), round(p95 / 1000, 3), len(waits_us))


def _workload(plan: DemoPlan) -> Workload:
    options = plan.options
    return Workload(
        source=options.trace.name if options.trace is not None else "generated",
        warmup=options.warmup,
        speed=options.speed,
        seed=options.seed,
        engines=options.engines,
        ranks=options.ranks,
        scale=plan.scale,
        page_bytes=plan.page_bytes,
        pool_pages=plan.pool_pages,
        hbm_pages=plan.hbm_pages,
        working_set_pages=plan.working_set_pages,
    )


def _trouble(summary: Summary) -> Iterator[str]:
    if summary.completed != summary.requests:
        yield f"{summary.requests - summary.completed} requests did not end"
    if summary.byte_mismatches:
        yield f"{summary.byte_mismatches} restored bytes were wrong"
    if summary.verify != "ok":
        yield f"the log does not verify: {summary.verify}"
    answered = summary.hit_pages.dram + summary.hit_pages.ssd + summary.missed_pages
    if answered != summary.asked_pages:
        yield f"the books do not balance: {answered} pages answered of {summary.asked_pages} asked"
    outcomes = summary.restored_warm_bytes + summary.unused_bytes + summary.pending_bytes
    if summary.prepared_bytes != outcomes:
        yield f"of {summary.prepared_bytes} prepared bytes, {outcomes} have an outcome or are pending"
    if summary.restored_bytes != summary.engine["restored_bytes"]:
        seen = summary.engine["restored_bytes"]
        yield f"the log has {summary.restored_bytes} restored bytes, the engines saw {seen}"
