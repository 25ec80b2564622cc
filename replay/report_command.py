"""`replay report`: a log as one HTML file with pictures."""

import sys
from pathlib import Path
from types import ModuleType

import click

from orbitkv.events.frame import LogError
from replay.command_line import errors_in_words, print_remarks, progress_bar
from replay.output_file import check_output, output_file


@click.command("report")
@click.argument("log", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The file to write.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def report_command(log: Path, output: Path, force: bool) -> None:
    """Write the log's story as one HTML file: verdict, requests, budgets, tiers, SSD, pool, hints.

    The file holds everything that it shows and loads nothing. Needs the extra `replay`.

    Exit codes: 0 all is well, 1 the log is damaged or does not add up (the report says where), 2 it cannot
    be done.
    """
    with errors_in_words():
        check_output(output, force=force)
        making = _making()
        with progress_bar("report", log, passes=2) as told:
            audit, page = making.make_report(log, told)
        with output_file(output, force=force) as file:
            file.write(page.encode())
    print_remarks(audit.log)
    verdict = "ok" if audit.ok else "the log is damaged or does not add up, see the report"
    click.echo(f"report: {output}, {audit.records} records, audit: {verdict}")
    sys.exit(0 if audit.ok else 1)


def _making() -> ModuleType:
    """Imported late: other commands need none of its libraries, and do without the time to load them."""
    try:
        from replay.report import making
    except ImportError as error:
        raise LogError(
            f"a report needs {error.name or 'a library'}, which is not installed; it comes with an extra: "
            "pip install 'orbitkv[replay]'"
        ) from error
    return making
