"""No golden file changes without a sentence that says why."""

from pathlib import Path

import pytest

from tests import golden_files
from tests.golden_files import compare, content_hash, name_of, reasons
from tests.golden_files import golden_files as all_files


def test_every_golden_file_is_as_its_reason_says() -> None:
    named = reasons()
    changed = [
        name_of(path) for path in all_files() if named.get(name_of(path), ("",))[0] != content_hash(path)
    ]
    assert not changed, "changed without a reason; write them with --golden-rewrite --why 'SENTENCE'"
    assert set(named) == {name_of(path) for path in all_files()}, "a reason for a file that is gone"
    assert all(len(sentence.split()) >= 3 for _, sentence in named.values())


class Options:
    """The part of pytest's configuration that is asked."""

    def __init__(self, rewrite: bool, why: str) -> None:
        self._options = {"--golden-rewrite": rewrite, "--why": why}

    def getoption(self, name: str) -> object:
        return self._options[name]


@pytest.fixture
def golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One golden file in a tree of its own."""
    (tmp_path / "golden").mkdir()
    (tmp_path / "histories").mkdir()
    (tmp_path / "golden" / "WHY.txt").write_text("")
    monkeypatch.setattr(golden_files, "TESTS", tmp_path)
    monkeypatch.setattr(golden_files, "REASONS", tmp_path / "golden" / "WHY.txt")
    return tmp_path / "golden" / "story.txt"


def test_a_transcript_is_rewritten_with_a_sentence_only(golden: Path) -> None:
    for why in ("", "because", "   "):
        with pytest.raises(AssertionError, match="must say why"):
            compare(golden, "told\n", Options(True, why))  # type: ignore[arg-type]  # what it asks for is there
    assert not golden.exists()
    compare(golden, "told\n", Options(True, "it is told first"))  # type: ignore[arg-type]  # as above
    compare(golden, "told\n", Options(False, ""))  # type: ignore[arg-type]  # as above
    assert reasons() == {"golden/story.txt": (content_hash(golden), "it is told first")}


def test_a_file_that_is_edited_by_hand_has_lost_its_reason(golden: Path) -> None:
    compare(golden, "told\n", Options(True, "it is told first"))  # type: ignore[arg-type]  # as above
    golden.write_text("told otherwise\n")
    assert reasons()["golden/story.txt"][0] != content_hash(golden)
    with pytest.raises(AssertionError, match="told otherwise now"):
        compare(golden, "told\n", Options(False, ""))  # type: ignore[arg-type]  # as above


def test_what_is_told_as_before_keeps_its_reason(golden: Path) -> None:
    compare(golden, "told\n", Options(True, "it is told first"))  # type: ignore[arg-type]  # as above
    compare(golden, "told\n", Options(True, "another sentence that nobody needs"))  # type: ignore[arg-type]  # as above
    assert reasons()["golden/story.txt"][1] == "it is told first"
