"""From what was found and allocated to what is copied, and from hashes to keys."""

import attrs
import pytest

from orbitkv.adapters.vllm.groups import KvGroup
from orbitkv.adapters.vllm.keys import full_pages, page_keys, query_parts
from orbitkv.adapters.vllm.loading import load_order
from orbitkv.adapters.vllm.lookups import Found
from orbitkv.adapters.vllm.orders import NO_BLOCK, RankReport, runs
from orbitkv.adapters.vllm.suspects import SUSPECTS_MAX, Suspects
from orbitkv.io.wire import QueryPart
from tests.adapters.vllm_standins import GROUP, hashes

PAIRS = attrs.evolve(GROUP, page_blocks=2)
WINDOW = attrs.evolve(GROUP, number=1, trailing_pages=2)


def test_a_key_is_the_hash_of_the_pages_last_block():
    assert page_keys(hashes("p", 24), 4, PAIRS, 0, 3) == [b"p/1", b"p/3", b"p/5"]
    assert full_pages(hashes("p", 20), 4, PAIRS) == 2


def test_a_salt_makes_other_keys_of_a_keys_length():
    plain, salted, other = (page_keys(hashes("p", 8), 4, GROUP, 0, 2, salt) for salt in (b"", b"1", b"2"))
    assert len({*plain, *salted, *other}) == 6
    assert {len(key) for key in salted} == {32}


def test_groups_with_longer_blocks_use_the_hashes_at_their_ends():
    wide = KvGroup(number=1, block_tokens=8, page_blocks=1, trailing_pages=0, layers=(), spec="")
    parts = query_parts(hashes("p", 24), 4, [GROUP, wide], 8)
    assert [part.keys for part in parts] == [[b"p/2", b"p/3", b"p/4", b"p/5"], [b"p/3", b"p/5"]]


def test_a_group_without_a_full_page_asks_for_nothing():
    assert query_parts(hashes("p", 4), 4, [GROUP, PAIRS], 0) == []


def test_blocks_that_the_gpu_has_stay_as_they_are():
    """A page of two blocks of which the first is local, and one behind it."""
    found = Found(0, 16, b"lease", (2,))
    order = load_order("r", b"lease", found, [PAIRS], [[1, 2, 3, 4]], (4, 16))
    assert order is not None
    assert [(page.position, page.blocks) for page in order.pages] == [(0, (NO_BLOCK, 2)), (1, (3, 4))]
    assert order.blocks == {2, 3, 4}


def test_of_a_window_only_the_last_pages_are_leased_and_null_blocks_stay_null():
    found = Found(0, 16, b"lease", (4, 2))
    order = load_order("r", b"lease", found, [GROUP, WINDOW], [[1, 2, 3, 4], [0, 0, 5, 6]], (0, 16))
    assert order is not None
    assert [(p.position, p.group, p.blocks) for p in order.pages][4:] == [(4, 1, (5,)), (5, 1, (6,))]


def test_a_block_that_no_leased_page_fills_is_no_load():
    found = Found(0, 16, b"lease", (4, 2))
    assert load_order("r", b"", found, [GROUP, WINDOW], [[1, 2, 3, 4], [0, 7, 5, 6]], (0, 16)) is None


def test_what_was_not_asked_for_is_not_copied():
    found = Found(0, 16, b"lease", (4,))
    order = load_order("r", b"lease", found, [GROUP], [[1, 2, 3, 4]], (0, 8))
    assert order is not None and order.blocks == {1, 2}


@pytest.mark.parametrize(
    ("positions", "ranges"), [([], []), ([3], [(3, 4)]), ([0, 1, 2, 5, 6, 9], [(0, 3), (5, 7), (9, 10)])]
)
def test_positions_as_ranges(positions, ranges):
    assert runs(positions) == ranges


def test_reports_of_ranks_add_up():
    report = RankReport({1: 1}, {"a"})
    report.add(RankReport({1: 1, 2: 1}, {"b"}))
    assert report == RankReport({1: 2, 2: 1}, {"a", "b"})
    assert not RankReport()


class TestSuspects:
    def test_all_parts_end_before_the_first_suspect_page_of_any(self):
        suspects = Suspects()
        suspects.add(1, [b"w1"])
        parts = [QueryPart(0, 4, 0, [b"f0", b"f1", b"f2", b"f3"]), QueryPart(1, 8, 2, [b"w0", b"w1"])]
        assert [part.keys for part in suspects.without(parts, 0)] == [[b"f0", b"f1"], [b"w0"]]

    def test_nothing_is_left_of_a_part_that_begins_with_one(self):
        suspects = Suspects()
        suspects.add(0, [b"f0"])
        assert suspects.without([QueryPart(0, 4, 0, [b"f0", b"f1"])], 0) == []

    def test_they_are_bounded_and_end_with_the_connection(self):
        suspects = Suspects()
        suspects.add(0, (str(n).encode() for n in range(SUSPECTS_MAX + 1)))
        oldest, newest = QueryPart(0, 4, 0, [b"0"]), QueryPart(0, 4, 0, [str(SUSPECTS_MAX).encode()])
        assert suspects.without([oldest], 0) and not suspects.without([newest], 0)
        assert suspects.without([newest], 1)
