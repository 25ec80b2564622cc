"""`replay fixture`: cuts a small piece out of a log or a seed, as a log, or as a script that people read.

replay fixture LOG --seq 100-180 --out DIR                    a log: snapshot, then these records
replay fixture LOG --request r-4 --script --out r-4.txt       a script: the commands it depends on, told anew
replay fixture --seed 7 --steps 900 --keep HintSkipped --script --out skipped.txt
replay fixture skipped.txt --keep HintSkipped --out smaller.txt
"""

import math
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from orbitkv.events.frame import LogError
from orbitkv.events.record import Record
from replay.command_line import errors_in_words, in_a_line
from replay.fixture.asked import Asked
from replay.fixture.conditions import Condition, ConditionError, condition
from replay.fixture.cut import Chain, Cut, NotInLog, ends_of
from replay.fixture.piece import chains, pieces, write_pieces
from replay.fixture.shrink import Told, shrink
from replay.fixture.story import Script, Telling, story, tell
from replay.fixture.wishes import ScriptError, Wish
from replay.output_file import output_file
from replay.simulate.simulated_log import SimulatedLog
from replay.simulate.simulation import Simulation


def _range(_: click.Context, parameter: click.Parameter, value: str | None) -> tuple[float, float] | None:
    if value is None:
        return None
    first, dash, last = value.partition("-")
    try:
        ends = float(first), float(last) if dash else float(first)
    except ValueError:
        ends = math.nan, math.nan
    if not all(map(math.isfinite, ends)):
        raise click.BadParameter(f"{value!r} is no range; write FIRST-LAST", param=parameter)
    return ends


@click.command("fixture")
@click.argument("source", required=False, type=click.Path(path_type=Path, exists=True))
@click.option("--seed", type=int, help="Cut out of a simulated run of this seed instead of SOURCE.")
@click.option("--steps", default=900, show_default=True, type=click.IntRange(1), help="Of that run.")
@click.option("--request", help="What concerns this request.")
@click.option("--session", type=int, help="What concerns the queries and hints of this session.")
@click.option("--seq", callback=_range, help="Records FIRST-LAST.")
@click.option("--time", "time_s", callback=_range, help="Records at FIRST-LAST seconds of the incarnation.")
@click.option("--incarnation", type=int, help="Which one; default: the first that has what is asked for.")
@click.option("--script", is_flag=True, help="Write a script of commands, told anew, instead of a log.")
@click.option(
    "--keep",
    "conditions",
    multiple=True,
    help="Make the script smaller while this holds: FACT [field=value ...], broken, audit[:INVARIANT] or "
    "call:MODULE:FUNCTION. Several must all hold.",
)
@click.option(
    "--shrink", "smaller", is_flag=True, help="Make it smaller while the request ends as in SOURCE."
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="New file or empty directory.")
def fixture_command(
    source: Path | None,
    seed: int | None,
    steps: int,
    request: str | None,
    session: int | None,
    seq: tuple[float, float] | None,
    time_s: tuple[float, float] | None,
    incarnation: int | None,
    script: bool,
    conditions: tuple[str, ...],
    smaller: bool,
    out: Path,
) -> None:
    """Cut a small log, or a script, out of SOURCE (a log or a script) or a seed.

    Exit codes: 0 it is written, 2 there is no such thing in SOURCE, or it cannot be told.
    """
    if (source is None) == (seed is None):
        raise click.UsageError("name either a SOURCE or a --seed")
    whole = (int(seq[0]), int(seq[1])) if seq is not None else None
    asked = Asked(request, session, whole, time_s, incarnation)
    try:
        keep = [condition(text) for text in conditions]
        with errors_in_words(), _log_of(source, seed, steps) as (path, name):
            if path.suffix == ".txt":
                _shrink_script(path, keep, conditions, out)
            elif script or keep or smaller:
                _cut_script(path, name, asked, keep, conditions, out, smaller=smaller)
            else:
                _cut_log(path, asked, out)
    except (ScriptError, ConditionError) as error:
        raise click.UsageError(str(error)) from None


@contextmanager
def _log_of(source: Path | None, seed: int | None, steps: int) -> Iterator[tuple[Path, str]]:
    """The log to cut, and what to call it; that of a seed is written for the purpose."""
    if source is not None:
        yield source, source.name
        return
    assert seed is not None
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log"
        log = SimulatedLog(seed, path)
        simulation = Simulation(seed, log=log)
        simulation.faults.retired = 0.0  # a script begins with the first record
        try:
            simulation.run(steps)
        except AssertionError as broken:
            click.echo(f"the run of seed {seed} broke: {broken}", err=True)
        log.close()
        yield path, f"seed {seed}, {steps} steps"


