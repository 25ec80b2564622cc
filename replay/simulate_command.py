"""`replay simulate`: one seeded run from the command line, with its log, its trouble and what it came to."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import attrs
import click
from rich.console import Console
from rich.progress import Progress

from orbitkv import __version__
from orbitkv.events.frame import LogError
from orbitkv.manager.kernel import KERNEL_REVISION
from replay.simulate.faults import MEANINGS, Faults, UnknownFaultError
from replay.simulate.outcome import Outcome, fault_table, outcome_table
from replay.simulate.simulated_log import SimulatedLog
from replay.simulate.simulation import Simulation

_FAULTS_HELP = (
    "`swarm` (each seed switches kinds on and off), `all`, `none`, or kinds with commas between, each with "
    "=CHANCE if wished."
)


@click.command("simulate")
@click.option(
    "--seed", default=1, show_default=True, help="Every choice follows from it; same seed, same log."
)
@click.option("--steps", default=5000, show_default=True, type=click.IntRange(1), help="Small moves to make.")
@click.option("--faults", "faults_text", default="swarm", show_default=True, help=_FAULTS_HELP)
@click.option("--list-faults", is_flag=True, help="Print the kinds of trouble and leave.")
@click.option(
    "--log",
    "log_path",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the run's log to this empty directory. Without it, only a run that fails leaves its log.",
)
@click.option("--no-crashes", is_flag=True, help="One incarnation only.")
@click.option("--careful", is_flag=True, help="Also check that refused commands change nothing (slow).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def simulate_command(
    seed: int,
    steps: int,
    faults_text: str,
    list_faults: bool,
    log_path: Path | None,
    no_crashes: bool,
    careful: bool,
    as_json: bool,
) -> None:
    """Run the kernel in a seeded world of engines, SSD and trouble; then drain it.

    Exit codes: 0 every check held, 1 one did not (its seed tells the story again), 2 it cannot be done.
    """
    if list_faults:
        for kind, meaning in MEANINGS.items():
            click.echo(f"{kind:14s} {meaning}")
        return
    try:
        faults = Faults.of(faults_text.split(","), seed)
        log = SimulatedLog(seed, log_path or Path(tempfile.mkdtemp(prefix=f"orbitkv-simulated-{seed}-")))
    except (LogError, UnknownFaultError) as error:
        raise click.UsageError(str(error)) from None
    simulation = Simulation(seed, faults=faults, careful=careful, crashes=not no_crashes, log=log)
    try:
        outcome, broken, seconds = _run(simulation, steps)
        log.close()
    except (KeyboardInterrupt, OSError):
        if log_path is None:
            log.discard()
        raise
    kept = log.directory if broken or log_path else None
    if kept is None:
        log.discard()
    options: dict[str, object] = {
        "seed": seed,
        "steps": steps,
        "faults": faults_text,
        "crashes": not no_crashes,
        "careful": careful,
    }
    run = _Run(outcome, broken, seconds, options, faults.chances(), kept)
    if as_json:
        click.echo(json.dumps(run.as_json(), indent=2))
    else:
        run.show()
    if broken:
        raise SystemExit(1)


def _run(simulation: Simulation, steps: int) -> tuple[Outcome, str, float]:
    """The outcome, what broke, and the CPU seconds it took."""
    bar = Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    started = time.process_time()
    broken = ""
    with bar:
        task = bar.add_task("simulate", total=steps)

        def tell(done: int) -> None:
            if done % 1000 == 0:
                bar.update(task, completed=done)

        try:
            simulation.run(steps, on_step=tell)
        except OSError:
            raise  # Of the disk that the log is written to.
        except Exception as error:
            broken = f"{type(error).__name__}: {error}"
    return simulation.told(), broken, time.process_time() - started


@attrs.frozen
class _Run:
    """All that there is to say of one run."""

    outcome: Outcome
    broken: str
    seconds: float
    options: dict[str, object]
    chances: dict[str, float]
    log: Path | None

    @property
    def steps_per_s(self) -> float:
        return self.outcome.steps / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, object]:
        return {
            **attrs.asdict(self.outcome),
            "ok": not self.broken,
            "broken": self.broken,
            "options": self.options,
            "chances": self.chances,
            "seconds": self.seconds,
            "steps_per_s": self.steps_per_s,
            "log": str(self.log) if self.log else None,
            **_build(),
        }

    def show(self) -> None:
        console = Console() if sys.stdout is not None and sys.stdout.isatty() else Console(width=110)
        for line in self.outcome.tail:
            click.echo(line)
        console.print(fault_table(self.outcome, self.chances))
        console.print(outcome_table(self.outcome))
        outcome = self.outcome
        click.echo(
            f"seed {outcome.seed}: {outcome.steps} steps, {outcome.records} records, "
            f"{outcome.refused} refusals, {outcome.incarnations} incarnations, "
            f"state digest {outcome.digest:016x}"
        )
        click.echo(f"{self.steps_per_s:,.0f} steps/s, {outcome.records / (self.seconds or 1):,.0f} records/s")
        if self.log is not None:
            click.echo(f"log: {self.log}")
        if self.broken:
            click.echo(f"FAILED after the last record above: {self.broken}", err=True)
            told = " ".join(f"{name}={value}" for name, value in {**self.options, **_build()}.items())
            click.echo(f"tell it again with: {told}", err=True)
        else:
            click.echo("ok: every check held, and the drain left nothing reserved, held or in flight")


def _build() -> dict[str, object]:
    """What was run, so that a seed can be told again later."""
    return {"version": __version__, "kernel_revision": KERNEL_REVISION, "commit": _commit()}


def _commit() -> str:
    """Of the checkout that this runs from, if it is one."""
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
