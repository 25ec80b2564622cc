"""Page bytes: the same everywhere, different where anything differs, quick enough to judge all."""

import time

import numpy as np
import pytest

from orbitkv.adapters.embedded.page_content import Bytes, PageContent

SLICE_BYTES = 64 * 1024
DIGEST = bytes(range(16))
GOLDEN = "3c0c9e79262ca0e4"


def _page(key: bytes, *, digest: bytes = DIGEST, rank: int = 0) -> Bytes:
    page = np.zeros(SLICE_BYTES, dtype=np.uint8)
    PageContent(digest, rank, SLICE_BYTES).fill(key, page)
    return page


def test_a_page_is_the_same_in_every_process() -> None:
    """The golden bytes: another process, another machine, another Python version must agree."""
    assert _page(b"key").tobytes()[:8].hex() == GOLDEN
    assert PageContent(DIGEST, 0, SLICE_BYTES).differing_bytes(b"key", _page(b"key")) == 0


@pytest.mark.parametrize(
    "other",
    [
        _page(b"other"),
        _page(b"key", rank=1),
        _page(b"key", digest=b"x" * 16),
        np.zeros(SLICE_BYTES, np.uint8),
    ],
    ids=["key", "rank", "namespace", "empty"],
)
def test_another_page_differs_nearly_everywhere(other: Bytes) -> None:
    differing = PageContent(DIGEST, 0, SLICE_BYTES).differing_bytes(b"key", other)
    assert differing > 0.98 * SLICE_BYTES


def test_one_flipped_bit_and_a_shift_are_seen() -> None:
    content = PageContent(DIGEST, 0, SLICE_BYTES)
    page = _page(b"key")
    page[12_345] ^= 1
    assert content.differing_bytes(b"key", page) == 1
    assert content.differing_bytes(b"key", np.roll(_page(b"key"), 8)) > SLICE_BYTES // 2


def test_slices_are_whole_words() -> None:
    with pytest.raises(ValueError, match="8-byte words"):
        PageContent(DIGEST, 0, 100)


def test_filling_and_judging_take_less_than_a_second_per_gigabyte() -> None:
    content = PageContent(DIGEST, 0, SLICE_BYTES)
    page = np.zeros(SLICE_BYTES, dtype=np.uint8)
    best_s = min(_seconds(content, page) for _ in range(5))
    assert 2 * 200 * SLICE_BYTES / best_s > 1e9


def _seconds(content: PageContent, page: Bytes) -> float:
    started = time.perf_counter()
    for number in range(200):
        key = number.to_bytes(16, "little")
        content.fill(key, page)
        assert content.differing_bytes(key, page) == 0
    return time.perf_counter() - started
