"""`replay simulate`: one seeded run from the command line, with its last lines and a log if wished."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import attrs
import click
from rich.console import Console
from rich.progress import Progress

from orbitkv.events.frame import LogError
from replay.simulate import Outcome, Simulation
from replay.simulated_log import SimulatedLog


@click.command("simulate")
@click.option(
    "--seed", default=1, show_default=True, help="Every choice follows from it; same seed, same story."
)
@click.option("--steps", default=5000, show_default=True, type=click.IntRange(1), help="Small moves to make.")
@click.option(
    "--log",
    "log_path",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the run as a log to this empty directory, for `replay fold`, `verify` and `timeline`.",
)
@click.option("--no-crashes", is_flag=True, help="One incarnation only.")
@click.option("--careful", is_flag=True, help="Also check that refused commands change nothing (slow).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def simulate_command(
    seed: int, steps: int, log_path: Path | None, no_crashes: bool, careful: bool, as_json: bool
) -> None:
    """Run the kernel in a seeded world of engines, SSD and trouble; then drain it.

    Exit codes: 0 every check held, 1 one did not (its seed tells the story again), 2 wrong usage.
    """
    with ExitStack() as stack:
        try:
            log = stack.enter_context(SimulatedLog(log_path, seed)) if log_path is not None else None
        except LogError as error:
            raise click.UsageError(str(error)) from None
        simulation = Simulation(
            seed, careful=careful, crashes=not no_crashes, on_record=log.append if log else None
        )
        bar = stack.enter_context(
            Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
        )
        task = bar.add_task("simulate", total=steps)
        try:
            outcome = simulation.run(steps, on_step=lambda done: bar.update(task, completed=done))
            broken = ""
        except AssertionError as error:
            outcome, broken = simulation.told(), f"{type(error).__name__}: {error}"
    _print_outcome(outcome, broken, as_json=as_json)
    if broken:
        raise SystemExit(1)


def _print_outcome(outcome: Outcome, broken: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({**attrs.asdict(outcome), "ok": not broken, "broken": broken}, indent=2))
        return
    for line in outcome.tail:
        click.echo(line)
    click.echo(
        f"seed {outcome.seed}: {outcome.steps} steps, {outcome.records} records, {outcome.refused} refusals, "
        f"{outcome.incarnations} incarnations, state digest {outcome.digest:016x}"
    )
    if broken:
        click.echo(f"FAILED after the last line above: {broken}", err=True)
    else:
        click.echo("ok: every check held, and the drain left nothing reserved, held or in flight")
