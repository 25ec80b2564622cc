"""The store's contract, on both engines: reads are checked, writes are listed, and all of it drains."""

import errno
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio
import trio.testing

from orbitkv.events.ids import TRAILER_BYTES
from orbitkv.events.outcomes import ReadOutcome, WriteOutcome
from orbitkv.io import store as store_module
from orbitkv.io.engine import TRANSFERS_MAX, Finished
from orbitkv.io.store import INLINE_CHECK_BYTES_MAX, SsdStore, open_store
from orbitkv.manager.ports import PageRead, PageWrite, ReadDone, WriteDone
from tests.io.ssd_support import (
    HUGE_PAGE,
    IMAGE,
    SLOTS_MAX,
    fill_page,
    identity_of,
    make_pool,
    place,
    read_of,
    small_store,
    write_of,
)

Story = Callable[[SsdStore, memoryview], Any]


@pytest.fixture(params=["io_uring", "threads"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Story], None]:
    """Runs a story against a store with one formatted segment and a pool, and closes the store after it."""

    def runner(story: Story) -> None:
        async def main() -> None:
            pool = make_pool()
            store = small_store(tmp_path, pool, io_engine=request.param)
            store.format_segment(0, IMAGE)
            try:
                with trio.fail_after(20):
                    await story(store, pool)
            finally:
                await store.aclose()

        trio.run(main)

    return runner


async def drain(store: SsdStore) -> dict[int, ReadDone | WriteDone]:
    done: dict[int, ReadDone | WriteDone] = {}
    while store.in_flight:
        done.update({each.token: each for each in await store.completions()})
    return done


async def write_pages(store: SsdStore, pool: memoryview, slots: Sequence[int]) -> None:
    """Page n goes to slot n, from place n."""
    for slot in slots:
        fill_page(place(pool, slot), identity_of(slot))
    store.submit_writes([write_of(slot, slot, identity_of(slot), out_of=slot) for slot in slots])
    outcomes = {each.outcome for each in (await drain(store)).values()}
    assert outcomes == {WriteOutcome.WRITTEN}


def listed(store: SsdStore) -> list[int]:
    return np.frombuffer(b"".join(found.slots for found in store.recovered()), dtype="<u4").tolist()


def test_pages_come_back_whole_and_in_their_places(run: Callable[[Story], None]) -> None:
    async def story(store: SsdStore, pool: memoryview) -> None:
        await write_pages(store, pool, range(16))
        store.submit_reads([read_of(100 + n, 15 - n, identity_of(15 - n), into=20 + n) for n in range(16)])
        assert store.in_flight == 16
        done = await drain(store)
        assert sorted(done) == list(range(100, 116))
        for each in done.values():
            assert isinstance(each, ReadDone)
            assert (each.outcome, each.read_bytes, each.detail) == (ReadOutcome.WHOLE, IMAGE, "")
            assert each.elapsed_us > 0
        assert all(place(pool, 20 + n) == place(pool, 15 - n) for n in range(16))

    run(story)


def test_a_slot_is_listed_from_the_end_of_its_write_to_the_start_of_the_next(
    run: Callable[[Story], None],
) -> None:
    async def story(store: SsdStore, pool: memoryview) -> None:
        await write_pages(store, pool, [3, 4])
        assert listed(store) == [3, 4]
        store.submit_writes([write_of(9, 3, identity_of(3), out_of=3)])
        assert listed(store) == [4]
        await drain(store)
        assert listed(store) == [3, 4]
        store.clear_slots(0, [3], quarantine=False)
        store.clear_slots(0, [4], quarantine=True)
        (segment,) = store.recovered()
        assert (segment.slots, segment.quarantined) == (b"", (4).to_bytes(4, "little"))

    run(story)


def rotten(path: Path, slot: int, change: Callable[[bytearray], None]) -> None:
    with (path / "pages").open("r+b") as pages:
        pages.seek(slot * IMAGE)
        image = bytearray(pages.read(IMAGE))
        change(image)
        pages.seek(slot * IMAGE)
        pages.write(image)
        os.fsync(pages.fileno())


def test_what_does_not_verify_says_why(run: Callable[[Story], None], tmp_path: Path) -> None:
    def flip(image: bytearray) -> None:
        image[5000] ^= 4

    def zero(image: bytearray) -> None:
        image[:] = bytes(len(image))

    async def story(store: SsdStore, pool: memoryview) -> None:
        await write_pages(store, pool, range(4))
        rotten(tmp_path, 0, flip)
        rotten(tmp_path, 1, zero)
        store.submit_reads([read_of(slot, slot, identity_of(slot), into=30 + slot) for slot in range(4)])
        store.submit_reads([read_of(8, 2, identity_of(3), into=38)])
        store.submit_reads([read_of(9, 2, identity_of(2, generation=2), into=39)])
        outcomes = {token: each.outcome for token, each in (await drain(store)).items()}
        assert outcomes == {
            0: ReadOutcome.CORRUPT,
            1: ReadOutcome.CORRUPT,
            2: ReadOutcome.WHOLE,
            3: ReadOutcome.WHOLE,
            8: ReadOutcome.OTHER_PAGE,
            9: ReadOutcome.OTHER_PAGE,
        }

    run(story)


