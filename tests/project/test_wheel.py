"""What a user installs: the two packages, the command, the licence, and nothing else."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from orbitkv import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_it_holds_the_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    sources = {
        str(path.relative_to(ROOT))
        for package in ("orbitkv", "replay")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == sources
    assert {"orbitkv/py.typed", "replay/py.typed"} <= held


def test_it_has_the_command_and_the_licence(wheel: zipfile.ZipFile) -> None:
    information = {
        Path(name).name: wheel.read(name).decode() for name in wheel.namelist() if ".dist-info/" in name
    }
    assert "orbitkv = orbitkv.__main__:main" in information["entry_points.txt"]
    assert information["LICENSE"].lstrip().startswith("Apache License")
    assert f"Version: {__version__}\n" in information["METADATA"]


def test_the_version_is_said_once_in_each_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
