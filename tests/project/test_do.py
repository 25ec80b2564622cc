"""`.ci/do`: an environment is made once and renewed when it has to be; trouble is told in full."""

import importlib.util
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "do"


def run(*arguments: str, version: str = "sys.version_info") -> subprocess.CompletedProcess[str]:
    program = (
        f"import runpy, sys; sys.version_info = {version}; sys.argv = {['do', *arguments]!r}; "
        f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


@pytest.fixture
def do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A copy, whose lock nobody holds who makes an environment of this checkout meanwhile."""
    script = tmp_path / "do"
    script.write_bytes(SCRIPT.read_bytes())
    loader = SourceFileLoader("do", str(script))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    spec = importlib.util.spec_from_loader("do", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", str(tmp_path))
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    return module


@pytest.fixture
def made(do: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The environments that were made, which are empty folders here."""
    names: list[str] = []

    def make(name: str, folder: str) -> None:
        names.append(name)
        Path(folder).mkdir(exist_ok=True)

    monkeypatch.setattr(do, "make", make)
    return names


def test_an_old_python_is_told() -> None:
    done = run("demo", version="(3, 9, 1)")
    assert done.returncode == 2
    assert "This Python is too old: 3.9." in done.stderr
    assert "Remedy:" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["dmeo"], ["--help"]])
def test_usage(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == (0 if arguments == ["--help"] else 2)
    assert "python3 .ci/do demo" in done.stderr


def test_an_environment_is_made_once_and_again_when_the_project_changes(
    do: ModuleType, made: list[str], tmp_path: Path
) -> None:
    assert do.environment("demo") == do.environment("demo") == str(tmp_path / ".env-demo")
    assert made == ["demo"]
    do.environment("test")
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'changed'\n")
    do.environment("demo")
    assert made == ["demo", "test", "demo"]


def test_an_interrupted_making_is_begun_again(
    do: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(name: str, folder: str) -> None:
        Path(folder).mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(do, "make", interrupted)
    with pytest.raises(KeyboardInterrupt):
        do.environment("demo")
    made: list[str] = []
    monkeypatch.setattr(do, "make", lambda name, folder: made.append(name))
    do.environment("demo")
    assert made == ["demo"]


def test_wordy_output_is_shown_only_when_something_fails(
    do: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    noise = "print('WARNING: this location is odd\\n' * 100)"
    do.run_quietly([sys.executable, "-c", noise], "It failed.", "try again.")
    assert capfd.readouterr() == ("", "")
    with pytest.raises(SystemExit):
        do.run_quietly(
            [sys.executable, "-c", f"{noise}; print('the cause'); exit(3)"], "It failed.", "try again."
        )
    told = capfd.readouterr().err
    assert "the cause" in told
    assert "It failed.\n  Why: " in told
    assert told.count("WARNING") <= do.LOG_LINES_SHOWN


def test_an_engine_that_has_no_list_is_told_what_there_is() -> None:
    for arguments in (["engines"], ["engines", "vllm-0.1"]):
        done = run(*arguments)
        assert done.returncode == 2
        assert "vllm-0.29, vllm-0.32" in done.stderr


def test_an_engine_is_installed_anew_when_its_list_changes(
    do: ModuleType, made: list[str], tmp_path: Path
) -> None:
    packages = tmp_path / "tests" / "engines" / "toy" / "requirements-1.0.txt"
    packages.parent.mkdir(parents=True)
    packages.write_text("toy==1.0.0\n")
    assert do.environment("toy-1.0") == do.environment("toy-1.0") == str(tmp_path / ".env-toy-1.0")
    assert made == ["toy-1.0"]
    packages.write_text("toy==1.0.1\n")
    do.environment("toy-1.0")
    assert made == ["toy-1.0"] * 2
