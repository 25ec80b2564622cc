"""The pool's allocator: how fast it is at 85 % full, and what shifting page sizes cost.

    python -m benches.pool [--quick] [--json FILE]

Speed: one freed and one allocated page, at random, against general first-fit extents (the baseline),
the baseline against itself (the null run: what the difference of two equal things is here), and a
bare list per size as the floor. CPU time of this process, medians and quartiles of interleaved rounds.

Mixes: three named streams of requests under LRU (see `pool_mixes`), with the superblock policy,
first-fit extents, and LRU by bytes alone as the ideal. These are counts of a model and come out equal
in every run, so instead of a null run the worst of several seeds is shown.
"""

import argparse
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benches.common import Arm, Goal, Report, interleave, table
from benches.pool_mixes import (
    LARGE,
    MIB,
    MIDDLE,
    MIXES,
    SIZES,
    ExtentPool,
    Extents,
    IdealPool,
    Outcome,
    PoolModel,
    SizeAt,
    SuperblockPool,
    drive,
    requests,
)
from orbitkv.manager.kernel.superblocks import Superblocks

POOL_BYTES = 4096 * MIB
SUPERBLOCK_BYTES = 64 * MIB
FULL = 0.85
PAIR_NS_MAX = 2000
RESIDENT_MIN = 0.95
EVICTED_PER_REQUESTED_MAX = 1.5

Allocate = Callable[[int], int]
"""Bytes of a page to its offset."""
Replace = Callable[[int, int], int]
"""Free the page at this offset, of this size, and allocate one of the same size: the pair that is timed."""
Allocator = tuple[Allocate, Replace]


def superblocks() -> Allocator:
    """As the kernel does it: plan, then apply the plan's facts."""
    blocks = Superblocks(POOL_BYTES, SUPERBLOCK_BYTES)

    def allocate(size: int) -> int:
        plan = blocks.plan(size, 1)
        assert plan is not None, "no room at 85 % full"
        for superblock in plan.carve:
            blocks.carve(superblock, size)
        blocks.take(plan.offsets)
        return plan.offsets[0]

    def replace(offset: int, size: int) -> int:
        blocks.give((offset,))
        plan = blocks.plan(size, 1)
        assert plan is not None, "what was just freed is gone"
        blocks.take(plan.offsets)
        return plan.offsets[0]

    return allocate, replace


def extents() -> Allocator:
    general = Extents(POOL_BYTES)

    def allocate(size: int) -> int:
        offset = general.allocate(size)
        assert offset is not None, "no room at 85 % full"
        return offset

    def replace(offset: int, size: int) -> int:
        general.free(offset, size)
        taken = general.allocate(size)
        assert taken is not None, "what was just freed is gone"
        return taken

    return allocate, replace


def bare_lists() -> Allocator:
    """No checks, no planning, no other size ever: what the interpreter needs for the bare idea."""
    free = {size: list(range(0, POOL_BYTES - size, size)) for size in SIZES}

    def replace(offset: int, size: int) -> int:
        free[size].append(offset)
        return free[size].pop()

    return lambda size: free[size].pop(), replace


def pair_ns(make: Callable[[], Allocator], sizes: tuple[int, ...], pairs: int, seed: int) -> float:
    """CPU nanoseconds to free one page at random and allocate one of the same size in its place."""
    rng = random.Random(seed)
    allocate, replace = make()
    live: list[tuple[int, int]] = []
    used_bytes = 0
    weights = [1 / size for size in sizes]
    while used_bytes < FULL * POOL_BYTES:
        size = rng.choices(sizes, weights)[0]
        live.append((allocate(size), size))
        used_bytes += size
    victims = [rng.randrange(len(live)) for _ in range(pairs)]
    start = time.process_time_ns()
    for victim in victims:
        offset, size = live[victim]
        live[victim] = (replace(offset, size), size)
    return (time.process_time_ns() - start) / pairs


