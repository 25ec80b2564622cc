"""Which fields the audit believes whatever stands in them: exactly those that the documentation lists."""

import re
from pathlib import Path

import pytest

import replay
from tests.log.lies.judges import Judged, judged
from tests.log.lies.sweep import Alteration, alterations, fields, recorded

LIMITS = Path(replay.__file__).parent / "LIMITS_OF_AUDIT.md"
PLACES_MAX = 6
"""Of each field that are altered, each in up to two ways."""


def listed() -> list[str]:
    """The fields that the documentation says are never noticed."""
    text = LIMITS.read_text().split("## Fields that SQL believes")[1].split("\n## ")[0]
    return re.findall(r"`([A-Z]\w+\.[\w.]+)`", text)


def test_the_list_names_fields_that_exist_once() -> None:
    names = listed()
    assert len(names) == len(set(names))
    assert set(names) <= {str(field) for field in fields()}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Alteration, Judged]]:
    altered = list(alterations(recorded(), places_max=PLACES_MAX))
    stories = [each.told for each in altered]
    return list(zip(altered, judged(tmp_path_factory.mktemp("sweep"), stories), strict=True))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_audit_notices_all_but_the_listed_fields(found: list[tuple[Alteration, Judged]]) -> None:
    """One that is noticed now leaves the list; one that is not, and not in it, is a hole."""
    altered = {str(each.field) for each, _ in found}
    noticed = {str(each.field) for each, judge in found if judge.troubles or judge.violations}
    assert altered == {str(field) for field in fields()}
    assert sorted(altered - noticed) == sorted(listed())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_deciding_again_notices_every_field(found: list[tuple[Alteration, Judged]]) -> None:
    for each, judge in found:
        assert judge.verified_seq == each.seq or judge.troubles == (each.seq,), str(each.field)


@pytest.mark.slow
def test_true_stories_are_believed(tmp_path: Path) -> None:
    for judge in judged(tmp_path, recorded()):
        assert (judge.troubles, judge.violations, judge.verified_seq) == ((), (), None)
