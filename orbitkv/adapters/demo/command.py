"""The command line of the demo. Reads arguments and hands over; nothing heavy is imported before that."""

import sys
from pathlib import Path
from typing import Any

import click

from orbitkv.adapters.demo.interrupts import held_back

MISTAKE = 2
"""Exit code for what the user can mend, as with every command of OrbitKV."""


@click.command("demo", short_help="Serve a trace with a real manager and check every byte.")
@click.option("--trace", type=click.Path(path_type=Path), help="Mooncake-format trace; default: generated.")
@click.option("--requests", type=click.IntRange(1), default=500, show_default=True, help="Requests to serve.")
@click.option(
    "--speed",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="How many times faster than its timestamps the trace is played.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the generated trace.")
@click.option("--engines", type=click.IntRange(1, 8), default=2, show_default=True, help="Engines.")
@click.option("--ranks", type=click.IntRange(1, 32), default=2, show_default=True, help="Ranks per engine.")
@click.option("--pool", metavar="SIZE", default="384MiB", show_default=True, help="DRAM pool.")
@click.option("--ssd", metavar="SIZE", default="2GiB", show_default=True, help="Page file on the SSD.")
@click.option(
    "--warmup",
    type=click.Choice(["on", "off"]),
    help="Whether engines hint what queued requests will miss. Engines have it off by default; the demo "
    "shows it.  [default: as ORBITKV_QUEUE_WARMUP says, else on]",
)
@click.option("--compare", is_flag=True, help="Run with and without warm-up in turns, and compare.")
@click.option(
    "--pairs", type=click.IntRange(1, 99), default=3, show_default=True, help="Pairs of runs to compare."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="New or empty folder for summary and log.  [default: orbitkv-demo/TIME]",
)
@click.option(
    "--pictures/--no-pictures",
    default=True,
    show_default=True,
    help="Make a report (HTML) and a trace (Perfetto) of the log, beside it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON and nothing else.")
def command(**words: Any) -> None:
    """Serve a trace with a real manager and small real engines, and prove what happened.

    A manager process with an SSD file, engines of several rank processes each, real copies, every
    restored byte compared; at the end other processes verify the manager's log. Pages and compute time are
    those of Qwen3-8B, made smaller by one printed factor; times to first token are modelled.

    With --compare: the same trace in pairs of runs, fresh processes each, warm-up off and on in alternating
    order, and one table of both.

    Ends with 0 when every request was served, no byte was wrong and the log verifies, else with 1.
    """
    with held_back():
        from orbitkv.adapters.demo.main import run
        from orbitkv.adapters.demo.options import DemoOptions
        from orbitkv.adapters.errors import AdapterError

        try:
            status = run(DemoOptions.of(**words))
        except AdapterError as error:
            click.echo(error, err=True)
            status = MISTAKE
    sys.exit(status)
