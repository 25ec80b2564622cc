"""The engine's own prefix cache: pages in use are never taken, idle ones go least recently used first."""

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitkv.adapters.embedded.prefix_cache import PrefixCache

A, B, C, D = b"a", b"b", b"c", b"d"


def _filled(pages: int, *keys: bytes) -> PrefixCache:
    """A cache in which these keys are idle, the last one the oldest."""
    cache = PrefixCache(pages)
    held = cache.reserve((), len(keys))
    assert held is not None
    for page, key in zip(held, keys, strict=True):
        assert cache.publish(page, key)
    cache.drop(held)
    return cache


def test_a_prefix_matches_up_to_the_first_key_that_is_not_here() -> None:
    cache = _filled(4, A, B, D)
    assert cache.match((A, B, C, D)) == 2
    assert cache.match((C, A)) == 0


def test_a_look_changes_no_order() -> None:
    cache = _filled(2, A, B)
    cache.match((A, B))
    assert cache.reserve((), 1) is not None
    assert cache.match((A,)) == 1
    assert cache.match((B,)) == 0


def test_the_deepest_page_of_a_prompt_is_reused_first() -> None:
    cache = _filled(3, A, B, C)
    assert cache.reserve((), 2) is not None
    assert cache.match((A, B, C)) == 1


def test_held_pages_are_never_reused() -> None:
    cache = _filled(3, A, B, C)
    held = cache.reserve((A, B), 1)
    assert held is not None
    assert cache.reserve((), 1) is None
    assert cache.match((A, B)) == 2
    cache.drop(held)
    assert cache.available_pages == 3


def test_a_prefix_does_not_count_as_room_for_its_own_tail() -> None:
    cache = _filled(3, A, B)
    assert cache.reserve((A, B), 2) is None
    assert cache.available_pages == 3, "a refused reservation changes nothing"
    assert cache.match((A, B)) == 2


def test_two_requests_share_a_prefix_and_it_stays_until_both_are_gone() -> None:
    cache = _filled(2, A)
    first, second = cache.reserve((A,), 0), cache.reserve((A,), 0)
    assert first == second
    assert first is not None
    assert second is not None
    cache.drop(first)
    assert cache.reserve((), 2) is None
    cache.drop(second)
    assert cache.reserve((), 2) is not None


def test_the_second_page_of_a_key_stays_nameless_and_is_simply_free_afterwards() -> None:
    cache = _filled(2, A)
    held = cache.reserve((), 1)
    assert held is not None
    assert not cache.publish(held[0], A)
    cache.drop(held)
    assert cache.match((A,)) == 1
    assert cache.available_pages == 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), max_size=40), st.integers(4, 9))
def test_no_page_is_ever_held_twice_or_lost(story: list[tuple[int, int]], pages: int) -> None:
    """Prompts of up to four blocks from six families come and go; at most two run at once."""
    cache = PrefixCache(pages)
    running: list[tuple[list[int], int]] = []
    for family, length in story:
        keys = tuple(bytes([family, depth]) for depth in range(length))
        local = cache.match(keys)
        held = cache.reserve(keys[:local], length - local)
        if held is not None:
            fresh = held[local:]
            assert not {page for page in fresh for others, _ in running if page in others}
            for page, key in zip(fresh, keys[local:], strict=True):
                cache.publish(page, key)
            running.append((held, local))
        if len(running) > 2 or held is None:
            cache.drop(running.pop(0)[0]) if running else None
        assert cache.held_pages == len({page for pages_held, _ in running for page in pages_held})
    for held_pages, _ in running:
        cache.drop(held_pages)
    assert cache.available_pages == pages
