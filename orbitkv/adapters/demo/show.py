"""What the demo shows: a plan, a bar, a table. Words go to stderr, the result to stdout."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from orbitkv.adapters.demo.compared import Comparison
from orbitkv.adapters.demo.pictures import Pictures
from orbitkv.adapters.demo.plan import DemoPlan
from orbitkv.adapters.demo.show_comparison import comparison_table, skip_words
from orbitkv.adapters.demo.summary import Summary
from orbitkv.events.config import MIB


class Screen:
    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._words = Console(stderr=True, quiet=as_json, highlight=False)
        self._result = Console(highlight=False)

    def say(self, words: str) -> None:
        self._words.print(words, markup=False, soft_wrap=True)

    def plan(self, plan: DemoPlan) -> None:
        """What is going to run, and by which factor it is smaller than the real thing."""
        options = plan.options
        source = options.trace if options.trace is not None else f"generated, seed {options.seed}"
        self.say(
            f"{len(plan.requests)} requests ({source}) at {options.speed:g}x, "
            f"{options.engines} x {options.ranks} ranks, pool {options.pool_bytes // MIB} MiB "
            f"({plan.pool_pages} pages), SSD {options.ssd_bytes // MIB} MiB, "
            f"GPU memory {plan.hbm_pages} pages an engine, working set {plan.working_set_pages} pages"
        )
        self.say(
            f"scale 1/{plan.scale:g}: a page of 512 tokens has {plan.page_bytes // 1024} KiB instead of "
            f"72 MiB, and the modelled GPU computes {plan.scale:g} times as fast"
        )
        if plan.working_set_fits_pool:
            self.say(
                "the working set fits the pool: the SSD will hardly be read; a smaller --pool shows more"
            )

    def warmup(self, on: bool) -> None:
        if on:
            self.say("warm-up is on: engines hint what queued requests will miss (--warmup off: without)")
        else:
            self.say("warm-up is off: pages are read when they are asked for (--warmup on: before that)")

    @contextmanager
    def progress(self, requests: int, name: str) -> Iterator[Callable[[int], None]]:
        """A bar over the requests; the function is told how many have ended."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        # Refreshed by hand: a thread would still draw while the run is being ended.
        with Progress(
            *columns, console=self._words, auto_refresh=False, disable=self._as_json, transient=True
        ) as bar:
            task = bar.add_task(name, total=requests)

            def advance(completed: int) -> None:
                bar.update(task, completed=completed, refresh=True)

            yield advance

    def summary(self, summary: Summary, out: Path) -> None:
        self._show(summary, _table(summary), summary.trouble, f"summary and log: {out}")

    def comparison(self, comparison: Comparison, out: Path) -> None:
        where = f"all summaries and logs: {out}"
        self._show(comparison, comparison_table(comparison), comparison.trouble, where)

    def pictures(self, pictures: Pictures) -> None:
        if not self._as_json:
            for line in pictures.lines:
                self._result.print(line, markup=False, soft_wrap=True)

    def _show(self, document: object, table: Table, troubles: Sequence[str], where: str) -> None:
        if self._as_json:
            print(msgspec.json.format(msgspec.json.encode(document)).decode(), flush=True)
            return
        self._result.print(table)
        for trouble in troubles:
            self._result.print(trouble, style="bold red", markup=False)
        self._result.print(where, markup=False, soft_wrap=True)


def _table(summary: Summary) -> Table:
    table = Table(
        box=SIMPLE_HEAD, show_header=False, pad_edge=False, title="OrbitKV demo", title_justify="left"
    )
    table.add_column(style="cyan")
    table.add_column(justify="right")
    table.add_column(style="dim")
    for section in _sections(summary):
        for row in section:
            table.add_row(*row)
        table.add_section()
    return table


Row = tuple[str, str, str]


def _sections(summary: Summary) -> Iterator[list[Row]]:
    engine, hits, ttft = summary.engine, summary.hit_pages, summary.ttft_ms
    prepared = summary.prepared_bytes
    yield [
        ("requests", f"{summary.completed} of {summary.requests}", f"in {summary.wall_s:.1f} s"),
        (
            "TTFT p50, p95 (modelled)",
            f"{ttft.p50:.1f}, {ttft.p95:.1f} ms",
            f"time scaled 1/{summary.workload.scale:g}",
        ),
        (
            "exposed wait p50, p95",
            f"{summary.exposed_wait_ms.p50:.1f}, {summary.exposed_wait_ms.p95:.1f} ms",
            f"of {summary.exposed_wait_ms.restores:,} restored requests",
        ),
    ]
    asked = summary.asked_pages
    yield [
        ("pages in GPU memory", f"{engine['hbm_hit_pages']:,}", "never asked for"),
        ("pages asked for", f"{asked:,}", "dram + ssd + missed"),
        ("  hit in DRAM", f"{hits.dram:,}", _share(hits.dram, asked)),
        ("  hit on SSD", f"{hits.ssd:,}", _share(hits.ssd, asked)),
        (
            "  missed",
            f"{summary.missed_pages:,}",
            f"{_share(summary.missed_pages, asked)}, computed",
        ),
    ]
    yield [
        ("SSD read", _mib(summary.ssd_read_bytes), _engine(summary)),
        ("  per request", _mib(summary.ssd_bytes_per_request), ""),
        ("SSD written", _mib(summary.ssd_write_bytes), ""),
        ("restored to GPU memory", _mib(summary.restored_bytes), "copied out of the pool"),
        ("wrong bytes", f"{summary.byte_mismatches:,}", "every restored page compared"),
    ]
    yield [
        (
            "prepared for hints" if summary.workload.warmup else "prepared (warm-up off)",
            _mib(summary.prepared_bytes),
            "= restored + unused + pending",
        ),
        ("  restored", _mib(summary.restored_warm_bytes), _share(summary.restored_warm_bytes, prepared)),
        ("  unused", _mib(summary.unused_bytes), _share(summary.unused_bytes, prepared)),
        ("  pending at the end", _mib(summary.pending_bytes), _share(summary.pending_bytes, prepared)),
        ("hints admitted", f"{summary.hints_admitted:,}", f"of {engine['hints_sent']:,} sent"),
        ("hints skipped", f"{sum(summary.hint_skips.values()):,}", skip_words(summary.hint_skips)),
    ]
    yield [
        ("log", f"{summary.log_records:,} records", _mib(summary.log_bytes)),
        ("log verified", summary.verify.splitlines()[0], "by another process"),
    ]


def _engine(summary: Summary) -> str:
    return f"{summary.io_engine}, {'O_DIRECT' if summary.io_direct else 'buffered'}"


def _mib(count: int) -> str:
    return f"{count / MIB:,.1f} MiB"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"
