"""Rot on the SSD under a real manager: a miss with its reason, counted once, never a wrong byte."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitkv.events.facts import ReadsFailed
from orbitkv.events.ids import TRAILER_BYTES
from orbitkv.events.outcomes import ReadOutcome
from tests.faults.support import (
    everything_is_written,
    facts_of,
    forget_dram,
    is_idle,
    only_on_ssd,
)
from tests.restart.managers import (
    PAGE_BYTES,
    Place,
    content,
    key,
    restore,
    save,
    until,
)

PAGES = 6
ROTTEN = 3
IMAGE_BYTES = -(-PAGE_BYTES // 4096) * 4096 + TRAILER_BYTES

Image = Callable[[int], int]
"""Where the image of a page stands in the page file."""


def flip_a_bit(file: int, image_of: Image) -> None:
    at = image_of(ROTTEN) + PAGE_BYTES // 2
    os.pwrite(file, bytes([os.pread(file, 1, at)[0] ^ 1]), at)


def flip_a_bit_of_the_trailer(file: int, image_of: Image) -> None:
    at = image_of(ROTTEN) + IMAGE_BYTES - TRAILER_BYTES + 20
    os.pwrite(file, bytes([os.pread(file, 1, at)[0] ^ 1]), at)


def zero(file: int, image_of: Image) -> None:
    os.pwrite(file, bytes(IMAGE_BYTES), image_of(ROTTEN))


def tear(file: int, image_of: Image) -> None:
    """The first half of another page."""
    os.pwrite(file, os.pread(file, IMAGE_BYTES // 2, image_of(0)), image_of(ROTTEN))


def swap(file: int, image_of: Image) -> None:
    mine, other = image_of(ROTTEN), image_of(ROTTEN + 1)
    images = os.pread(file, IMAGE_BYTES, mine), os.pread(file, IMAGE_BYTES, other)
    os.pwrite(file, images[0], other)
    os.pwrite(file, images[1], mine)


def truncate(file: int, image_of: Image) -> None:
    os.ftruncate(file, image_of(ROTTEN) + 4096)


def tamper(place: Place, harm: Callable[[int, Image], None]) -> None:
    descriptor = os.open(place.ssd / "pages", os.O_RDWR)
    pages = os.pread(descriptor, os.fstat(descriptor).st_size, 0)

    def image_of(number: int) -> int:
        at = pages.index(content(key(number)))
        assert at % 4096 == 0
        return at

    harm(descriptor, image_of)
    os.fsync(descriptor)
    os.close(descriptor)


def failures(place: Place) -> "Counter[int]":
    return Counter(outcome for failed in facts_of(place, ReadsFailed) for outcome in failed.outcomes)


@pytest.mark.parametrize(
    ("harm", "outcome", "quarantined"),
    [
        (flip_a_bit, ReadOutcome.CORRUPT, 1),
        (flip_a_bit_of_the_trailer, ReadOutcome.CORRUPT, 1),
        (zero, ReadOutcome.CORRUPT, 1),
        (tear, ReadOutcome.CORRUPT, 1),
        (swap, ReadOutcome.OTHER_PAGE, 0),
    ],
)
def test_a_page_that_is_not_what_was_written_is_a_miss_once(
    tmp_path: Path, harm: Callable[[int, Image], None], outcome: ReadOutcome, quarantined: int
) -> None:
    place = Place(tmp_path)
    with place.manager() as manager, place.client() as client:
        save(client, range(PAGES))
        only_on_ssd(place, PAGES)
        tamper(place, harm)
        assert restore(client, range(PAGES), "first") == ROTTEN, "the prefix before it, every byte right"
        assert place.status()["ssd"]["quarantined"] == quarantined
        assert restore(client, range(PAGES), "second") == ROTTEN
        assert save(client, range(PAGES)) >= 1, "computed again"
        assert restore(client, range(PAGES), "third") == PAGES
        until(lambda: is_idle(place))
        manager.stop()
    with place.manager() as manager, place.client() as client:
        assert place.status()["ssd"]["quarantined"] == quarantined, "remembered"
        assert restore(client, range(PAGES), "after a restart") == PAGES
        manager.stop()
    spoilt = 2 if harm is swap else 1
    assert failures(place) == {outcome: spoilt}, "the next request does not try it again"
    assert "verify: ok" in place.verify()


def test_a_page_file_that_was_cut_is_tried_three_times_at_most(tmp_path: Path) -> None:
    """A short read may be the device's bad moment: the slot stays, until the third time."""
    place = Place(tmp_path)
    with place.manager() as manager, place.client() as client:
        for number in range(PAGES):  # one after the other, so that they stand in this order
            save(client, range(number, number + 1))
            until(lambda: everything_is_written(place))
        only_on_ssd(place, PAGES)
        tamper(place, truncate)
        for turn in range(5):
            assert restore(client, range(PAGES), f"turn {turn}") == ROTTEN
            forget_dram(place)
        assert place.status()["ssd"]["quarantined"] >= 1
        manager.stop()
    counted = failures(place)
    assert set(counted) == {ReadOutcome.SHORT}
    assert counted[ReadOutcome.SHORT] <= 3 * (PAGES - ROTTEN)
    with place.manager() as manager, place.client() as client:
        assert restore(client, range(PAGES), "after a restart") <= ROTTEN
        save(client, range(100, 110))
        until(lambda: place.pages_on_ssd() >= 10)
        manager.stop()
    assert "verify: ok" in place.verify()
