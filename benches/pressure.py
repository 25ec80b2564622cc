"""The pressure window: a working set larger than the pool, and whether hints pay for what they read.

    python -m benches.pressure [--json FILE] [--pairs N] [--seconds S] [--pool SIZE] [--case NAME]...
                             [--charge owner|shared]

A real manager with a page file on a real disk, and an embedded engine whose compute time is modelled; see
`pressure_shape` for the proportions and the cases. Each case runs in pairs, hints off and on, with the
same requests and fresh processes, the order turned round from pair to pair; ratios are on / off within a
pair. Throughput counts the drain after admission. A window's restored / prepared is no success rate when
pages prepared before it are pending at its start; then it is marked.
"""

import signal
import sys
import tempfile
from pathlib import Path

import click

from benches.common import Report, Sample, give_up, medium
from benches.pressure_arm import ArmResult, run_arm
from benches.pressure_report import OFF, ON, Pairs, tell
from benches.pressure_shape import CASES, CONCURRENCY, Case, Shape
from benches.pressure_window import WrongWindow
from orbitkv.adapters.errors import AdapterError
from orbitkv.config.errors import Unfit
from orbitkv.config.units import parse_size


@click.command()
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write all figures there.")
@click.option("--pairs", type=click.IntRange(1), default=3, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.5), default=10.0, show_default=True, help="Of admission.")
@click.option("--pool", metavar="SIZE", default="512MiB", show_default=True)
@click.option("--prefixes", type=click.IntRange(1), default=12, show_default=True)
@click.option("--case", "names", multiple=True, type=click.Choice(list(CASES)), help="Default: all.")
@click.option("--charge", type=click.Choice(("owner", "shared")), default="owner", show_default=True)
@click.option("--directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
def main(
    json_path: Path | None,
    pairs: int,
    seconds: float,
    pool: str,
    prefixes: int,
    names: tuple[str, ...],
    charge: str,
    directory: Path | None,
) -> None:
    try:
        shape = Shape(parse_size(pool), prefixes, charge)
    except Unfit as error:
        give_up(f"--pool cannot be {pool!r}", str(error.why), str(error.remedy))
    shape.check()
    # As Ctrl-C: on the way out everything that was started is ended, and the page file removed.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    place = directory or Path(tempfile.gettempdir())
    report = Report(
        "Pressure window: hints off and on",
        {
            "medium": medium(place),
            "shape": shape.words(),
            "load": f"concurrency {CONCURRENCY}, {seconds:g} s of admission, then drain; {pairs} pairs",
            "time": "modelled: compute by formula; queueing, reads and copies real",
        },
    )
    found: dict[str, Pairs] = {}
    for name in names or CASES:
        found[name], io_engine = run_case(shape, CASES[name], pairs, seconds, place)
        report.condition("I/O engine", io_engine)
    tell(report, shape, found)
    report.finish(json_path)


def run_case(shape: Shape, case: Case, pairs: int, seconds: float, place: Path) -> tuple[Pairs, str]:
    """All pairs of one case, and the I/O engine. A line on stderr for every arm."""
    samples: Pairs = {OFF: [], ON: []}
    result: ArmResult | None = None
    for pair in range(pairs):
        for arm in (OFF, ON) if pair % 2 == 0 else (ON, OFF):
            with tempfile.TemporaryDirectory(prefix="orbitkv-pressure-", dir=place) as folder:
                try:
                    result = run_arm(
                        shape,
                        case,
                        warmup=arm == ON,
                        seed=pair,
                        admission_s=seconds,
                        folder=Path(folder, "arm"),
                    )
                except WrongWindow as wrong:
                    give_up(f"{case.name}, hints {arm}: {wrong}", "That is a fault of OrbitKV", "Report it")
                except AdapterError as error:
                    give_up(error.what.rstrip("."), error.why.rstrip("."), error.remedy.capitalize())
            samples[arm].append(result.figures)
            say(case, pair, pairs, arm, result.figures)
    assert result is not None
    return samples, result.io_engine


def say(case: Case, pair: int, pairs: int, arm: str, figures: Sample) -> None:
    print(
        f"{case.name}, pair {pair + 1} of {pairs}, hints {arm}: {figures['requests']:.0f} requests, "
        f"{figures['requests_per_s']:.2f}/s, TTFT p95 {figures['ttft_p95_ms']:.0f} ms, "
        f"SSD {figures['ssd_mib_per_request']:.1f} MiB/request, prepared {figures['prepared_mib']:.0f} MiB",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    main()
