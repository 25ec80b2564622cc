"""`replay simulate`: what it prints, the log it writes, and how it says that something broke."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from replay import simulate_command as module
from replay.simulate import Simulation
from replay.simulate_command import simulate_command
from replay.verify import verify_log


def test_it_tells_the_seed_and_the_last_lines() -> None:
    done = CliRunner().invoke(simulate_command, ["--seed", "5", "--steps", "400"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert len(lines) == 22
    assert lines[-2].startswith("seed 5: 400 steps, ")
    assert lines[-1].startswith("ok: ")


def test_the_log_it_writes_is_verified(tmp_path: Path) -> None:
    done = CliRunner().invoke(simulate_command, ["--seed", "18", "--steps", "1500", "--log", str(tmp_path)])
    assert done.exit_code == 0, done.output
    report = verify_log(tmp_path)
    assert report.ok
    assert len(report.incarnations) == len(list(tmp_path.iterdir())) > 1


def test_it_never_writes_among_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    done = CliRunner().invoke(simulate_command, ["--log", str(tmp_path)])
    assert done.exit_code == 2
    assert "notes.txt" in done.output
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_a_broken_rule_is_told_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Simulation):
        def drain(self) -> None:
            raise AssertionError("the drain left something behind")

    monkeypatch.setattr(module, "Simulation", Broken)
    done = CliRunner().invoke(simulate_command, ["--seed", "9", "--steps", "50", "--json"])
    assert done.exit_code == 1
    told = json.loads(done.output)
    assert told["seed"] == 9
    assert not told["ok"]
    assert "left something behind" in told["broken"]