def batched_pair_ns(sizes: tuple[int, ...], pairs: int, batch: int = 16) -> float:
    """The same per page when `batch` pages are freed and allocated together, as for a query or a save."""
    blocks = Superblocks(POOL_BYTES, SUPERBLOCK_BYTES)
    batches: list[tuple[list[int], int]] = []
    while blocks.used_bytes < FULL * POOL_BYTES:
        for size in sizes:
            plan = blocks.plan(size, batch)
            assert plan is not None, "no room at 85 % full"
            for superblock in plan.carve:
                blocks.carve(superblock, size)
            blocks.take(plan.offsets)
            batches.append((plan.offsets, size))
    rng = random.Random(1)
    victims = [rng.randrange(len(batches)) for _ in range(pairs // batch)]
    start = time.process_time_ns()
    for victim in victims:
        offsets, size = batches[victim]
        blocks.give(offsets)
        plan = blocks.plan(size, batch)
        assert plan is not None, "what was just freed is gone"
        blocks.take(plan.offsets)
        batches[victim] = (plan.offsets, size)
    return (time.process_time_ns() - start) / len(victims) / batch


def speed(report: Report, rounds: int, pairs: int) -> None:
    def batched(sizes: tuple[int, ...]) -> Arm:
        return lambda number: {"pair_ns": batched_pair_ns(sizes, pairs)}

    def arm(make: Callable[[], Allocator], sizes: tuple[int, ...]) -> Arm:
        return lambda number: {"pair_ns": pair_ns(make, sizes, pairs, number)}

    columns = ("superblocks", "16 at a time", "baseline", "null", "floor")
    shown = table("free + allocate at 85 % full, CPU ns", "pages", *columns)
    figures: dict[str, Any] = {}
    for name, sizes in (("2.25M", (MIDDLE,)), ("9M", (LARGE,)), ("256K-9M", SIZES)):
        arms = {
            "superblocks": arm(superblocks, sizes),
            "16 at a time": batched(sizes),
            "baseline": arm(extents, sizes),
            "null": arm(extents, sizes),
            "floor": arm(bare_lists, sizes),
        }
        taken = interleave(arms, rounds=rounds)
        medians = {column: taken.spread(column, "pair_ns").median for column in columns}
        figures[name] = medians
        shown.add_row(name, *(taken.spread(column, "pair_ns").text(0) for column in columns))
        report.goal(Goal(f"free + allocate, {name}, ns", medians["superblocks"], PAIR_NS_MAX, at_least=False))
    report.add(shown, {"pair_ns": figures})


def mixes(report: Report, pools: float, seeds: int) -> None:
    shown = table(
        f"shifting mixes under LRU, worst of {seeds} seeds",
        "mix, allocator",
        "resident at first eviction",
        "evicted / requested",
        "worst half pool",
        "largest eviction MiB",
        "hits / ideal",
    )
    figures: dict[str, Any] = {}
    for name, (size_at, _) in MIXES.items():
        for allocator, make in (
            ("superblocks", partial(SuperblockPool, POOL_BYTES, SUPERBLOCK_BYTES)),
            ("baseline", partial(ExtentPool, POOL_BYTES)),
        ):
            worst = worst_of([mix_figures(make(), size_at, pools, seed) for seed in range(1, seeds + 1)])
            figures[f"{name}, {allocator}"] = worst
            shown.add_row(f"{name}, {allocator}", *(f"{figure:.3f}" for figure in worst.values()))
        ours = figures[f"{name}, superblocks"]
        report.goal(Goal(f"resident, {name}", ours["resident"], RESIDENT_MIN))
        evicted = max(ours["evicted_per_requested"], ours["worst_window"])
        report.goal(Goal(f"evicted, {name}", evicted, EVICTED_PER_REQUESTED_MAX, at_least=False))
    report.add(shown, {"mixes": figures})


def mix_figures(pool: PoolModel, size_at: SizeAt, pools: float, seed: int) -> dict[str, float]:
    def run(model: PoolModel) -> Outcome:
        return drive(model, requests(size_at, POOL_BYTES, pools, seed), POOL_BYTES // 2)

    outcome, ideal = run(pool), run(IdealPool(POOL_BYTES))
    return {
        "resident": outcome.first_eviction_bytes / POOL_BYTES,
        "evicted_per_requested": outcome.evicted_per_requested,
        "worst_window": outcome.worst_window,
        "largest_eviction_mib": outcome.largest_eviction_bytes / MIB,
        "hits_of_ideal": outcome.hit_bytes / ideal.hit_bytes,
    }


def worst_of(seeds: list[dict[str, float]]) -> dict[str, float]:
    high = ("evicted_per_requested", "worst_window", "largest_eviction_mib")
    return {
        figure: (max if figure in high else min)(of_seed[figure] for of_seed in seeds) for figure in seeds[0]
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benches.pool", description="Speed and waste of the pool."
    )
    parser.add_argument("--quick", action="store_true", help="a rough run of some seconds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    options = parser.parse_args()
    conditions = {
        "pool": f"{POOL_BYTES // MIB} MiB in superblocks of {SUPERBLOCK_BYTES // MIB} MiB",
        "pages": "images: the named size and a trailer of 4 KiB",
        "baseline": "first-fit extents; null: the same again; floor: a bare list for each size",
        **{f"mix {name}": words for name, (_, words) in MIXES.items()},
    }
    report = Report("DRAM pool: allocator and shifting page sizes", conditions)
    speed(report, rounds=3 if options.quick else 9, pairs=20_000 if options.quick else 50_000)
    mixes(report, pools=5.0 if options.quick else 12.0, seeds=1 if options.quick else 3)
    report.finish(options.json)


if __name__ == "__main__":
    main()