def test_a_truncated_file_gives_short_reads(run: Callable[[Story], None], tmp_path: Path) -> None:
    async def story(store: SsdStore, pool: memoryview) -> None:
        await write_pages(store, pool, range(4))
        os.truncate(tmp_path / "pages", 2 * IMAGE + 4096)
        store.submit_reads([read_of(slot, slot, identity_of(slot), into=30 + slot) for slot in (1, 2, 3)])
        done = await drain(store)
        assert [done[slot].outcome for slot in (1, 2, 3)] == [
            ReadOutcome.WHOLE,
            ReadOutcome.SHORT,
            ReadOutcome.SHORT,
        ]
        assert done[2].detail == f"4096 of {IMAGE} bytes"

    run(story)


def test_more_than_the_engine_takes_at_once_waits_in_the_store(run: Callable[[Story], None]) -> None:
    async def story(store: SsdStore, pool: memoryview) -> None:
        await write_pages(store, pool, [7])
        count = 2 * TRANSFERS_MAX + 5
        store.submit_reads([read_of(n, 7, identity_of(7), into=8 + n % 100) for n in range(count)])
        assert store.in_flight == count
        done = await drain(store)
        assert len(done) == count
        assert {each.outcome for each in done.values()} == {ReadOutcome.WHOLE}

    run(story)


def test_cancelling_the_wait_loses_nothing(run: Callable[[Story], None]) -> None:
    async def story(store: SsdStore, pool: memoryview) -> None:
        await write_pages(store, pool, range(8))
        for _ in range(20):
            store.submit_reads([read_of(n, n, identity_of(n), into=20 + n) for n in range(8)])
            seen: list[int] = []
            while store.in_flight:
                with trio.CancelScope() as scope:
                    if len(seen) % 2 == 0:
                        scope.cancel()
                    seen += [each.token for each in await store.completions()]
                if scope.cancelled_caught:
                    seen += [each.token for each in await store.completions()]
            assert sorted(seen) == list(range(8))

    run(story)


def test_waiting_gives_way_to_other_tasks(run: Callable[[Story], None]) -> None:
    """Even when results are always there, `completions()` is a checkpoint."""

    async def story(store: SsdStore, pool: memoryview) -> None:
        await write_pages(store, pool, [0])
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick)
            for _ in range(50):
                store.submit_reads([read_of(1, 0, identity_of(0), into=1)])
                with trio.testing.assert_checkpoints():
                    await store.completions()
            assert ticks >= 50
            nursery.cancel_scope.cancel()

    run(story)


def test_checking_is_done_in_portions_with_a_checkpoint_before_each(
    run: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "CHECK_BATCH_BYTES_MAX", 2 * IMAGE)

    async def story(store: SsdStore, pool: memoryview) -> None:
        await write_pages(store, pool, range(9))
        store.submit_reads([read_of(n, n, identity_of(n), into=20 + n) for n in range(9)])
        seen = []
        while store.in_flight:
            with trio.testing.assert_checkpoints():
                done = await store.completions()
            assert 1 <= len(done) <= 2
            seen += [each.token for each in done]
        assert sorted(seen) == list(range(9))

    run(story)


def test_only_one_task_waits(run: Callable[[Story], None]) -> None:
    async def story(store: SsdStore, pool: memoryview) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(_completions_end_with, store, trio.ClosedResourceError))
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await store.completions()
            await store.aclose()

    run(story)


async def _completions_end_with(store: SsdStore, error: type[BaseException]) -> None:
    with pytest.raises(error):
        await store.completions()


def test_closing_drains_what_was_submitted_also_under_cancellation(
    run: Callable[[Story], None], tmp_path: Path
) -> None:
    async def story(store: SsdStore, pool: memoryview) -> None:
        for slot in range(16):
            fill_page(place(pool, slot), identity_of(slot))
        store.submit_writes([write_of(n, n, identity_of(n), out_of=n) for n in range(16)])
        with trio.CancelScope() as scope:
            scope.cancel()
            await store.aclose()
        again = small_store(tmp_path, pool)
        assert listed(again) == list(range(16))
        await again.aclose()

    run(story)


def test_a_closed_store_says_so(run: Callable[[Story], None]) -> None:
    async def story(store: SsdStore, pool: memoryview) -> None:
        await store.aclose()
        await store.aclose()
        for call in (partial(store.submit_reads, []), partial(store.submit_writes, [])):
            with pytest.raises(trio.ClosedResourceError):
                call()
        for wait in (store.completions, store.sync):
            with pytest.raises(trio.ClosedResourceError):
                await wait()

    run(story)


