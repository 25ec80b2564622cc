"""Golden transcripts: one story per rule, told again and compared with what is written in tests/golden."""

from pathlib import Path

import pytest

from tests.kernel.storyteller import Storyteller

GOLDEN = Path(__file__).parent.parent / "golden"
STORIES = sorted(GOLDEN.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_story(path: Path, pytestconfig: pytest.Config) -> None:
    written = path.read_text(encoding="utf-8")
    told = Storyteller().tell(written)
    if pytestconfig.getoption("--golden-rewrite"):
        path.write_text(told, encoding="utf-8")
    else:
        assert told == written, f"{path.name} is told otherwise now; if you can explain why, --golden-rewrite"


def test_there_are_stories() -> None:
    assert len(STORIES) >= 25
