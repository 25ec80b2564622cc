"""The README's commands are the ones that CI runs, and the README fits on a screen."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_ci_runs_what_the_readme_says() -> None:
    run = (ROOT / ".ci" / "run").read_text()
    assert commands() == ["python3 .ci/do demo", "python3 .ci/do test"]
    for command in commands():
        assert command in run


def test_every_file_it_links_to_is_there() -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", README)
    assert "ARCHITECTURE.md" in targets
    for target in targets:
        assert (ROOT / target).exists()


def test_it_stays_short() -> None:
    assert len(README.splitlines()) <= 80
    assert max(map(len, README.splitlines())) <= 120