def test_sync_runs_beside_transfers(run: Callable[[Story], None]) -> None:
    async def story(store: SsdStore, pool: memoryview) -> None:
        await write_pages(store, pool, [0])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.sync)
            nursery.start_soon(store.sync)
            store.submit_reads([read_of(1, 0, identity_of(0), into=1)])
            assert (await drain(store))[1].outcome is ReadOutcome.WHOLE

    run(story)


@pytest.mark.parametrize("io_engine", ["io_uring", "threads"])
def test_large_images_are_checked_beside_the_loop(tmp_path: Path, io_engine: str) -> None:
    image_bytes = INLINE_CHECK_BYTES_MAX + TRAILER_BYTES
    segment_bytes = 4 * image_bytes
    pool = make_pool(6 * HUGE_PAGE)

    def transfer(kind: type[PageRead] | type[PageWrite], slot: int, at: int, **rest: Any) -> Any:
        return kind(
            token=slot,
            slot=slot,
            file_offset=slot * image_bytes,
            pool_offset=at * image_bytes,
            image_bytes=image_bytes,
            identity=identity_of(slot),
            **rest,
        )

    async def main() -> None:
        store = open_store(
            tmp_path,
            pool_view=pool,
            capacity_bytes=segment_bytes,
            segment_bytes=segment_bytes,
            slots_per_segment_max=SLOTS_MAX,
            io_engine=io_engine,
        )
        store.format_segment(0, image_bytes)
        for slot in range(4):
            fill_page(pool[slot * image_bytes : (slot + 1) * image_bytes], identity_of(slot))
        store.submit_writes([transfer(PageWrite, n, n, segment=0, slot_index=n) for n in range(4)])
        await drain(store)
        with (tmp_path / "pages").open("r+b") as pages:
            pages.seek(2 * image_bytes + 77)
            pages.write(b"\xff")
            os.fsync(pages.fileno())
        store.submit_reads([transfer(PageRead, n, 4 + n, foreground=True) for n in range(4)])
        outcomes = [each.outcome for _, each in sorted((await drain(store)).items())]
        assert outcomes == [ReadOutcome.WHOLE, ReadOutcome.WHOLE, ReadOutcome.CORRUPT, ReadOutcome.WHOLE]
        await store.aclose()

    trio.run(main)


class TroubledEngine:
    """Passes on to a real engine and changes the results as told, as a failing device would."""

    def __init__(self, engine: Any, results: dict[int, int]) -> None:
        self._engine = engine
        self._results = results

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def reap(self) -> list[Finished]:
        return [
            each._replace(result=self._results.get(each.transfer.token, each.result))
            for each in self._engine.reap()
        ]


def test_what_the_device_refuses_is_reported_and_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        pool = make_pool()
        store = small_store(tmp_path, pool)
        store.format_segment(0, IMAGE)
        results = {1: -errno.EIO, 2: -errno.ENOSPC, 3: 4096, 5: -errno.EIO}
        monkeypatch.setattr(store, "_engine", TroubledEngine(store._engine, results))
        for slot in range(5):
            fill_page(place(pool, slot), identity_of(slot))
        store.submit_writes([write_of(n, n, identity_of(n), out_of=n) for n in range(5)])
        done = await drain(store)
        assert [done[n].outcome for n in range(5)] == [
            WriteOutcome.WRITTEN,
            WriteOutcome.FAILED,
            WriteOutcome.NO_SPACE,
            WriteOutcome.SHORT,
            WriteOutcome.WRITTEN,
        ]
        assert [done[n].detail for n in (1, 2, 3)] == [
            "Input/output error",
            "No space left on device",
            f"4096 of {IMAGE} bytes",
        ]
        assert listed(store) == [0, 4]
        store.submit_reads([read_of(5, 0, identity_of(0), into=9)])
        (failed,) = await store.completions()
        assert failed == ReadDone(5, ReadOutcome.FAILED, 0, failed.elapsed_us, "Input/output error")
        await store.aclose()

    trio.run(main)


def test_a_directory_that_cannot_be_written_fails_the_write_before_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(segment: int, indices: Sequence[int]) -> None:
        raise OSError(errno.EIO, "")

    async def main() -> None:
        pool = make_pool()
        store = small_store(tmp_path, pool)
        store.format_segment(0, IMAGE)
        fill_page(place(pool, 0), identity_of(0))
        monkeypatch.setattr(store._directory, "clear", refuse)
        async with trio.open_nursery() as nursery:
            seen: list[ReadDone | WriteDone] = []

            async def collect() -> None:
                seen.extend(await store.completions())

            nursery.start_soon(collect)
            await trio.testing.wait_all_tasks_blocked()
            store.submit_writes([write_of(1, 0, identity_of(0), out_of=0)])
        assert seen == [WriteDone(1, WriteOutcome.FAILED, 0, "Input/output error")]
        assert (tmp_path / "pages").read_bytes()[:IMAGE] == bytes(IMAGE)
        await store.aclose()

    trio.run(main)