# --- logs -----------------------------------------------------------------------------------------------


def _cut_log(path: Path, asked: Asked, out: Path) -> None:
    wanted = [
        (incarnation, first, last)
        for incarnation, records in _records(path, asked)
        if (span := asked.span(records)) is not None
        for first, last in [span]
    ]
    if not wanted:
        raise NotInLog(f"{path} has no record of {asked.names}")
    files = write_pieces(out, pieces(path, wanted))
    for (incarnation, first, last), file in zip(wanted, files, strict=True):
        click.echo(f"{file}: incarnation {incarnation}, seq {first} to {last}, {file.stat().st_size:,} bytes")


def _records(path: Path, asked: Asked) -> Iterator[tuple[int, list[Record]]]:
    for header, records, _ in chains(path):
        if asked.incarnation in (None, header.incarnation):
            yield header.incarnation, records


# --- scripts --------------------------------------------------------------------------------------------


def _cut_script(
    path: Path,
    name: str,
    asked: Asked,
    keep: list[Condition],
    texts: tuple[str, ...],
    out: Path,
    *,
    smaller: bool,
) -> None:
    wanted = f" in which {' and '.join(texts)} holds" if texts else ""
    error: LogError = NotInLog(f"{in_a_line(name)} has nothing of {asked.names}{wanted}")
    for incarnation, records in _records(path, asked):
        try:
            chain = Chain(records)
        except NotInLog as missing:
            error = missing
            continue
        cut, keeping = _cut_of(chain, asked)
        if cut is None or not (telling := tell(cut.wishes)) or not all(holds(telling) for holds in keep):
            continue
        prose = [
            f"# Cut by `replay fixture` out of {in_a_line(name)}, incarnation {incarnation}: {asked.names}.",
            f"# {len(cut.wishes)} of {cut.of} commands ({cut.width}).",
        ]
        if smaller and keeping:
            keep, texts = keep + keeping, (*texts, f"{asked.names} ends as in the log")
        _finish(prose, cut.wishes, keep or keeping, texts, out, shrinking=smaller or bool(keep))
        return
    raise error


def _cut_of(chain: Chain, asked: Asked) -> tuple[Cut | None, list[Condition]]:
    """The cut, and what must hold in a smaller one where nothing else is asked for."""
    if not asked.by_operation:
        span = asked.span([row.record for row in chain.rows])
        return (chain.until(span[1]), []) if span is not None else (None, [])
    operations = chain.operations(asked.takes)
    if not operations:
        return None, []
    cut = chain.cut(operations)
    ends = ends_of(tell(cut.wishes).records, operations)

    def same(telling: Telling) -> bool:
        return ends_of(telling.records, operations) == ends

    return cut, [same]


def _shrink_script(path: Path, keep: list[Condition], texts: tuple[str, ...], out: Path) -> None:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ScriptError(
            f"{path} is no script: byte {error.start} is no text in UTF-8; name a log, or a file that"
            " `replay fixture --script` has written"
        ) from None
    script = Script.read(text)
    if not keep:
        raise click.UsageError("a script is cut further by a condition only; name what must hold with --keep")
    _finish(list(script.prose), script.wishes, keep, texts, out, shrinking=True)


def _finish(
    prose: list[str],
    wishes: tuple[Wish, ...],
    keep: list[Condition],
    texts: tuple[str, ...],
    out: Path,
    *,
    shrinking: bool,
) -> None:
    """Leave out what comes to nothing; make it smaller if that is asked for; tell it and write it down."""
    if out.exists():
        raise click.UsageError(f"{out} is there already; name a new file")
    taken = _that_do_something(wishes, keep)
    if shrinking:
        with _progress() as told:
            taken = shrink(taken, lambda telling: all(holds(telling) for holds in keep), told)
        prose.append(f"# Made smaller, to {len(taken)} commands, while this held: {'; '.join(texts)}.")
    with output_file(out, force=False) as file:
        file.write(story(prose, taken).encode())
    click.echo(f"{out}: {len(taken)} commands")


def _that_do_something(wishes: tuple[Wish, ...], keep: list[Condition]) -> list[Wish]:
    """Without wishes that leave no record, if what must hold does so without them."""
    results = tell(wishes).results
    kept = [wish for wish, result in zip(wishes, results, strict=False) if isinstance(result, Record)]
    telling = tell(kept)
    return kept if all(holds(telling) for holds in keep) else list(wishes)


@contextmanager
def _progress() -> Iterator[Told | None]:
    if not sys.stderr.isatty():
        yield None
        return
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("shrink")

        def told(left: int, tries: int) -> None:
            bar.update(task, description=f"{left} commands left after {tries} tellings")

        yield told
