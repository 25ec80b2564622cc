"""Opening the store: possession of its directory, the cap, and errors that name the setting to mend."""

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import trio

from orbitkv.events.outcomes import WriteOutcome
from orbitkv.io.errors import StoreError
from orbitkv.io.store import SsdStore, open_store
from tests.disks import make_read_only, small_disk
from tests.io.ssd_support import (
    IMAGE,
    SEGMENT,
    SLOTS_MAX,
    disk_bytes,
    fill_page,
    identity_of,
    make_pool,
    place,
    small_store,
    write_of,
)

FILE_MAP_BYTES = 4096
"""What the file system may need to note where a fragmented file lies; it counts this as the file's."""
ROOT = Path(__file__).parents[2]
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change user")


def close(store: SsdStore) -> None:
    trio.run(store.aclose)


def write_pages(store: SsdStore, pool: memoryview, slots: list[int]) -> None:
    async def main() -> None:
        for slot in slots:
            fill_page(place(pool, 0), identity_of(slot))
            store.submit_writes([write_of(slot, slot, identity_of(slot), out_of=0)])
            assert [done.outcome for done in await store.completions()] == [WriteOutcome.WRITTEN]

    trio.run(main)


def recovered_slots(store: SsdStore) -> list[int]:
    columns = b"".join(segment.slots for segment in store.recovered())
    return np.frombuffer(columns, dtype="<u4").tolist()


def test_a_new_store_is_private_and_says_what_is_in_force(tmp_path: Path) -> None:
    store = small_store(tmp_path / "ssd", make_pool())
    assert store.recovered() == []
    info = store.info
    assert info.engine in ("io_uring", "threads")
    assert info.reason.endswith("; the directory is new")
    assert (info.path, info.capacity_bytes, info.segment_bytes) == (
        str(tmp_path / "ssd"),
        4 * SEGMENT,
        SEGMENT,
    )
    assert (tmp_path / "ssd").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "ssd").iterdir()} == {0o600}
    assert {path.name for path in (tmp_path / "ssd").iterdir()} == {"lock", "pages", "directory"}
    close(store)


def test_pages_outlive_the_store(tmp_path: Path) -> None:
    pool = make_pool()
    store = small_store(tmp_path, pool)
    store.format_segment(1, IMAGE)
    write_pages(store, pool, [16, 18])
    close(store)
    again = small_store(tmp_path, pool)
    assert recovered_slots(again) == [SLOTS_MAX, SLOTS_MAX + 2]
    assert "new" not in again.info.reason
    close(again)


def test_the_capacity_is_whole_segments_and_is_never_exceeded(tmp_path: Path) -> None:
    pool = make_pool()
    capacity = 3 * SEGMENT + SEGMENT // 2
    store = open_store(
        tmp_path,
        pool_view=pool,
        capacity_bytes=capacity,
        segment_bytes=SEGMENT,
        slots_per_segment_max=SLOTS_MAX,
    )
    assert store.info.capacity_bytes == 3 * SEGMENT
    for segment in range(3):
        store.format_segment(segment, IMAGE)
    write_pages(store, pool, list(range(48)))
    assert (tmp_path / "pages").stat().st_size == 3 * SEGMENT
    assert disk_bytes(tmp_path / "pages") <= capacity
    with pytest.raises(AssertionError):
        store.submit_writes([write_of(1, slot=48, identity=identity_of(1), out_of=0)])
    close(store)


def test_a_lowered_cap_takes_effect_at_once(tmp_path: Path) -> None:
    pool = make_pool()
    store = small_store(tmp_path, pool, segments=4)
    for segment in range(4):
        store.format_segment(segment, IMAGE)
    write_pages(store, pool, [0, 63])
    close(store)
    smaller = small_store(tmp_path, pool, segments=2)
    assert disk_bytes(tmp_path / "pages") <= 2 * SEGMENT + FILE_MAP_BYTES
    assert recovered_slots(smaller) == [0]
    close(smaller)


def test_a_lost_page_file_is_an_empty_store(tmp_path: Path) -> None:
    pool = make_pool()
    store = small_store(tmp_path, pool)
    store.format_segment(0, IMAGE)
    write_pages(store, pool, [0])
    close(store)
    (tmp_path / "pages").unlink()
    empty = small_store(tmp_path, pool)
    assert empty.recovered() == []
    # Nor does the old entry come back to life when the new file has grown over its place.
    empty.format_segment(3, IMAGE)
    assert empty.recovered() == []
    close(empty)


