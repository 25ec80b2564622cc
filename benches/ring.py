"""The store's read path against a C io_uring loop that also hashes, and against `to_thread` preadv.

    python -m benches.ring [--quick] [--size SIZE] [--rounds N] [--directory DIR] [--json FILE]

Random reads of whole page images, O_DIRECT, into a pool of 2 MiB pages, 32 MiB in flight at the device.
Per image size: throughput, processor time per page, each arm's ratio to the C control of the same round,
and the control against itself (the null run). "unverified" arms do not look at what they read.

The control is compiled on the spot: `apt-get install gcc liburing-dev libxxhash-dev`.
Page files of 2 GiB (--quick: 512 MiB) are written below --directory and removed.
"""

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import attrs

from benches.common import Arm, Goal, Report, Rounds, interleave, medium, table
from benches.ring_arms import (
    WINDOW_BYTES,
    Field,
    build_control,
    huge_pool,
    lay_out,
    through_c,
    through_store,
    through_to_thread,
)
from orbitkv.io.memory import MemoryPool

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = {"256 KiB": 256 * KIB, "2.25 MiB": 2304 * KIB, "9 MiB": 9 * MIB}
C_RATIO_MIN = {"256 KiB": 0.90, "2.25 MiB": 0.95, "9 MiB": 0.95}
VERIFIED_RATIO_MIN = 0.95
CPU_RATIO_MAX = 0.5

CONTROL, NULL, STORE, THREADS = "C control", "C control again", "store", "to_thread"
BARE_CONTROL, BARE_STORE, BARE_THREADS = "C unverified", "store unverified", "to_thread unverified"


@attrs.frozen(slots=True)
class Effort:
    rounds: int
    file_bytes: int
    run_bytes: int
    """Bytes that one run of one arm reads."""


def arms(field: Field, program: Path) -> dict[str, Arm]:
    return {
        CONTROL: partial(through_c, field, program=program, check=True),
        NULL: partial(through_c, field, program=program, check=True),
        STORE: partial(through_store, field),
        THREADS: partial(through_to_thread, field, check=True),
        BARE_CONTROL: partial(through_c, field, program=program, check=False),
        BARE_STORE: partial(through_store, field, check=None),
        BARE_THREADS: partial(through_to_thread, field, check=False),
    }


def run(sizes: Sequence[str], effort: Effort, directory: Path, pool: MemoryPool, report: Report) -> None:
    with tempfile.TemporaryDirectory(prefix="orbitkv-bench-", dir=directory) as place:
        program = build_control(Path(place))
        for name in sizes:
            with tempfile.TemporaryDirectory(dir=place) as store_path:
                path = Path(store_path)
                field = lay_out(path, pool.view, SIZES[name], effort.file_bytes, effort.run_bytes)
                rounds = interleave(arms(field, program), rounds=effort.rounds)
            add_results(report, name, rounds)


def add_results(report: Report, size: str, rounds: Rounds) -> None:
    rows = table(
        f"Pages of {size}", "arm", "GB/s [quartiles]", "of C, per round", "CPU us/page [quartiles]", "calls"
    )
    figures = {}
    for arm in rounds.samples:
        speed, cpu = rounds.spread(arm, "gb_per_s"), rounds.spread(arm, "cpu_us_per_page")
        baseline = BARE_CONTROL if "unverified" in arm else CONTROL
        ratio = rounds.ratio(arm, baseline, "gb_per_s")
        wakes = rounds.samples[arm][0].get("wakes")
        rows.add_row(arm, speed.text(), ratio.text(), cpu.text(digits=0), f"{wakes:.0f}" if wakes else "-")
        figures[arm] = {
            "gb_per_s": attrs.asdict(speed),
            "of_c": attrs.asdict(ratio),
            "cpu_us_per_page": attrs.asdict(cpu),
        }
    report.add(rows, {size: figures})
    add_goals(report, size, rounds)


def add_goals(report: Report, size: str, rounds: Rounds) -> None:
    null = rounds.null_spread(NULL, CONTROL, "gb_per_s")
    of_c = rounds.ratio(STORE, CONTROL, "gb_per_s").median
    verified = rounds.ratio(STORE, BARE_STORE, "gb_per_s").median
    moving = rounds.ratio(BARE_STORE, BARE_THREADS, "cpu_us_per_page").median
    in_all = rounds.ratio(STORE, THREADS, "cpu_us_per_page").median
    report.goal(Goal(f"{size}: store / C", of_c, C_RATIO_MIN[size], allowance=null))
    report.goal(Goal(f"{size}: verified / unverified", verified, VERIFIED_RATIO_MIN, allowance=null))
    report.goal(Goal(f"{size}: CPU of moving, store / to_thread", moving, CPU_RATIO_MAX, at_least=False))
    report.goal(Goal(f"{size}: CPU with hashing, same", in_all, CPU_RATIO_MAX, at_least=False))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The store's read path against C and against threads.")
    parser.add_argument("--quick", action="store_true", help="small files, three rounds: for trying it out")
    parser.add_argument("--size", choices=SIZES, action="append", help="only this size; may be repeated")
    parser.add_argument("--rounds", type=int, default=0, help="interleaved rounds (default 9, quick 3)")
    parser.add_argument("--directory", type=Path, default=Path.cwd(), help="where the page files go")
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file as well")
    chosen = parser.parse_args(arguments)
    effort = Effort(9, 2 * GIB, 3 * GIB // 2)
    if chosen.quick:
        effort = Effort(3, GIB // 2, GIB // 2)
    if chosen.rounds:
        effort = attrs.evolve(effort, rounds=chosen.rounds)
    pool = huge_pool(2 * WINDOW_BYTES + max(SIZES.values()))
    conditions = {
        "file": f"{effort.file_bytes >> 20} MiB, {medium(chosen.directory)}, io_uring and O_DIRECT",
        "pool": f"{pool.huge_bytes() >> 20} of {pool.pool_bytes >> 20} MiB in pages of 2 MiB",
        "rounds": effort.rounds,
    }
    report = Report("Random page reads, 32 MiB in flight", conditions)
    run(chosen.size or list(SIZES), effort, chosen.directory, pool, report)
    report.finish(chosen.json)


if __name__ == "__main__":
    main()
