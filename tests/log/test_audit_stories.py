"""The golden stories as logs: what the kernel's rules are told by, the audit believes in every point."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from orbitkv.events.record import Record
from tests.kernel.storyteller import Storyteller
from tests.kernel.test_stories import STORIES
from tests.log.lies.judges import Judged, judged


class Listener(Storyteller):
    """Keeps the records of each incarnation."""

    def __init__(self) -> None:
        self.incarnations: list[list[Record]] = []
        super().__init__()

    def _recorded(self, record: Record) -> None:
        if record.seq == 1:
            self.incarnations.append([])
        self.incarnations[-1].append(record)
        super()._recorded(record)


def told(path: Path) -> Sequence[Sequence[Record]]:
    listener = Listener()
    listener.tell(path.read_text(encoding="utf-8"))
    return listener.incarnations


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, list[Judged]]:
    by_story = {path: told(path) for path in STORIES}
    found = iter(
        judged(tmp_path_factory.mktemp("stories"), [each for part in by_story.values() for each in part])
    )
    return {path: [next(found) for _ in part] for path, part in by_story.items()}


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_a_story_is_believed(verdicts: dict[Path, list[Judged]], path: Path) -> None:
    for incarnation in verdicts[path]:
        assert incarnation.troubles == ()
        assert incarnation.violations == ()
