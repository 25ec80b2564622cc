"""Golden transcripts: one story per rule, told again and compared with what is written in tests/golden."""

from pathlib import Path

import pytest

from tests.golden_files import REASONS, compare
from tests.kernel.storyteller import Storyteller

GOLDEN = Path(__file__).parent.parent / "golden"
STORIES = sorted(path for path in GOLDEN.glob("*.txt") if path != REASONS)


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_story(path: Path, pytestconfig: pytest.Config) -> None:
    written = path.read_text(encoding="utf-8")
    compare(path, Storyteller().tell(written), pytestconfig)


def test_there_are_stories() -> None:
    assert len(STORIES) >= 25
