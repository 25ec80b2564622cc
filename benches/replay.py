"""The log's tools: how fast a log is folded, verified, loaded and audited, and how fast runs are simulated.

    python -m benches.replay [--only PART ...] [--records N] [--rounds N] [--json FILE]

Every part compares with a named baseline in the same run, arms in turns and in a new order each round; the
null run is the baseline against itself. What each part measures is said in `benches.replay_parts`.
"""

import gc
import tempfile
from importlib import import_module
from pathlib import Path

import click

from benches.common import Report
from benches.replay_parts.logs import bench_log

PARTS = ("fold", "verify", "simulate", "load", "audit")


@click.command()
@click.option("--only", multiple=True, type=click.Choice(PARTS), help="These parts; default: all.")
@click.option("--records", default=20_000, show_default=True, type=click.IntRange(1_000))
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1))
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here too.")
def main(only: tuple[str, ...], records: int, rounds: int, json_path: Path | None) -> None:
    """Measure what a log can be asked."""
    with tempfile.TemporaryDirectory() as directory:
        click.echo(f"simulating a log of {records:,} records ...")
        log = bench_log(Path(directory) / "log", records)
        gc.collect()
        gc.freeze()
        report = Report("replay: fold, verify, load, audit, simulate", {**log.conditions, "rounds": rounds})
        for part in only or PARTS:
            click.echo(f"measuring {part} ...")
            import_module(f"benches.replay_parts.{part}").measure(report, log, rounds)
    report.finish(json_path)


if __name__ == "__main__":
    main()
