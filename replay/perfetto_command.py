"""`replay perfetto`: a log as a file that the Perfetto UI opens."""

import sys
from pathlib import Path

import click

from replay.command_line import errors_in_words, print_remarks, progress_bar
from replay.output_file import output_file
from replay.perfetto.writing import write_trace


@click.command("perfetto")
@click.argument("log", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The file to write.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def perfetto_command(log: Path, output: Path, force: bool) -> None:
    """Write the log as a trace (JSON) for the Perfetto UI.

    Requests, sessions and SSD traffic on tracks, budgets as counters, one group for each incarnation. Open
    the file at ui.perfetto.dev, which does not send it anywhere, or in chrome://tracing.

    Exit codes: 0 all is well, 1 the log is damaged (the trace shows the rest), 2 it cannot be done.
    """
    with (
        errors_in_words(),
        progress_bar("perfetto", log) as told,
        output_file(output, force=force) as file,
    ):
        traced = write_trace(log, file, told)
    for note in traced.notes:
        click.echo(f"note: {note}", err=True)
    print_remarks(traced.log)
    click.echo(f"perfetto: {output}, {traced.events} events of {traced.records} records")
    if traced.log.troubles:
        sys.exit(1)
