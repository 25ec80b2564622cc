"""Golden stories that were cut by `replay fixture`: each is told again and compared with what is written.

The first lines of each say where it was cut out. They are kept small; a change needs a sentence.
"""

from pathlib import Path

import pytest

from replay.fixture.story import Script, story, tell
from tests.golden_files import compare
from tests.log.obeying import obeys

FIXTURES = Path(__file__).parent.parent / "golden" / "fixtures"
STORIES = sorted(FIXTURES.glob("*.txt"))
told = pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])


@told
def test_it_is_told_as_it_is_written(path: Path, pytestconfig: pytest.Config) -> None:
    script = Script.read(path.read_text(encoding="utf-8"))
    compare(path, story(script.prose, script.wishes), pytestconfig)


@told
def test_it_obeys_the_contract(path: Path) -> None:
    """The observer of the tests knows nothing of scripts: it sees the records alone."""
    telling = tell(Script.read(path.read_text(encoding="utf-8")).wishes)
    assert not telling.broken
    assert obeys(telling.records)
    assert len(telling.records) > 5


def test_there_are_fixtures_of_a_seed_of_a_real_manager_and_of_a_request() -> None:
    provenance = [path.read_text(encoding="utf-8").splitlines()[0] for path in STORIES]
    assert any("out of seed" in line for line in provenance)
    assert any("out of real," in line for line in provenance)
    assert any("request " in line for line in provenance)
    assert all(line.startswith("# Cut by `replay fixture` out of ") for line in provenance)
    assert all(path.stat().st_size < 16_384 for path in STORIES)
