"""The comparison as a table for people: medians over the pairs, and the least and greatest in brackets."""

from collections.abc import Mapping

from rich.box import SIMPLE_HEAD
from rich.table import Table

from orbitkv.adapters.demo.compared import Comparison, Spread

ROWS = (
    ("requests/s", "requests_per_s"),
    ("TTFT p50 ms (modelled)", "ttft_p50_ms"),
    ("TTFT p95 ms (modelled)", "ttft_p95_ms"),
    ("exposed wait p50 ms", "exposed_wait_p50_ms"),
    ("exposed wait p95 ms", "exposed_wait_p95_ms"),
    ("SSD MiB read/request", "ssd_mib_per_request"),
    ("prepared MiB", "prepared_mib"),
    ("  restored MiB", "restored_warm_mib"),
    ("  unused MiB", "unused_mib"),
    ("  pending at the end MiB", "pending_mib"),
    ("hints admitted", "hints_admitted"),
)


def comparison_table(comparison: Comparison) -> Table:
    direct = "O_DIRECT" if comparison.io_direct else "buffered"
    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title=f"Warm-up off and on: {comparison.pairs} pairs of {comparison.requests} requests; "
        f"SSD {comparison.medium}, {comparison.io_engine}, {direct}",
        title_justify="left",
    )
    # What a figure is stays on one line, also in a terminal of 80 columns.
    table.add_column("median (low high)", style="cyan", no_wrap=True)
    for column in ("off", "on", "on / off"):
        table.add_column(column, justify="right")
    for words, name in ROWS:
        figure = comparison.figures[name]
        ratio = _words(figure.ratio) if figure.ratio is not None else "-"
        table.add_row(words, _words(figure.off), _words(figure.on), ratio)
    table.add_row("hints skipped", *(skip_words(comparison.skips[arm]) or "0" for arm in ("off", "on")), "")
    return table


def skip_words(skips: Mapping[str, float]) -> str:
    return ", ".join(f"{count:g} {reason}" for reason, count in skips.items() if count)


def _words(spread: Spread) -> str:
    return f"{_short(spread.median)} ({_short(spread.low)} {_short(spread.high)})"


def _short(value: float) -> str:
    """Three figures or so: the table has to fit 80 columns."""
    return f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"
