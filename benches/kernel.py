"""Kernel alone: commands a second on a named mix, and how a query's cost grows with the resident pages.

    python -m benches.kernel [--json FILE] [--rounds N] [--pages-max N]

Mix `cold-16`: submit a 16-page query whose pages are on the SSD, complete its 16 reads in one
command, end it, tick: four commands a cycle, random fresh keys, a working set beyond the CPU's cache.
Mix `warm-16`: the same with the pages in DRAM (no completion; three commands). Times are CPU times of
this process; a cycle counts the resolving of keys to page numbers, which the shell does. The baseline
of the growth figures is the same query at 10^3 pages; the null run is that baseline once more.
"""

import gc
import random
import time
from collections.abc import Callable
from pathlib import Path

import click

from benches.common import Goal, Report, Sample, interleave, table
from benches.kernel_world import FOOTPRINT_BYTES, SESSION, KernelWorld, filled
from orbitkv.events.commands import CancelQuery, CompleteReads, DropDram, ReleaseLease, Tick
from orbitkv.events.geometry import image_bytes
from orbitkv.manager.kernel import views
from orbitkv.manager.kernel.columns import pack

_CYCLES = 400
_QUERIES = 120
_QUERY_PAGES = 256
_READ_BYTES = pack([image_bytes(FOOTPRINT_BYTES)] * 16)
_READ_US = pack([100] * 16)


def _cycle(world: KernelWorld, keys: list[bytes], cold: bool) -> int:
    """One cycle of a mix; returns its commands."""
    world.step(world.query(keys))
    commands = 3
    if cold:
        reads = list(world.state.reads)
        assert len(reads) == 16, "the mix reads every page from the SSD"
        world.step(CompleteReads(pack(reads), bytes(16), _READ_BYTES, _READ_US))
        commands = 4
    world.step(CancelQuery(SESSION, world.operation))
    world.step(Tick())
    return commands


def _mix(world: KernelWorld, cold: bool) -> Callable[[int], Sample]:
    def run(number: int) -> Sample:
        if cold:
            world.step(DropDram())
        order = world.fresh_keys(random.Random(number), 16 * _CYCLES)
        with _Pauses() as pauses:
            started = time.process_time_ns()
            commands = sum(_cycle(world, order[16 * i : 16 * i + 16], cold) for i in range(_CYCLES))
            spent = time.process_time_ns() - started
        return {
            "commands_per_s": commands / spent * 1e9,
            "us_per_cycle": spent / _CYCLES / 1e3,
            "gc_pause_max_us": pauses.longest_us,
        }

    return run


def _query(world: KernelWorld) -> Callable[[int], Sample]:
    """A random 256-page query, its lease, its release, by the median of many."""

    def run(number: int) -> Sample:
        random_source = random.Random(number)
        times = []
        for _ in range(_QUERIES):
            keys = world.fresh_keys(random_source, _QUERY_PAGES)
            started = time.process_time_ns()
            world.step(world.query(keys))
            view = views.query_view(world.state, world.operation)
            assert view.buffers is not None
            assert len(view.buffers) == _QUERY_PAGES, "every page is in DRAM"
            views.pool_offsets(world.state, view.buffers)
            world.step(ReleaseLease(SESSION, view.lease))
            times.append(time.process_time_ns() - started)
        return {"us": sorted(times)[len(times) // 2] / 1e3}

    return run


class _Pauses:
    """Longest pause of the garbage collector while inside."""

    def __enter__(self) -> "_Pauses":
        self.longest_us = 0.0
        self._started = 0
        gc.callbacks.append(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, _: dict[str, int]) -> None:
        now = time.perf_counter_ns()
        if phase == "start":
            self._started = now
        else:
            self.longest_us = max(self.longest_us, (now - self._started) / 1e3)


@click.command()
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here too.")
@click.option("--rounds", default=7, show_default=True)
@click.option(
    "--pages-max", default=1_000_000, show_default=True, help="Largest state of the growth figures."
)
def main(json_path: Path | None, rounds: int, pages_max: int) -> None:
    sizes = [size for size in (1_000, 100_000, 1_000_000) if size <= pages_max]
    click.echo(f"filling states of {', '.join(f'{size:,}' for size in sizes)} pages ...")
    worlds = {size: filled(size) for size in sizes}
    mixed = filled(200_000, on_ssd_only=True)
    gc.collect()
    gc.freeze()
    arms = {f"{size:,} pages": _query(world) for size, world in worlds.items()}
    arms["null"] = arms[f"{sizes[0]:,} pages"]
    warm = worlds[sizes[min(1, len(sizes) - 1)]]
    results = interleave(arms | {"cold-16": _mix(mixed, True), "warm-16": _mix(warm, False)}, rounds=rounds)

    report = Report("kernel: pure step, no shell, no log", {"query pages": _QUERY_PAGES})
    growth = table("256-page query + lease + release", "resident", "CPU us", "ratio to 10^3")
    base = f"{sizes[0]:,} pages"
    figures: dict[str, object] = {}
    for arm in arms:
        ratio = results.ratio(arm, base, "us")
        growth.add_row(arm, results.spread(arm, "us").text(0), ratio.text())
        figures[f"query {arm}"] = {"us": results.spread(arm, "us").median, "ratio": ratio.median}
    report.add(growth, figures)
    mixes = table("mixes", "mix", "commands/s", "CPU us/cycle", "longest gc pause us")
    for mix in ("cold-16", "warm-16"):
        rate = results.spread(mix, "commands_per_s")
        cycle = results.spread(mix, "us_per_cycle")
        pause = results.spread(mix, "gc_pause_max_us")
        mixes.add_row(mix, rate.text(0), cycle.text(0), pause.text(0))
        report.goal(Goal(f"{mix} commands/s", rate.median, 100_000))
    report.add(mixes, {mix: results.spread(mix, "commands_per_s").median for mix in ("cold-16", "warm-16")})
    if pages_max >= 1_000_000:
        null = results.null_spread("null", base, "us")
        small = results.ratio("1,000,000 pages", base, "us").median
        middle = results.ratio("1,000,000 pages", "100,000 pages", "us").median
        report.goal(Goal("10^6 / 10^5", middle, 2.0, at_least=False, allowance=null))
        report.goal(Goal("10^6 / 10^3", small, 6.0, at_least=False, allowance=null))
    report.finish(json_path)


if __name__ == "__main__":
    main()
