"""What the pressure bench plays: the reference window's proportions, scaled to a pool of any size.

The reference (Qwen3-8B, 64-token pages of 9 MiB, one GPU): pool 4 GiB, 8,192 GPU tokens (0.28 of it), query
budget 3 GiB (0.75), SSD 16 GiB (4), 12 prefixes of 4,096 tokens that come again with probability 0.75
(1.69); one prefix is 0.75 of what hints may hold reserved. Everything here follows from the pool: pages
and compute time shrink by one factor, so that copying and reading keep their proportion to computing.
Bytes in flight and lifetimes are the manager's defaults: latencies do not shrink with pages.
"""

import random
from collections.abc import Iterator

import attrs

from benches.common import give_up
from orbitkv.adapters.embedded.compute_model import ComputeModel, scale_of
from orbitkv.adapters.embedded.messages import Arrive, EngineConfig
from orbitkv.config.units import format_size
from orbitkv.events.geometry import image_bytes
from orbitkv.events.ids import ALIGNMENT_BYTES

PAGE_TOKENS = 64
PROMPT_TOKENS = 4096
OUTPUT_TOKENS = 16
GPU_TOKENS = 8192
PROMPT_PAGES = PROMPT_TOKENS // PAGE_TOKENS
CONCURRENCY = 8
REUSE = 0.75
BUDGET_SHARE = 0.75
SPECULATIVE_DIVISOR = 4
PREFIX_OF_SPECULATIVE = 0.75
SSD_POOLS = 4
SSD_SEGMENTS = 64
SEGMENT_STEP_BYTES = 2 << 20


