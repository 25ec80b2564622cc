"""The two controls: a rotten page on the SSD is a miss, a wrong byte in the pool is seen in GPU memory.

Without them, "0 wrong bytes" could mean that nobody looked. Real manager, real engines.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

from orbitkv.adapters.embedded.block_hash import block_keys
from orbitkv.adapters.embedded.page_content import PageContent
from orbitkv.adapters.embedded.sessions import namespace_of
from tests.demo.real_manager import RANKS, SLICE_BYTES, RealManager, real_manager

ROOT = Path(__file__).parents[2]
BLOCKS = (1, 2, 3, 4, 5, 6)


def slice_of(manager: RealManager, position: int, rank: int) -> bytes:
    """The bytes of one rank's slice of the page at this position of the prompt."""
    page = np.empty(SLICE_BYTES, dtype=np.uint8)
    digest = namespace_of(manager.engine_config("any")).digest
    PageContent(digest, rank, SLICE_BYTES).fill(block_keys(BLOCKS)[position], page)
    return page.tobytes()


def replayed(what: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "replay", what, str(folder / "log"), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_pages_come_back_right_from_dram_and_from_the_ssd(tmp_path: Path) -> None:
    """The positive control of both controls: the same steps with nobody tampering."""

    async def main() -> None:
        async with real_manager(tmp_path) as manager:
            assert (await manager.serve("cold", BLOCKS)).computed_pages == 6
            from_dram = await manager.serve("dram", BLOCKS)
            await manager.only_on_ssd(6)
            from_ssd = await manager.serve("ssd", BLOCKS)
        for report in (from_dram, from_ssd):
            assert (report.restored_pages, report.computed_pages, report.byte_mismatches) == (6, 0, 0)
            assert report.restored_bytes == 6 * RANKS * SLICE_BYTES

    trio.run(main)
    totals = replayed("fold", tmp_path)["incarnations"][0]["totals"]
    assert (totals["dram_pages"], totals["ssd_pages"], totals["miss_pages"]) == (6, 6, 6)
    assert totals["load_bytes"] == 2 * 6 * RANKS * SLICE_BYTES
    replayed("verify", tmp_path)


def test_a_bit_flipped_on_the_ssd_is_a_miss_and_counted_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with real_manager(tmp_path) as manager:
            await manager.serve("cold", BLOCKS)
            await manager.only_on_ssd(6)
            flip_in_file(manager, slice_of(manager, 3, 1))
            after_rot = await manager.serve("after rot", BLOCKS)
            again = await manager.serve("again", BLOCKS)
            status = manager.status()
        assert (after_rot.restored_pages, after_rot.computed_pages) == (3, 3), "cut at the rotten page"
        assert (again.restored_pages, again.computed_pages) == (6, 0), "computed, saved, found again"
        assert after_rot.byte_mismatches == again.byte_mismatches == 0
        assert after_rot.completed == again.completed == 1
        assert status["ssd"]["quarantined"] == 1

    trio.run(main)
    totals = replayed("fold", tmp_path)["incarnations"][0]["totals"]
    assert totals["read_failures"] == {"corrupt": 1}
    replayed("verify", tmp_path)


def test_a_byte_flipped_in_the_pool_after_verification_is_seen_in_gpu_memory(tmp_path: Path) -> None:
    async def main() -> None:
        async with real_manager(tmp_path) as manager:
            await manager.serve("cold", BLOCKS)
            flip_in_pool(manager, slice_of(manager, 2, 0))
            report = await manager.serve("victim", BLOCKS)
        assert (report.byte_mismatches, report.mismatched_pages) == (1, 1)
        assert report.completed == 1
        assert report.computed_pages == 6, "a load that is known to be wrong is computed over"

    trio.run(main)
    replayed("verify", tmp_path)


def flip_in_file(manager: RealManager, wanted: bytes) -> None:
    """One bit in the middle of these bytes, where they stand in the page file."""
    with manager.page_file.open("r+b") as file:
        data = file.read()
        assert data.count(wanted) == 1
        at = data.index(wanted) + len(wanted) // 2
        file.seek(at)
        file.write(bytes([data[at] ^ 0x01]))
        file.flush()
        os.fsync(file.fileno())


def flip_in_pool(manager: RealManager, wanted: bytes) -> None:
    """One byte in the middle of these bytes, in the manager's own mapping of the pool.

    Only the manager can write its pool: nothing else may even map it for that. A debugger can.
    """
    pid = manager.child.pid
    try:
        with (
            Path(f"/proc/{pid}/maps").open() as maps,
            Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory,
        ):
            ranges = [line.split()[0] for line in maps if "memfd:" in line and " rw-s " in line]
            assert sum(_flip(memory.fileno(), *_ends(found), wanted) for found in ranges) == 1
    except PermissionError:
        pytest.skip("this user may not write another process's memory; root may")


def _ends(words: str) -> tuple[int, int]:
    first, end = words.split("-")
    return int(first, 16), int(end, 16)


def _flip(memory: int, first: int, end: int, wanted: bytes) -> int:
    """How many were found in this range, and flipped."""
    data = os.pread(memory, end - first, first)
    if wanted not in data:
        return 0
    assert data.count(wanted) == 1
    at = data.index(wanted) + len(wanted) // 2
    os.pwrite(memory, bytes([data[at] ^ 0xFF]), first + at)
    return 1
