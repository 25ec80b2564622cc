"""Files that hold what the code is known to do, and the sentence that each change of them needs.

`--golden-rewrite --why "SENTENCE"` writes what is told now, and the sentence with the content's hash into
`tests/golden/WHY.txt`, one line a file. A file whose hash is not the one in its line was changed without a
reason, and a test says so (`tests/log/test_golden_reasons.py`).
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
REASONS = TESTS / "golden" / "WHY.txt"


def golden_files() -> Iterator[Path]:
    """Every file that needs a reason."""
    yield from sorted(path for path in (TESTS / "golden").rglob("*.txt") if path != REASONS)
    yield from sorted((TESTS / "histories").glob("*.json"))


def name_of(path: Path) -> str:
    return str(path.relative_to(TESTS))


def content_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def reasons() -> dict[str, tuple[str, str]]:
    """File name -> (hash, sentence)."""
    found = {}
    for line in REASONS.read_text(encoding="utf-8").splitlines():
        name, content, sentence = line.split(maxsplit=2)
        found[name] = (content, sentence)
    return found


def compare(path: Path, told: str, config: pytest.Config) -> None:
    """Hold `told` against the file; or write it down, with the reason, if the command line says so."""
    written = path.read_text(encoding="utf-8") if path.exists() else ""
    if not config.getoption("--golden-rewrite"):
        assert told == written, (
            f"{path.name} is told otherwise now; if you can say why: --golden-rewrite --why 'SENTENCE'"
        )
        return
    named = reasons()
    if told == written and named.get(name_of(path), ("",))[0] == content_hash(path):
        return
    sentence = config.getoption("--why").strip()
    assert len(sentence.split()) >= 3, f"{path.name} is told otherwise now: --why must say why, in a sentence"
    path.write_text(told, encoding="utf-8")
    named[name_of(path)] = (content_hash(path), sentence)
    lines = [f"{name} {content} {reason}\n" for name, (content, reason) in sorted(named.items())]
    REASONS.write_text("".join(lines), encoding="utf-8")
