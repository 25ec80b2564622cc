"""The command line of the log's tools: `python -m replay COMMAND`, most of them in a module of their own.

Exit codes: 0 all is well, 1 a difference or damage was found, 2 the log cannot be read as asked, 130 it was
interrupted.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import click

from replay.audit_command import audit_command
from replay.command_line import Commands, Unreadable, errors_in_words, print_remarks, progress_bar
from replay.export_command import export_command
from replay.findings import Incarnation, Report
from replay.fixture_command import fixture_command
from replay.fold import fold_log
from replay.load_command import load_command
from replay.log import Progress
from replay.perfetto_command import perfetto_command
from replay.report_command import report_command
from replay.seal_command import seal_command
from replay.simulate_command import simulate_command
from replay.sql_command import sql_command
from replay.timeline import open_lines
from replay.timeline_text import print_timeline
from replay.verify import verify_log

_Walk: TypeAlias = Callable[[Path, Progress | None], Report]

_log_argument = click.argument("log", type=click.Path(path_type=Path))
_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Ask an operation log what happened. Reading never changes a log.

    LOG is a log directory (setting log_path) or one segment file: growing, sealed, compressed or cut.
    """


main.add_command(simulate_command)
main.add_command(fixture_command)
main.add_command(audit_command)
main.add_command(report_command)
main.add_command(perfetto_command)
main.add_command(export_command)
main.add_command(load_command)
main.add_command(seal_command)
main.add_command(sql_command)


@main.command()
@_log_argument
@_json_option
def fold(log: Path, as_json: bool) -> None:
    """Apply the log's facts and print the state at each incarnation's end."""
    _report("fold", log, fold_log, as_json=as_json)


@main.command()
@_log_argument
@_json_option
def verify(log: Path, as_json: bool) -> None:
    """Decide every record again and compare, byte for byte."""
    _report("verify", log, verify_log, as_json=as_json)


@main.command()
@_log_argument
@click.option("--request", help="Only what concerns this request.")
@click.option("--full", is_flag=True, help="Every field of every fact, one fact a line.")
def timeline(log: Path, request: str | None, full: bool) -> None:
    """One line for each record, for people."""
    with errors_in_words():
        opened, told = open_lines(log, request)
        count = print_timeline(told, request, full=full)
        if request is not None and not count:
            raise Unreadable(f"{log} has no record of a request {request!r}; list all with `timeline LOG`")
        print_remarks(opened)
        if opened.troubles:
            sys.exit(1)


def _report(name: str, path: Path, walk: _Walk, *, as_json: bool) -> None:
    with errors_in_words():
        if as_json:
            report = walk(path, None)
            click.echo(json.dumps(report.as_json()))
        else:
            with progress_bar(name, path) as told:
                report = walk(path, told)
            _print_report(name, report)
    sys.exit(0 if report.ok else 1)


def _print_report(name: str, report: Report) -> None:
    for found in report.incarnations:
        click.echo(_incarnation_text(found))
    if report.difference is not None:
        click.echo(f"difference: {report.difference}")
    print_remarks(report.log)
    if report.ok:
        click.echo(f"{name}: ok, {report.records} records")
    else:
        what = "a difference" if report.difference else "damage"
        click.echo(f"{name}: FAILED, {what}; {report.records} records are as they should be")


def _incarnation_text(found: Incarnation) -> str:
    end = "closed" if found.closed else "not closed"
    if found.lost_tail:
        end += ", its tail was lost"
    last_seq = found.next_seq - 1
    lines = [
        f"incarnation {found.incarnation}: seq {found.first_seq} to {last_seq}, {found.segments} segments,"
        f" {found.snapshots_compared} snapshots compared, {end}"
    ]
    if found.state:
        lines += [f"  {found.state}", f"  digest {found.digest}"]
    return "\n".join(lines)


if __name__ == "__main__":
    main(prog_name="replay")
