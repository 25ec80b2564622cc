"""The pool as the manager sees it: sizes, lazily taken memory, 2 MiB pages, errors that name a setting."""

import errno
import gc
import os
import threading

import numpy as np
import pytest
import trio
import trio.testing

import orbitkv.io.memory as memory
from orbitkv.io.mapping import HUGE_PAGE_BYTES, MADV_COLLAPSE, MADV_POPULATE_WRITE, AlignedMapping
from orbitkv.io.memory import MemoryPool
from orbitkv.io.memory_limit import memory_limit

MIB = 1 << 20


@pytest.fixture
def pool():
    pool = MemoryPool(16 * MIB, 4 * MIB)
    yield pool
    pool.close()


def resident_bytes(pool):
    return os.fstat(pool._fd).st_blocks * 512


def test_memory_is_taken_superblock_by_superblock(pool):
    async def main():
        assert len(pool.view) == pool.pool_bytes == 16 * MIB
        assert resident_bytes(pool) == 0
        await pool.prepare_superblock(2)
        assert resident_bytes(pool) == pool.prepared_bytes == 4 * MIB

    trio.run(main)


def test_prepared_memory_is_made_of_huge_pages_or_says_why_not(pool):
    async def main():
        await pool.prepare_superblock(0)
        await pool.prepare_superblock(3)

    trio.run(main)
    if pool.small_pages_reason:
        assert pool.huge_bytes() < 8 * MIB
    else:
        assert pool.huge_bytes() == 8 * MIB


def test_preparing_keeps_what_is_there(pool):
    pool.view[5 * MIB : 5 * MIB + 3] = b"abc"
    trio.run(pool.prepare_superblock, 1)
    assert bytes(pool.view[5 * MIB : 5 * MIB + 3]) == b"abc"


def test_callers_at_the_same_time_share_one_run_and_later_ones_need_none(pool, monkeypatch):
    advised = []
    advise = AlignedMapping.advise
    started, go_on = threading.Event(), threading.Event()

    def slow(self, advice, offset, length):
        advised.append((advice, offset))
        started.set()
        assert go_on.wait(10)
        advise(self, advice, offset, length)

    monkeypatch.setattr(AlignedMapping, "advise", slow)

    async def main():
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(pool.prepare_superblock, 1)
            await trio.to_thread.run_sync(started.wait)
            await trio.testing.wait_all_tasks_blocked()
            go_on.set()
        await pool.prepare_superblock(1)

    trio.run(main)
    assert advised == [(MADV_POPULATE_WRITE, 4 * MIB), (MADV_COLLAPSE, 4 * MIB)]


def test_no_memory_names_the_setting_and_can_be_tried_again(pool, monkeypatch):
    def refuse(self, advice, offset, length):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    async def main():
        with monkeypatch.context() as patch:
            patch.setattr(AlignedMapping, "advise", refuse)
            with pytest.raises(OSError, match="make pool_bytes smaller") as caught:
                await pool.prepare_superblock(0)
            assert caught.value.errno == errno.ENOMEM
            assert pool.prepared_bytes == 0
        await pool.prepare_superblock(0)
        assert pool.prepared_bytes == 4 * MIB

    trio.run(main)


@pytest.mark.parametrize(
    ("number", "words", "tries"),
    [
        (errno.EINVAL, "cannot collapse", 1),
        (errno.EAGAIN, "in use", 3),
        (errno.EPERM, "the kernel refused", 1),
    ],
)
def test_a_host_that_does_not_collapse_is_no_error_but_is_said(pool, monkeypatch, number, words, tries):
    advise = AlignedMapping.advise
    asked = []

    def no_collapse(self, advice, offset, length):
        if advice == MADV_COLLAPSE:
            asked.append(offset)
            raise OSError(number, os.strerror(number))
        advise(self, advice, offset, length)

    monkeypatch.setattr(AlignedMapping, "advise", no_collapse)
    trio.run(pool.prepare_superblock, 0)
    assert words in pool.small_pages_reason
    assert len(asked) == tries
    assert pool.prepared_bytes == 4 * MIB


@pytest.mark.parametrize(
    ("pool_bytes", "superblock_bytes", "words"),
    [
        (0, 2 * MIB, "set pool_bytes to at least"),
        (-1, 2 * MIB, "set pool_bytes to at least"),
        (1 * MIB, 2 * MIB, "set pool_bytes to at least"),
        (
            1 << 50,
            2 * MIB,
            "pool_bytes = 1125899906842624 is more than this process can have: this machine's",
        ),
        (4 * MIB, 3 * MIB, "set superblock_bytes to a multiple"),
        (4 * MIB, 0, "set superblock_bytes to a multiple"),
    ],
)
def test_sizes_that_cannot_work_name_their_setting(pool_bytes, superblock_bytes, words):
    with pytest.raises(ValueError, match=words):
        MemoryPool(pool_bytes, superblock_bytes)


def test_a_control_groups_limit_is_named(monkeypatch):
    monkeypatch.setattr(memory, "memory_limit", lambda: (8 * MIB, "the limit in /here/memory.max"))
    with pytest.raises(ValueError, match=r"the limit in /here/memory\.max is 8388608 bytes"):
        MemoryPool(16 * MIB, 4 * MIB)


def test_a_refused_mapping_is_explained_and_leaves_no_descriptor(monkeypatch):
    def refuse(fd, size_bytes):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(memory, "AlignedMapping", refuse)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="pool_bytes = 16777216 cannot be made"):
        MemoryPool(16 * MIB, 4 * MIB)
    assert os.listdir("/proc/self/fd") == before


def mapped():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sum("orbitkv-pool" in line for line in maps)


def test_a_view_outlives_close_and_the_mapping_goes_with_the_last_one():
    gc.collect()
    before = mapped()
    pool = MemoryPool(4 * MIB, 2 * MIB)
    assert pool._mapping.address % HUGE_PAGE_BYTES == 0
    array = np.frombuffer(pool.view[MIB:], np.uint8)
    pool.close()
    pool.close()
    gc.collect()
    array[:] = 7
    assert mapped() == before + 1
    del array
    gc.collect()
    assert mapped() == before


def test_the_lowest_limit_of_all_groups_above_counts(tmp_path):
    (tmp_path / "memory/a/b").mkdir(parents=True)
    (tmp_path / "memory/a/b/memory.limit_in_bytes").write_text("9223372036854771712\n")
    (tmp_path / "memory/a/memory.limit_in_bytes").write_text("5000000\n")
    (tmp_path / "v2/job").mkdir(parents=True)
    (tmp_path / "v2/job/memory.max").write_text("max\n")
    (tmp_path / "v2/memory.max").write_text("4000000\n")
    groups = tmp_path / "cgroup"
    groups.write_text("4:memory:/a/b\n1:cpu:/a\n0::/v2/job\n")
    assert memory_limit(str(groups), str(tmp_path)) == (4_000_000, f"the limit in {tmp_path}/v2/memory.max")
    groups.write_text("4:cpu,memory:/a/b\n")
    assert memory_limit(str(groups), str(tmp_path)) == (
        5_000_000,
        f"the limit in {tmp_path}/memory/a/memory.limit_in_bytes",
    )


def test_without_control_groups_the_machine_is_the_limit(tmp_path):
    limit_bytes, whose = memory_limit(str(tmp_path / "none"), str(tmp_path))
    assert limit_bytes == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert whose == "this machine's memory"
