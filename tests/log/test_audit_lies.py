"""Lies that only meaning can expose: frames and chain are right, and the audit names the record.

Each lie is told in a copy of a true story. SQL alone must name the record, and so must deciding every record
again. Stories come from two simulators and from a real manager.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import pytest

from orbitkv.events.record import Record
from replay.auditor import audit_log
from replay.log import Log
from replay.verify import verify_log
from tests.log.lies import (
    buffers,
    endings,
    index,
    leases,
    ledgers,
    operations,
    reads,
    saves,
    sessions,
    ssd,
)
from tests.log.lies.judges import Judged, judged
from tests.log.lies.real import real_log
from tests.log.lies.story import Lie, Story, hinted_story, simulated_stories

HINTED_SEEDS = range(6)
SIMULATED_SEEDS = range(60)
REAL_LIES_MIN = 100
"""Of the lies that can be told in a real manager's log."""

LIES: dict[Lie, tuple[str, str]] = {
    **ledgers.LIES,
    **buffers.LIES,
    **index.LIES,
    **reads.LIES,
    **saves.LIES,
    **ssd.LIES,
    **operations.LIES,
    **endings.LIES,
    **sessions.LIES,
    **leases.LIES,
}
"""By lie: the invariant that it breaks first, and words of what is said then."""


@attrs.frozen
class Told:
    lie: Lie
    story: list[Record]
    seq: int
    """The record that SQL must name first."""
    altered_seq: int
    """The first record that is not what it was."""


def _told(lie: Lie, stories: Iterator[Sequence[Record]]) -> Told | None:
    """In the first story that has room for it."""
    for records in stories:
        story = Story(list(records))
        try:
            seq = lie(story)
        except (StopIteration, IndexError):
            continue
        altered = (new.seq for old, new in zip(records, story.records, strict=True) if old != new)
        return Told(lie, story.records, seq, next(altered))
    return None


def _simulated() -> Iterator[Sequence[Record]]:
    yield from (hinted_story(seed) for seed in HINTED_SEEDS)
    for seed in SIMULATED_SEEDS:
        yield from simulated_stories(seed)


def _found(directory: Path, lies: list[Told]) -> dict[Lie, tuple[Told, Judged]]:
    found = judged(directory, [each.story for each in lies], one_log=True)
    return {each.lie: (each, judge) for each, judge in zip(lies, found, strict=True)}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[Lie, tuple[Told, Judged]]:
    lies = []
    for lie in LIES:
        one = _told(lie, _simulated())
        assert one is not None, f"no story has room for {lie.__name__}; the simulators have become too quiet"
        lies.append(one)
    return _found(tmp_path_factory.mktemp("lies"), lies)


@pytest.mark.parametrize("lie", LIES, ids=[lie.__name__ for lie in LIES])
def test_the_record_of_a_lie_is_named(told: dict[Lie, tuple[Told, Judged]], lie: Lie) -> None:
    each, found = told[lie]
    invariant, words = LIES[lie]
    assert found.troubles == (), "no checksum, no chain and no shape gives it away"
    assert found.violations, "nothing was noticed"
    assert found.violations[0].seq == each.seq, found.violations[:3]
    first = [violation for violation in found.violations if violation.seq == each.seq]
    assert any(one.invariant == invariant and words in one.why for one in first), first
    assert found.verified_seq == each.altered_seq


# --- a real manager's log -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return real_log(tmp_path_factory.mktemp("real"))


def test_a_real_log_is_believed(real: Path) -> None:
    audit = audit_log(real)
    assert audit.ok, [verdict.first for verdict in audit.verdicts if verdict.count]
    assert audit.totals.cohort.restored_bytes > 0
    assert verify_log(real).ok


def test_lies_in_a_real_log_are_named(real: Path, tmp_path: Path) -> None:
    incarnations: dict[int, list[Record]] = {}
    for segment in Log.open(real).segments():
        for frame in segment.frames():
            incarnations.setdefault(segment.header.incarnation, []).extend(frame.records)
    told = [one for lie in LIES if (one := _told(lie, iter(incarnations.values()))) is not None]
    assert len(told) >= REAL_LIES_MIN
    for each, found in _found(tmp_path / "lies", told).values():
        name = each.lie.__name__
        assert found.troubles == (), name
        assert found.violations, f"{name}: nothing was noticed"
        assert found.violations[0].seq == each.seq, (name, found.violations[:3])
        assert found.verified_seq == each.altered_seq, name