@attrs.frozen
class Shape:
    pool_bytes: int
    prefixes: int
    charge: str = "owner"
    """Who pays for a page that several operations name; see the setting of the same name."""

    @property
    def speculative_bytes(self) -> int:
        """What hints may hold reserved."""
        return int(self.pool_bytes * BUDGET_SHARE) // SPECULATIVE_DIVISOR

    @property
    def budget_bytes(self) -> int:
        return int(self.pool_bytes * BUDGET_SHARE)

    @property
    def page_bytes(self) -> int:
        page = PREFIX_OF_SPECULATIVE * self.speculative_bytes / PROMPT_PAGES
        return max(1, int(page) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES

    @property
    def working_set_bytes(self) -> int:
        return self.prefixes * PROMPT_PAGES * self.page_bytes

    @property
    def pool_pages(self) -> int:
        return self.pool_bytes // image_bytes(self.page_bytes)

    @property
    def scale(self) -> float:
        return scale_of(PAGE_TOKENS, self.page_bytes)

    @property
    def prefill_s(self) -> float:
        """Computing one whole prompt, by the model: the unit of the arrival gap."""
        return ComputeModel(self.scale).prefill_seconds(0, PROMPT_TOKENS)

    def check(self) -> None:
        """A working set that fits the pool is never read from the SSD, and its window means nothing."""
        if self.prefixes * PROMPT_PAGES > self.pool_pages:
            return
        most = self.pool_pages // PROMPT_PAGES
        give_up(
            f"{self.prefixes} prefixes of {PROMPT_PAGES} pages fit the pool of {self.pool_pages} pages",
            "Nothing would be read from the SSD, and the window would measure nothing",
            f"Give more than {most} --prefixes: their size follows from the pool",
        )

    @property
    def manager_settings(self) -> dict[str, object]:
        segment = SSD_POOLS * self.pool_bytes // SSD_SEGMENTS
        segment = max(segment, 2 * image_bytes(self.page_bytes))
        return {
            "pool-bytes": self.pool_bytes,
            "query-budget-bytes": self.budget_bytes,
            "speculative-divisor": SPECULATIVE_DIVISOR,
            "charge": self.charge,
            "ssd-bytes": SSD_POOLS * self.pool_bytes,
            "ssd-segment-bytes": -(-segment // SEGMENT_STEP_BYTES) * SEGMENT_STEP_BYTES,
        }

    def engine_config(self, socket_path: str, *, warmup: bool) -> EngineConfig:
        pages = GPU_TOKENS // PAGE_TOKENS
        return EngineConfig(
            socket_path=socket_path,
            instance="pressure",
            ranks=1,
            page_tokens=PAGE_TOKENS,
            slice_bytes=self.page_bytes,
            hbm_pages=pages,
            staging_bytes=pages * self.page_bytes,
            scale=self.scale,
            saving_pages_max=pages,
            queue_warmup=warmup,
            progress_interval_s=0.0,
        )

    def words(self) -> str:
        size = format_size
        pools = self.working_set_bytes / self.pool_bytes
        return (
            f"pool {size(self.pool_bytes)}, GPU {GPU_TOKENS // PAGE_TOKENS} pages of "
            f"{self.page_bytes / 1024:g} KiB, query budget {size(self.budget_bytes)} "
            f"(speculative {size(self.speculative_bytes)}), SSD {size(SSD_POOLS * self.pool_bytes)}, "
            f"{self.prefixes} prefixes of {PROMPT_PAGES} pages ({pools:.2f} pools); "
            f"charge = {self.charge}; modelled time and pages 1/{self.scale:g}"
        )


@attrs.frozen(kw_only=True)
class Case:
    name: str
    words: str
    gap: float = 0.0
    """Least time between two arrivals, in prefill times of one prompt."""
    reuse: float = REUSE
    hot: int = 0
    """So many of the prefixes are drawn from; 0: all."""
    repeats: float = 0.0
    """Chance that a request repeats the one before it."""
    reordered: bool = False
    """Requests have random priorities, so that the queue is served in another order."""
    aborted: float = 0.0
    """Share of requests whose client goes away some time after they were queued."""
    empty_dram: bool = False
    """The pool is emptied before the window; else it is as full as serving has left it."""


CASES = {
    case.name: case
    for case in (
        Case(name="pressure", words="the reference window: the next request when one has ended"),
        Case(name="gap 0.5", words="arrivals at least half a prefill time apart", gap=0.5),
        Case(name="gap 1", words="arrivals at least a prefill time apart", gap=1.0),
        Case(name="gap 2", words="arrivals at least two prefill times apart", gap=2.0),
        Case(name="empty DRAM", words="the pool is emptied before the window", empty_dram=True),
        Case(name="reordered", words="random priorities", reordered=True),
        Case(name="duplicates", words="half of the requests repeat the one before", repeats=0.5),
        Case(name="cancelled", words="a quarter of the requests is aborted", aborted=0.25),
        Case(name="HBM hits", words="one hot prompt, which GPU memory keeps", reuse=1.0, hot=1),
    )
}


@attrs.frozen
class Draw:
    request: Arrive
    abort_after_s: float | None


def seeding(shape: Shape) -> list[Arrive]:
    """One request for each prefix."""
    return [_arrive(f"seed-{prefix}", _prefix(prefix)) for prefix in range(shape.prefixes)]


def drawn(shape: Shape, case: Case, seed: int) -> Iterator[Draw]:
    """Requests without end, the same for the same seed whatever the arm."""
    chance = random.Random(seed)
    before: tuple[int, ...] | None = None
    number = 0
    while True:
        fresh = _prefix(shape.prefixes + number)
        blocks = _prefix(chance.randrange(case.hot or shape.prefixes))
        if chance.random() >= case.reuse:
            blocks = fresh
        if chance.random() < case.repeats and before is not None:
            blocks = before
        priority = chance.randrange(CONCURRENCY) if case.reordered else 0
        aborted = chance.random() < case.aborted
        after_s = chance.random() * CONCURRENCY * shape.prefill_s
        yield Draw(_arrive(f"request-{number}", blocks, priority), after_s if aborted else None)
        before = blocks
        number += 1


def _prefix(number: int) -> tuple[int, ...]:
    return tuple(range(number * PROMPT_PAGES, (number + 1) * PROMPT_PAGES))


def _arrive(name: str, blocks: tuple[int, ...], priority: int = 0) -> Arrive:
    return Arrive(name, PROMPT_TOKENS, OUTPUT_TOKENS, blocks, priority)
