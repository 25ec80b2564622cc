"""True logs of simulated runs: the audit blames nobody, whatever happened and wherever the log begins."""

from pathlib import Path

import pytest

from orbitkv.events import facts
from orbitkv.events.ids import NONE_U32
from orbitkv.events.record import Record
from replay.auditor import Audit, audit_log
from tests.log import samples
from tests.log.lies.judges import judged
from tests.log.lies.story import Story, hinted_story, with_first
from tests.log.simulated import simulated_records, write_log

QUICK_SEEDS = (3,)
SLOW_SEEDS = range(200, 230)


def blamed(audit: Audit) -> list[str]:
    return [f"{verdict.invariant}: {verdict.first[0]}" for verdict in audit.verdicts if verdict.count]


def begun_late(path: Path, incarnations: list[list[Record]], every: int) -> Path:
    """Each run of records from an n-th one on, as the only segment that is left of an incarnation."""
    previous, number = 0, 0
    for records in incarnations:
        for first in range(1, len(records), every):
            number += 1
            frames = [records[start : start + 64] for start in range(first, len(records), 64)]
            at = samples.header(number, 2, first + 1, previous)
            data, _ = samples.segment(frames, at=at)
            previous = samples.last_checksum(data)
            samples.write_segment(path, data, number, 2)
    return path


@pytest.mark.parametrize(
    "seed", [*QUICK_SEEDS, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SLOW_SEEDS)]
)
def test_a_simulated_log_is_believed(tmp_path: Path, seed: int) -> None:
    write_log(tmp_path, simulated_records(seed, 2000))
    audit = audit_log(tmp_path)
    assert blamed(audit) == []
    assert audit.ok, audit.log.troubles


@pytest.mark.parametrize(
    ("seed", "every"), [(3, 11), *(pytest.param(seed, 5, marks=pytest.mark.slow) for seed in SLOW_SEEDS[:12])]
)
def test_wherever_a_simulated_log_begins_it_is_believed(tmp_path: Path, seed: int, every: int) -> None:
    """Nobody is blamed for what was before."""
    incarnations = simulated_records(seed, 800)
    assert blamed(audit_log(begun_late(tmp_path, incarnations, every))) == []


def test_a_hint_may_name_a_page_without_a_number_that_it_does_not_need(tmp_path: Path) -> None:
    """Of a trailing part only the last pages are needed; nobody may ever have had those before them."""
    told = 0
    stories = [Story(list(hinted_story(seed, 400))) for seed in range(6)]
    for story in stories:
        for record, hint in story.all(facts.HintAdmitted):
            pages = list(hint.pages)
            for part, (_, _, trailing, _) in enumerate(hint.parts):
                if trailing and len(pages[part]) > 4 * trailing:
                    pages[part] = with_first(pages[part], NONE_U32)
                    story.alter(record, hint, pages=tuple(pages))
                    told += 1
    assert told
    for judge in judged(tmp_path / "log", [story.records for story in stories]):
        assert judge.violations == ()
