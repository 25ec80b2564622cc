"""The directory tells after any end of the process what stands in which slot, and nothing else."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from orbitkv.events.ids import KEY_BYTES_MAX
from orbitkv.io.directory import Directory
from orbitkv.io.errors import StoreError
from orbitkv.io.store_geometry import ENTRY_BYTES, StoreGeometry
from orbitkv.manager.ports import PageIdentity, RecoveredSegment
from tests.io.ssd_support import disk_bytes, identity_of

SEGMENT = 1 << 20
SLOT = 64 << 10
GEOMETRY = StoreGeometry(capacity_bytes=8 * SEGMENT, segment_bytes=SEGMENT, slots_per_segment_max=256)
EVERYTHING = 1 << 40


def u32(column: bytes) -> list[int]:
    return np.frombuffer(column, dtype="<u4").tolist()


def u64(column: bytes) -> list[int]:
    return np.frombuffer(column, dtype="<u8").tolist()


def reopened(path: Path, geometry: StoreGeometry = GEOMETRY) -> list[RecoveredSegment]:
    directory = Directory(path, geometry)
    found = directory.recovered(EVERYTHING)
    directory.close()
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "directory"


def test_what_was_written_is_recovered_in_columns(path: Path) -> None:
    directory = Directory(path, GEOMETRY)
    directory.format_segment(2, SLOT)
    long, short = b"k" * KEY_BYTES_MAX, b"\x00k\x00"
    for index, key, group in ((0, long, 0), (3, short, 7), (15, long, 0)):
        identity = PageIdentity(b"%016d" % group, group, key, incarnation=index + 1, generation=1 << 40)
        directory.set_written(2, index, identity, footprint_bytes=SLOT - 4096)
    directory.close()
    (found,) = reopened(path)
    assert (found.segment, found.slot_bytes) == (2, SLOT)
    assert u32(found.slots) == [512, 515, 527]
    assert found.keys == (long, short, long)
    assert found.scopes == ((b"%016d" % 0, 0), (b"%016d" % 7, 7))
    assert u32(found.spaces) == [0, 1, 0]
    assert u64(found.generations) == [1 << 40] * 3
    assert u32(found.incarnations) == [1, 4, 16]
    assert u32(found.footprints) == [SLOT // 4096 - 1] * 3
    assert found.quarantined == b""


def test_cleared_slots_are_gone_and_quarantined_ones_are_named(path: Path) -> None:
    directory = Directory(path, GEOMETRY)
    directory.format_segment(0, SLOT)
    for index in range(4):
        directory.set_written(0, index, identity_of(index), 4096)
    directory.clear(0, [0, 2])
    directory.quarantine(0, [3, 9])
    directory.close()
    (found,) = reopened(path)
    assert u32(found.slots) == [1]
    assert u32(found.quarantined) == [3, 9]


def test_formatting_voids_every_earlier_entry_also_over_restarts(path: Path) -> None:
    for generation in range(3):
        directory = Directory(path, GEOMETRY)
        assert directory.recovered(EVERYTHING) == [] or generation
        directory.format_segment(1, SLOT)
        directory.set_written(1, generation, identity_of(generation), 4096)
        directory.close()
    (found,) = reopened(path)
    assert u32(found.slots) == [256 + 2]


def test_another_slot_size_leaves_nothing_of_the_old_one(path: Path) -> None:
    directory = Directory(path, GEOMETRY)
    directory.format_segment(0, 4096 * 2)
    for index in range(128):
        directory.set_written(0, index, identity_of(index), 4096)
    directory.format_segment(0, SLOT)
    directory.close()
    assert reopened(path) == []


def test_an_unreadable_segment_header_voids_the_segment_and_its_epoch_goes_on(path: Path) -> None:
    directory = Directory(path, GEOMETRY)
    for _ in range(5):
        directory.format_segment(0, SLOT)
    directory.set_written(0, 1, identity_of(1), 4096)
    directory.close()
    with path.open("r+b") as file:
        file.seek(GEOMETRY.region_offset(0) + 20)
        file.write(b"\xff")
    assert reopened(path) == []
    directory = Directory(path, GEOMETRY)
    directory.format_segment(0, SLOT)
    directory.set_written(0, 2, identity_of(2), 4096)
    directory.close()
    assert [u32(found.slots) for found in reopened(path)] == [[2]]


@pytest.mark.parametrize("at", range(0, 96, 5))
def test_a_rotten_entry_is_not_believed(path: Path, at: int) -> None:
    directory = Directory(path, GEOMETRY)
    directory.format_segment(0, SLOT)
    for index in range(3):
        directory.set_written(0, index, identity_of(index), 4096)
    directory.close()
    with path.open("r+b") as file:
        file.seek(GEOMETRY.region_offset(0) + 4096 + ENTRY_BYTES + at)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0x10]))
    assert [u32(found.slots) for found in reopened(path)] == [[0, 2]]


def test_an_entry_in_a_foreign_place_is_not_believed(path: Path) -> None:
    directory = Directory(path, GEOMETRY)
    directory.format_segment(0, SLOT)
    directory.set_written(0, 0, identity_of(0), 4096)
    directory.close()
    with path.open("r+b") as file:
        file.seek(GEOMETRY.region_offset(0) + 4096)
        entry = file.read(ENTRY_BYTES)
        file.write(entry)
    assert [u32(found.slots) for found in reopened(path)] == [[0]]


def test_a_page_that_does_not_fit_its_slot_is_not_believed(path: Path) -> None:
    directory = Directory(path, GEOMETRY)
    directory.format_segment(0, SLOT)
    directory.set_written(0, 0, identity_of(0), SLOT)
    directory.set_written(0, 1, identity_of(1), SLOT - 4096)
    directory.close()
    assert [u32(found.slots) for found in reopened(path)] == [[1]]


def test_segments_beyond_the_page_file_are_not_believed(path: Path) -> None:
    directory = Directory(path, GEOMETRY)
    for segment in (0, 3):
        directory.format_segment(segment, SLOT)
        directory.set_written(segment, 0, identity_of(segment), 4096)
    assert [found.segment for found in directory.recovered(4 * SEGMENT)] == [0, 3]
    assert [found.segment for found in directory.recovered(4 * SEGMENT - 1)] == [0]
    directory.close()


def test_a_smaller_capacity_drops_the_segments_beyond_it_for_good(path: Path) -> None:
    directory = Directory(path, GEOMETRY)
    for segment in (0, 7):
        directory.format_segment(segment, SLOT)
        directory.set_written(segment, 0, identity_of(segment), 4096)
    directory.close()
    smaller = StoreGeometry(2 * SEGMENT, SEGMENT, 256)
    assert [found.segment for found in reopened(path, smaller)] == [0]
    assert [found.segment for found in reopened(path)] == [0]


@pytest.mark.parametrize(
    "geometry", [StoreGeometry(8 * SEGMENT, 2 * SEGMENT, 256), StoreGeometry(8 * SEGMENT, SEGMENT, 128)]
)
def test_another_geometry_drops_everything_and_says_so(path: Path, geometry: StoreGeometry) -> None:
    directory = Directory(path, GEOMETRY)
    assert directory.reset_reason == "the directory is new"
    directory.format_segment(0, SLOT)
    directory.set_written(0, 0, identity_of(0), 4096)
    directory.close()
    changed = Directory(path, geometry)
    assert "another format or segment geometry" in changed.reset_reason
    assert changed.recovered(EVERYTHING) == []
    changed.close()
    assert reopened(path, geometry) == []


def test_a_rotten_or_cut_file_is_a_fresh_start(path: Path) -> None:
    for content in (b"garbage" * 1000, b"ORBIT"):
        path.write_bytes(content)
        directory = Directory(path, GEOMETRY)
        assert "unreadable" in directory.reset_reason
        assert directory.recovered(EVERYTHING) == []
        directory.close()


def test_the_file_is_private_and_takes_room_for_what_is_used_only(path: Path) -> None:
    geometry = StoreGeometry(64 << 28, 1 << 28, 16384)
    directory = Directory(path, geometry)
    directory.format_segment(63, 9 << 20)
    directory.set_written(63, 27, identity_of(1), 4096)
    directory.close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_size > 63 * geometry.region_bytes
    assert disk_bytes(path) <= 64 << 10


def test_a_hundred_thousand_slots_are_read_in_well_under_a_second(path: Path) -> None:
    geometry = StoreGeometry(100 << 28, 1 << 28, 16384)
    directory = Directory(path, geometry)
    for segment in range(100):
        directory.format_segment(segment, 260 << 10)
        for index in range(1000):
            directory.set_written(segment, index, identity_of(segment * 1000 + index), 256 << 10)
    directory.close()
    before = time.process_time()
    found = reopened(path, geometry)
    assert time.process_time() - before < 0.7
    assert sum(len(segment.keys) for segment in found) == 100_000
    assert found[57].keys[432] == identity_of(57_432).key


@pytest.mark.parametrize(
    ("capacity", "segment", "says"),
    [(SEGMENT - 1, SEGMENT, "raise ssd_bytes"), (SEGMENT, 5000, "set ssd_segment_bytes")],
)
def test_an_impossible_geometry_names_the_setting(capacity: int, segment: int, says: str) -> None:
    with pytest.raises(StoreError, match=says):
        StoreGeometry(capacity, segment, 64)
