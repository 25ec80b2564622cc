"""Lies that only meaning can expose: frames and chain are right, and the audit names the record.

Each lie is told in a copy of a true story. SQL alone must name it, and so must deciding every record again.
"""

from collections.abc import Iterator

import attrs
import pytest

from orbitkv.events.record import Record
from tests.log import lies_buffers, lies_index, lies_ledgers, lies_reads, lies_saves, lies_ssd
from tests.log.lies_judges import Judged, judged
from tests.log.lies_story import Lie, Story, hinted_story, simulated_stories

HINTED_SEEDS = range(6)
SIMULATED_SEEDS = range(60)

LIES: dict[Lie, tuple[str, str]] = {
    **lies_ledgers.LIES,
    **lies_buffers.LIES,
    **lies_index.LIES,
    **lies_reads.LIES,
    **lies_saves.LIES,
    **lies_ssd.LIES,
}
"""By lie: the invariant that it breaks first, and words of what is said then."""


@attrs.frozen
class Told:
    lie: Lie
    story: list[Record]
    seq: int
    """The record that must be named."""


def _told(lie: Lie) -> Told:
    """In the first story that has room for it."""
    for records in _stories():
        story = Story(list(records))
        try:
            seq = lie(story)
        except (StopIteration, IndexError):
            continue
        return Told(lie, story.records, seq)
    raise AssertionError(f"no story has room for {lie.__name__}; the simulators have become too quiet")


def _stories() -> Iterator[tuple[Record, ...]]:
    yield from (hinted_story(seed) for seed in HINTED_SEEDS)
    for seed in SIMULATED_SEEDS:
        yield from simulated_stories(seed)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[Lie, tuple[Told, Judged]]:
    lies = [_told(lie) for lie in LIES]
    found = judged(tmp_path_factory.mktemp("lies"), [each.story for each in lies])
    return {each.lie: (each, judge) for each, judge in zip(lies, found, strict=True)}


@pytest.mark.parametrize("lie", LIES, ids=[lie.__name__ for lie in LIES])
def test_the_record_of_a_lie_is_named(told: dict[Lie, tuple[Told, Judged]], lie: Lie) -> None:
    each, found = told[lie]
    invariant, words = LIES[lie]
    assert found.troubles == (), "no checksum, no chain and no shape gives it away"
    assert found.violations, "nothing was noticed"
    assert found.violations[0].seq == each.seq, found.violations[:3]
    first = [violation for violation in found.violations if violation.seq == each.seq]
    assert any(one.invariant == invariant and words in one.why for one in first), first