def test_two_managers_cannot_share_a_store(tmp_path: Path) -> None:
    pool = make_pool()
    store = small_store(tmp_path, pool)
    with pytest.raises(StoreError, match=f"in use by process {os.getpid()}.*set ssd_path to another"):
        small_store(tmp_path, pool)
    close(store)
    close(small_store(tmp_path, pool))


def test_the_lock_of_a_killed_manager_means_nothing(tmp_path: Path) -> None:
    code = (
        "import os, signal, pathlib\n"
        "from tests.io.ssd_support import make_pool, small_store\n"
        f"store = small_store(pathlib.Path({str(tmp_path)!r}), make_pool())\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False).returncode == -9
    assert (tmp_path / "lock").exists()
    close(small_store(tmp_path, make_pool()))


def test_a_failed_opening_lets_go_of_the_lock(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        small_store(tmp_path, make_pool(), io_engine="nonsense")
    close(small_store(tmp_path, make_pool()))


def test_a_path_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"file is not a directory: set ssd_path"):
        small_store(tmp_path / "file", make_pool())


def test_a_page_file_that_is_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    with pytest.raises(StoreError, match=r"cannot be used \(Is a directory\): set ssd_path"):
        small_store(tmp_path, make_pool())


def test_a_missing_parent_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"gone does not exist: mount or make .*gone, or set ssd_path"):
        small_store(tmp_path / "gone" / "ssd", make_pool())


@NEEDS_ROOT
def test_a_path_of_another_user_is_named() -> None:
    """As another user, because root may write anywhere; outside tmp_path, whose parents are private."""
    code = (
        "import os, pathlib, sys\n"
        "from orbitkv.io.errors import StoreError\n"
        "from tests.io.ssd_support import make_pool, small_store\n"
        "os.setuid(65534)\n"
        "try: small_store(pathlib.Path(sys.argv[1]), make_pool())\n"
        "except StoreError as error: print(error)\n"
    )
    with tempfile.TemporaryDirectory() as foreign:
        os.chmod(foreign, 0o755)
        ran = subprocess.run(
            [sys.executable, "-c", code, foreign],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    assert "cannot be written by this user (Permission denied)" in ran.stdout
    assert "set ssd_path" in ran.stdout


@pytest.fixture
def disk() -> Iterator[Path]:
    """A file system with room for three segments and the directory."""
    with small_disk(3 * SEGMENT + (256 << 10)) as path:
        yield path


def test_a_full_disk_is_a_clear_error_of_the_one_segment(disk: Path) -> None:
    pool = make_pool()
    store = small_store(disk, pool)
    for segment in range(3):
        store.format_segment(segment, IMAGE)
    with pytest.raises(OSError, match=r"no space for SSD segment 3 .*free space, lower ssd_bytes") as full:
        store.format_segment(3, IMAGE)
    assert full.value.errno == errno.ENOSPC
    assert (disk / "pages").stat().st_size == 3 * SEGMENT
    write_pages(store, pool, [0, 47])
    store.format_segment(2, IMAGE)
    close(store)
    again = small_store(disk, pool)
    assert recovered_slots(again) == [0]
    close(again)


def test_a_failed_allocation_gives_back_what_it_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The space went between the question and the allocation, which took some of it before it failed."""
    store = small_store(tmp_path, make_pool())
    store.format_segment(0, IMAGE)
    before = (tmp_path / "pages").stat()
    allocate = os.posix_fallocate

    def run_out_half_way(descriptor: int, offset: int, length: int) -> None:
        allocate(descriptor, offset, length // 2)
        assert disk_bytes(tmp_path / "pages") >= SEGMENT * 3 // 2
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", run_out_half_way)
    with pytest.raises(OSError, match="no space for SSD segment 1"):
        store.format_segment(1, IMAGE)
    after = (tmp_path / "pages").stat()
    assert (after.st_size, after.st_blocks) == (before.st_size, before.st_blocks)
    close(store)


def test_a_read_only_disk_is_named(disk: Path) -> None:
    make_read_only(disk)
    with pytest.raises(StoreError, match="mounted read-only: remount it, or set ssd_path"):
        small_store(disk, make_pool())


def test_a_disk_full_at_the_start_is_named(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as filler:
        while os.fstatvfs(filler.fileno()).f_bavail:
            filler.write(bytes(4096))
    with pytest.raises(StoreError, match="no space left"):
        small_store(disk, make_pool())
