"""The SSD's cap over crashes: it holds, what was there is back, and nothing is written twice."""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from orbitkv.adapters.client import CacheManagerClient
from orbitkv.adapters.client_errors import OrbitError
from orbitkv.events.commands import RecoverSegment
from orbitkv.events.facts import WritesSubmitted
from orbitkv.events.ids import TRAILER_BYTES
from orbitkv.events.record import Record
from tests.faults.support import everything_is_written, records_of
from tests.restart.managers import PAGE_BYTES, PATIENCE_S, Place, content, save, until

CAP_BYTES = 48 << 20
SEGMENT_BYTES = 8 << 20
IMAGE_BYTES = -(-PAGE_BYTES // 4096) * 4096 + TRAILER_BYTES
SLOTS = CAP_BYTES // SEGMENT_BYTES * (SEGMENT_BYTES // IMAGE_BYTES)
BATCH = 30
FILE_SYSTEM_BYTES = 4 * 4096
"""What ext4 itself notes about a file in many fragments counts among its blocks."""


def physical_bytes(place: Place) -> int:
    return os.stat(place.ssd / "pages").st_blocks * 512


def save_slowly(place: Place, client: CacheManagerClient, numbers: range) -> None:
    """In batches, each written before the next: a full write queue drops pages."""
    for first in range(numbers.start, numbers.stop, BATCH):
        save(client, range(first, min(first + BATCH, numbers.stop)))
        until(lambda: everything_is_written(place))


@contextmanager
def watched(place: Place) -> Iterator[list[int]]:
    """Physical bytes of the page file, sampled all the time."""
    samples: list[int] = [0]
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.001):
            with suppress(FileNotFoundError):
                samples.append(physical_bytes(place))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield samples
    finally:
        ended.set()
        watcher.join()


@pytest.mark.parametrize("crashes", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_the_cap_holds_over_crashes_while_writing(tmp_path: Path, crashes: int) -> None:
    place = Place(tmp_path, {"ssd-bytes": "48MiB", "ssd-segment-bytes": "8MiB"})
    nearly_full = SLOTS * 95 // 100
    with watched(place) as samples:
        with place.manager() as manager, place.client() as client:
            save_slowly(place, client, range(nearly_full))
            assert place.pages_on_ssd() == nearly_full
            manager.kill()
        for crash in range(crashes):
            with place.manager() as manager, place.client() as client:
                # Before the first query, and as the first line said.
                assert place.pages_on_ssd() == manager.recovered_pages > nearly_full // 2
                fresh = range(10_000 * (crash + 1), 10_000 * (crash + 1) + 20 * BATCH)
                with suppress(OrbitError, AssertionError):
                    killer = threading.Timer(0.05 + 0.15 * (crash % 3), manager.kill)
                    killer.start()
                    save_slowly(place, client, fresh)
                killer.join()
        with place.manager() as manager, place.client() as client:
            assert manager.recovered_pages <= SLOTS
            found = [key for keys in _recovered_keys(place) for key in keys]
            assert len(found) == manager.recovered_pages
            assert Counter(found).most_common(1)[0][1] == 1, "no page stands in two slots"
            seq = int(place.status()["log"]["records"])
            _save_again(client, found[:BATCH])
            until(lambda: everything_is_written(place))
            manager.stop()
        assert not [record for record in _newest(place) if record.seq > seq and _writes(record)]
    assert max(samples) <= CAP_BYTES + FILE_SYSTEM_BYTES
    assert (place.ssd / "pages").stat().st_size <= CAP_BYTES
    assert "verify: ok" in place.verify()


def _recovered_keys(place: Place) -> list[tuple[bytes, ...]]:
    """By the newest incarnation, from its log."""
    until(lambda: bool(_recoveries(place)))
    return [recovery.keys for recovery in _recoveries(place)]


def _newest(place: Place) -> list[Record]:
    """Records of the newest incarnation."""
    newest = max(place.log.glob("*.orbitlog*")).name
    return records_of(Place(place.path, {"log-path": f"log/{newest}"}))


def _recoveries(place: Place) -> list[RecoverSegment]:
    return [record.cause for record in _newest(place) if isinstance(record.cause, RecoverSegment)]


def _save_again(client: CacheManagerClient, keys: list[bytes]) -> None:
    """Pages that the SSD has, and DRAM has not: they are taken, and need not be written a second time."""
    plan = client.begin_save(0, keys)
    assert len(plan.wanted) == len(keys)
    for position, slot in plan.wanted:
        slot[:PAGE_BYTES] = content(keys[position])
    assert client.commit_save(plan).accepted_pages == len(keys)
    assert client.wait_saved(plan, PATIENCE_S)


def _writes(record: Record) -> bool:
    return any(isinstance(event, WritesSubmitted) for event in record.events)
