"""A manager that is killed while it writes: its successor serves the pages that stand on the SSD."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orbitkv.adapters.client import CacheManagerClient
from orbitkv.adapters.client_errors import OrbitError, RequestRefused
from orbitkv.events.outcomes import SyncOutcome
from tests.restart.managers import PAGE_BYTES, Place, ask, restore, save, until

PAGES_PER_CYCLE = 40
CAPACITY_BYTES = 64 << 20


def test_three_cycles_of_killing_it_while_it_writes(tmp_path: Path) -> None:
    place = Place(tmp_path)
    safe: list[range] = []
    for cycle in range(3):
        with place.manager() as manager, place.client() as client:
            assert f"incarnation {cycle + 1}," in manager.lines[0]
            assert manager.recovered_pages >= sum(map(len, safe))
            _restore_all(client, safe, f"cycle {cycle}")
            safe.append(range(cycle * 1000, cycle * 1000 + PAGES_PER_CYCLE))
            assert save(client, safe[-1]) == PAGES_PER_CYCLE
            until(lambda: place.status()["outstanding"]["writes"] == 0)
            before = place.pages_on_ssd()
            with _writing(client, first=100_000 + cycle * 1000):
                _until_more_pages_than(before, place)
                manager.kill()
    with place.manager() as manager, place.client() as client:
        _restore_all(client, safe, "in the end")
        assert not place.status()["ssd"]["quarantined"], "nothing torn was ever served or found"
        manager.stop()
    told = place.verify()
    assert [f"incarnation {number}: " in told for number in range(1, 6)] == [True] * 4 + [False]
    assert place.leftovers() == set()
    assert _allocated_bytes(place) <= CAPACITY_BYTES


def test_clients_find_the_next_manager_by_themselves_and_old_handles_are_refused_by_name(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    with place.manager() as first, place.client() as client:
        numbers = range(10)
        save(client, numbers)
        old = ask(client, numbers, "before")
        client.begin_restore(old.lease)
        until(lambda: place.pages_on_ssd() == len(numbers))
        first.kill()
        with place.manager():
            assert restore(client, numbers, "after") == len(numbers), "a fresh question is answered"
            with pytest.raises(RequestRefused) as refused:
                client.begin_restore(old.lease)
            assert "incarnation 1" in str(refused.value)
            late = client.report_sync(old.lease, SyncOutcome.SUCCEEDED, [(0, 10)], 2, 10 * PAGE_BYTES, 1)
            assert "incarnation" in late.refused
            assert not client.cancel(old.operation)


def test_a_log_that_was_cut_is_mended_and_says_so(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.manager() as manager, place.client() as client:
        save(client, range(10))
        until(lambda: place.pages_on_ssd() == 10)
        manager.kill()
    segment = max(place.log.glob("*.orbitlog"))
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-7])
    with place.manager() as manager, place.client() as client:
        assert restore(client, range(10), "after") == 10
        assert "was cut" in manager.stop()
    assert "verify: ok" in place.verify()


def test_a_log_that_was_moved_away_does_not_make_generations_come_twice(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.manager() as manager, place.client() as client:
        save(client, range(10))
        until(lambda: place.pages_on_ssd() == 10)
        manager.stop()
    place.log.rename(tmp_path / "moved")
    with place.manager() as manager, place.client() as client:
        assert "incarnation 2," in manager.lines[0]
        assert restore(client, range(10), "after") == 10


def _restore_all(client: CacheManagerClient, ranges: list[range], name: str) -> None:
    for numbers in ranges:
        assert restore(client, numbers, f"{name}, from {numbers.start}") == len(numbers)


@contextmanager
def _writing(client: CacheManagerClient, first: int) -> Iterator[None]:
    """Another thread saves pages until the manager is gone, at most so many that none has to make way."""

    def write() -> None:
        try:
            for start in range(first, first + 120, 10):
                save(client, range(start, start + 10))
        except (OrbitError, AssertionError):
            pass  # it was killed, which is what this is about

    writer = threading.Thread(target=write)
    writer.start()
    yield
    writer.join()


def _until_more_pages_than(before: int, place: Place) -> None:
    until(lambda: place.pages_on_ssd() > before)


def _allocated_bytes(place: Place) -> int:
    return os.stat(place.ssd / "pages").st_blocks * 512
