"""The arms of `ring.py`: ways to read the same random pages of one file into a pool, and what each costs.

Every arm reads `reads` images in the order that the round's seed gives, with `window` of them at the device
and twice as many places in the pool, so that landed pages can be checked while the device reads on.
"""

import json
import os
import random
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import attrs
import trio

from benches.common import Sample, give_up
from orbitkv.events.ids import TRAILER_BYTES
from orbitkv.events.outcomes import ReadOutcome, WriteOutcome
from orbitkv.io.image import seal, verify
from orbitkv.io.memory import MemoryPool
from orbitkv.io.store import INLINE_CHECK_BYTES_MAX, SsdStore, make_engine
from orbitkv.io.store_files import PAGES_NAME, StoreFiles
from orbitkv.io.store_geometry import StoreGeometry
from orbitkv.io.verifier import Check
from orbitkv.manager.ports import PageIdentity, PageRead, PageWrite

HUGE_PAGE_BYTES = 2 << 20
WINDOW_BYTES = 32 << 20
SEGMENTS = 8
BASELINE = Path(__file__).with_name("ring_baseline.c")


@attrs.frozen(slots=True)
class Field:
    """A page file full of sealed pages, and the work to do on it."""

    path: Path
    geometry: StoreGeometry
    pool_view: memoryview
    image_bytes: int
    identities: Sequence[PageIdentity]
    """Of the pages, in the order of the file."""
    reads: int

    @property
    def window(self) -> int:
        return max(1, WINDOW_BYTES // self.image_bytes)

    @property
    def places(self) -> int:
        return 2 * self.window

    def order(self, round_number: int) -> list[int]:
        choose = random.Random(round_number)
        return [choose.randrange(len(self.identities)) for _ in range(self.reads)]

    def read(self, page: int, place: int) -> PageRead:
        return PageRead(
            token=place,
            slot=page,
            file_offset=page * self.image_bytes,
            pool_offset=place * self.image_bytes,
            image_bytes=self.image_bytes,
            identity=self.identities[page],
            foreground=True,
        )


def identity_of(page: int) -> PageIdentity:
    return PageIdentity(b"bench namespace!", 0, page.to_bytes(32, "little"), incarnation=1, generation=page)


def huge_pool(size_bytes: int) -> MemoryPool:
    """A pool as the manager makes it, all of it populated."""
    rounded = -(-size_bytes // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    pool = MemoryPool(rounded, rounded)
    trio.run(pool.prepare_superblock, 0)
    return pool


def lay_out(path: Path, pool_view: memoryview, payload_bytes: int, file_bytes: int, run_bytes: int) -> Field:
    """Fill a new store below `path` with pages of random bytes, through the store itself."""
    image_bytes = payload_bytes + TRAILER_BYTES
    slots = file_bytes // SEGMENTS // image_bytes
    geometry = StoreGeometry(SEGMENTS * slots * image_bytes, slots * image_bytes, slots)
    identities = [identity_of(page) for page in range(SEGMENTS * slots)]
    field = Field(path, geometry, pool_view, image_bytes, identities, run_bytes // image_bytes)
    pool_view[:payload_bytes] = os.urandom(payload_bytes)
    trio.run(_fill, field, slots)
    return field


async def _fill(field: Field, slots: int) -> None:
    """One place per write in flight; the first payload is copied to all of them."""
    store = open_field(field, "auto", verify)
    free = list(range(field.places))
    image_bytes = field.image_bytes
    for page, identity in enumerate(field.identities):
        segment, index = divmod(page, slots)
        if not index:
            store.format_segment(segment, image_bytes)
        while not free:
            free += await _written(store)
        place = free.pop()
        image = field.pool_view[place * image_bytes : (place + 1) * image_bytes]
        if page < field.places:
            image[:-TRAILER_BYTES] = field.pool_view[: image_bytes - TRAILER_BYTES]
        seal(image, identity)
        offsets = (page * image_bytes, place * image_bytes)
        write = PageWrite(place, page, *offsets, image_bytes, identity, segment, index)
        store.submit_writes([write])
    while store.in_flight:
        await _written(store)
    await store.aclose()


async def _written(store: SsdStore) -> list[int]:
    done = await store.completions()
    if any(each.outcome is not WriteOutcome.WRITTEN for each in done):
        give_up("The bench's page file could not be written", done[0].detail, "Give it another --directory")
    return [each.token for each in done]


def open_field(field: Field, io_engine: str, check: Check | None, **tuning: int) -> SsdStore:
    files = StoreFiles(field.path, field.geometry, io_engine=io_engine, io_direct="on")
    window_bytes = field.window * field.image_bytes
    engine = make_engine(files, field.pool_view)
    return SsdStore(files, engine, field.pool_view, inflight_bytes_max=window_bytes, check=check, **tuning)


# --- arms -------------------------------------------------------------------------------------------


def through_store(
    field: Field,
    round_number: int,
    *,
    io_engine: str = "io_uring",
    check: Check | None = verify,
    inline_check_bytes_max: int = INLINE_CHECK_BYTES_MAX,
) -> Sample:
    """The store, driven as the shell drives it: each wake's results are answered with as many new reads."""
    store = open_field(field, io_engine, check, inline_check_bytes_max=inline_check_bytes_max)

    async def main() -> dict[str, float]:
        with measured(field) as sample:
            sample["wakes"] = await _read_all(store, field, round_number)
        await store.aclose()
        return sample

    return trio.run(main)


async def _read_all(store: SsdStore, field: Field, round_number: int) -> int:
    pages = iter(field.order(round_number))
    first = islice(pages, field.places)
    store.submit_reads([field.read(page, place) for place, page in enumerate(first)])
    wakes = 0
    while store.in_flight:
        done = await store.completions()
        wakes += 1
        _expect_whole([each.outcome for each in done])
        again = zip(done, pages, strict=False)
        store.submit_reads([field.read(page, each.token) for each, page in again])
    return wakes


def through_to_thread(field: Field, round_number: int, *, check: bool) -> Sample:
    """What one would write without a store: a task per read in flight, `trio.to_thread` around preadv."""
    descriptor = os.open(field.path / PAGES_NAME, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    pages = iter(field.order(round_number))

    def read(page: int, place: int) -> None:
        begin = place * field.image_bytes
        view = field.pool_view[begin : begin + field.image_bytes]
        moved = os.preadv(descriptor, [view], page * field.image_bytes)
        outcome = ReadOutcome.WHOLE if moved == field.image_bytes else ReadOutcome.SHORT
        _expect_whole([verify(view, field.identities[page]) if check else outcome])

    async def work(place: int, limiter: trio.CapacityLimiter) -> None:
        for page in pages:
            await trio.to_thread.run_sync(read, page, place, limiter=limiter)

    async def main() -> dict[str, float]:
        limiter = trio.CapacityLimiter(field.window)
        with measured(field) as sample:
            async with trio.open_nursery() as nursery:
                for place in range(field.window):
                    nursery.start_soon(work, place, limiter)
        return sample

    try:
        return trio.run(main)
    finally:
        os.close(descriptor)


def through_c(field: Field, round_number: int, *, program: Path, check: bool) -> Sample:
    """The C control, in a process and a pool of its own; its pages differ, their number does not."""
    numbers = (
        len(field.identities),
        field.image_bytes,
        field.window,
        field.reads,
        int(check),
        round_number + 2,
    )
    command = [str(program), str(field.path / PAGES_NAME), *map(str, numbers)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        give_up("The C control failed", ran.stderr.strip(), "Run it by hand to see more")
    told = json.loads(ran.stdout)
    assert not told["wrong"], "the C control and the store disagree about the pages"
    return _sample(field, told["seconds"], told["user_s"] + told["system_s"])


def build_control(directory: Path) -> Path:
    """Compile the C control. Ends the bench if what it needs is not installed."""
    mend = "apt-get install gcc liburing-dev libxxhash-dev"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        give_up("There is no C compiler for the control", "neither cc nor gcc is on the PATH", mend)
    program = directory / "ring_baseline"
    # xxh3 is fastest here with AVX2 (wider vectors are slower); the Python package picks its own.
    vectors = ["-mavx2"] if " avx2 " in Path("/proc/cpuinfo").read_text() else []
    command = [compiler, "-O3", *vectors, "-o", str(program), str(BASELINE), "-luring"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        give_up("The C control does not compile", ran.stderr.strip().splitlines()[0], mend)
    return program


# --- measuring ----------------------------------------------------------------------------------------


@contextmanager
def measured(field: Field) -> Iterator[dict[str, float]]:
    sample: dict[str, float] = {}
    before = resource.getrusage(resource.RUSAGE_SELF)
    begin = time.perf_counter()
    yield sample
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    sample.update(_sample(field, seconds, used_s))


def _sample(field: Field, seconds: float, cpu_s: float) -> dict[str, float]:
    return {
        "gb_per_s": field.reads * field.image_bytes / seconds / 1e9,
        "cpu_us_per_page": cpu_s / field.reads * 1e6,
    }


def _expect_whole(outcomes: Sequence[object]) -> None:
    wrong = [outcome for outcome in outcomes if outcome is not ReadOutcome.WHOLE]
    assert not wrong, f"the bench reads what it wrote, and got {wrong[0]}"
