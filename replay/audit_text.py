"""An audit as people read it: a line for each invariant, the ledgers as tables, and a last line.

Must not conclude anything: what is right and what is not stands in `replay.auditor`.
"""

import click
from rich.console import Console
from rich.table import Table

from replay.auditor import Audit, Cohort, Ledgers, Verdict
from replay.command_line import in_a_line

VIOLATIONS_SHOWN_MAX = 10
"""Per invariant; `--json` has more."""


def print_audit(audit: Audit) -> None:
    names_width = max((len(verdict.invariant) for verdict in audit.verdicts), default=0)
    found_width = max((len(_found(verdict)) for verdict in audit.verdicts), default=0)
    for verdict in audit.verdicts:
        _print_verdict(verdict, names_width, found_width)
    totals = audit.totals
    console = Console(highlight=False, soft_wrap=True)
    for table in (_cohort_table(totals.cohort), _decision_table(totals)):
        console.print()
        console.print(table)
    console.print()
    _print_unjudged(totals)
    broken = sum(verdict.count > 0 for verdict in audit.verdicts)
    if audit.ok:
        click.echo(f"audit: ok, {audit.records} records, {len(audit.verdicts)} invariants")
    else:
        what = f"{broken} of {len(audit.verdicts)} invariants are broken" if broken else "damage"
        click.echo(f"audit: FAILED, {what}; {audit.records} records")


def _found(verdict: Verdict) -> str:
    return f"BROKEN in {verdict.count} {_places(verdict.count)}" if verdict.count else "ok"


def _places(count: int) -> str:
    return "place" if count == 1 else "places"


def _print_verdict(verdict: Verdict, names_width: int, found_width: int) -> None:
    remark = f"  {verdict.remark}" if verdict.remark else ""
    click.echo(
        f"{verdict.invariant:{names_width}}  {_found(verdict):{found_width}}"
        f"  {verdict.elapsed_ms / 1000:7.2f} s{remark}"
    )
    for violation in verdict.first[:VIOLATIONS_SHOWN_MAX]:
        click.echo(f"  {in_a_line(str(violation))}")
    if verdict.count > VIOLATIONS_SHOWN_MAX:
        click.echo(f"  and {verdict.count - VIOLATIONS_SHOWN_MAX} more (--json has more of them)")


def _cohort_table(cohort: Cohort) -> Table:
    table = Table("cohort ledger", box=None, pad_edge=False)
    table.add_column("bytes", justify="right")
    table.add_column("byte-seconds", justify="right")
    table.add_row("prepared", f"{cohort.prepared_bytes:,}", "")
    table.add_row("restored", f"{cohort.restored_bytes:,}", _byte_seconds(cohort.restored_wait_kib_us))
    table.add_row("unused", f"{cohort.unused_bytes:,}", _byte_seconds(cohort.unused_wait_kib_us))
    for cause, unused_bytes in sorted(cohort.unused_bytes_by_cause.items()):
        table.add_row(f"  {cause}", f"{unused_bytes:,}", "")
    table.add_row("pending", f"{cohort.pending_bytes:,}", "")
    return table


def _decision_table(totals: Ledgers) -> Table:
    table = Table("decision ledger", box=None, pad_edge=False)
    names = ("decisions", "asked", "dram", "peer", "ssd", "miss")
    for name in names:
        table.add_column(name, justify="right")
    for kind, row in (("demand", totals.demand), ("warm", totals.warm)):
        table.add_row(kind, *(f"{getattr(row, name):,}" for name in names))
    return table


def _print_unjudged(totals: Ledgers) -> None:
    pages, demands = totals.cohort.unjudged_pages, totals.demand.unjudged
    if pages or demands:
        click.echo(
            f"note: {pages} prepared pages and {demands} demands began before the log does;"
            " what needs their beginning is not judged",
            err=True,
        )


def _byte_seconds(wait_kib_us: int) -> str:
    return f"{wait_kib_us * 1024 // 1_000_000:,}"
