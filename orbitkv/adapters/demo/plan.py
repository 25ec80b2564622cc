"""From options to a run: which requests, how large a page is, how much GPU memory each engine has.

One factor, `scale`, makes pages and compute time smaller than those of the reference (see
`embedded.compute_model`). Proportions are those of a machine under pressure: the GPU memory of all
engines is 0.28 of the pool; the working set must exceed the pool, or the SSD is never read.
"""

import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import attrs

from orbitkv.adapters.demo.options import DemoOptions
from orbitkv.adapters.embedded.compute_model import scale_of
from orbitkv.adapters.embedded.messages import EngineConfig
from orbitkv.adapters.errors import AdapterError
from orbitkv.adapters.generator import generate
from orbitkv.adapters.trace import BLOCK_TOKENS, TraceRequest, read_trace
from orbitkv.events.geometry import image_bytes, padded_bytes
from orbitkv.events.ids import ALIGNMENT_BYTES

PAGE_BYTES = 128 * 1024
"""Of one page of 512 tokens over all ranks, about: each rank's slice is a multiple of 4 KiB."""
HBM_SHARE = 0.28
"""GPU memory of all engines against the pool."""
HBM_SPARE_PAGES = 16
"""Beyond the longest request, so that it never waits for an empty GPU."""
STAGING_PAGES = 256


@attrs.frozen(kw_only=True)
class DemoPlan:
    options: DemoOptions
    requests: Sequence[TraceRequest]
    slice_bytes: int
    page_bytes: int
    scale: float
    pool_pages: int
    hbm_pages: int
    working_set_pages: int
    """Distinct whole pages of all prompts."""

    @property
    def working_set_fits_pool(self) -> bool:
        return self.working_set_pages <= self.pool_pages

    def engine_config(self, number: int, socket_path: Path) -> EngineConfig:
        return EngineConfig(
            socket_path=str(socket_path),
            instance=f"engine-{number}",
            ranks=self.options.ranks,
            page_tokens=BLOCK_TOKENS,
            slice_bytes=self.slice_bytes,
            hbm_pages=self.hbm_pages,
            staging_bytes=STAGING_PAGES * padded_bytes(self.slice_bytes),
            scale=self.scale,
            saving_pages_max=max(1, self.hbm_pages // 2),
            queue_warmup=self.options.warmup,
        )

    @property
    def manager_settings(self) -> dict[str, object]:
        return {"pool-bytes": self.options.pool_bytes, "ssd-bytes": self.options.ssd_bytes}

    def arm(self, *, warmup: bool, out: Path) -> "DemoPlan":
        """The same requests and capacities, with or without warm-up, in a folder of its own."""
        return attrs.evolve(self, options=attrs.evolve(self.options, warmup=warmup, out=out, pairs=0))


def make_plan(options: DemoOptions) -> DemoPlan:
    """Read or generate the requests and size the engines. Raises AdapterError."""
    source = read_trace(options.trace) if options.trace is not None else generate(options.seed)
    requests = list(islice(source, options.requests))
    if not requests:
        raise AdapterError(
            f"The trace {options.trace} is empty.", "It has no request.", "give another --trace"
        )
    slice_bytes = max(ALIGNMENT_BYTES, PAGE_BYTES // options.ranks // ALIGNMENT_BYTES * ALIGNMENT_BYTES)
    page_bytes = slice_bytes * options.ranks
    pool_pages = options.pool_bytes // image_bytes(page_bytes)
    _check_room(options)
    return DemoPlan(
        options=options,
        requests=requests,
        slice_bytes=slice_bytes,
        page_bytes=page_bytes,
        scale=scale_of(BLOCK_TOKENS, page_bytes),
        pool_pages=pool_pages,
        hbm_pages=max(
            int(HBM_SHARE * pool_pages / options.engines), _longest_pages(requests) + HBM_SPARE_PAGES
        ),
        working_set_pages=_working_set_pages(requests),
    )


def _longest_pages(requests: Sequence[TraceRequest]) -> int:
    return max(-(-(request.input_length + request.output_length) // BLOCK_TOKENS) for request in requests)


def _working_set_pages(requests: Sequence[TraceRequest]) -> int:
    return len({block for r in requests for block in r.hash_ids[: r.input_length // BLOCK_TOKENS]})


def _check_room(options: DemoOptions) -> None:
    folder = next(parent for parent in (options.out, *options.out.absolute().parents) if parent.is_dir())
    free_bytes = shutil.disk_usage(folder).free
    if options.ssd_bytes > free_bytes:
        raise AdapterError(
            f"There is no room for a page file of {options.ssd_bytes >> 20} MiB.",
            f"The disk under {folder} has {free_bytes >> 20} MiB left.",
            "name an --out on another disk, or a smaller --ssd",
        )
