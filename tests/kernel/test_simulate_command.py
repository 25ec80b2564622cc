"""`replay simulate`: what it prints, the log it writes, and how it says that something broke."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from replay import simulate_command as module
from replay.simulate.faults import MEANINGS
from replay.simulate.simulation import Simulation
from replay.simulate_command import simulate_command
from replay.verify import verify_log


def run(*arguments: str) -> Result:
    return CliRunner().invoke(simulate_command, list(arguments))


def test_it_tells_the_seed_the_last_lines_the_trouble_and_the_ends() -> None:
    done = run("--seed", "5", "--steps", "400", "--faults", "short_read=0.5,clock_jump")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert all(" s  " in line for line in lines[:20]), "the last records stand first"
    assert any(line.startswith("seed 5: 400 steps, ") for line in lines)
    assert any("steps/s" in line for line in lines)
    assert lines[-1].startswith("ok: ")
    for word in ("short_read", "0.5", "clock_jump", "QueryEnded", "not reached"):
        assert word in done.output
    assert "rotten_slot" not in done.output


def test_the_log_it_writes_is_verified(tmp_path: Path) -> None:
    done = run("--seed", "18", "--steps", "3000", "--faults", "crashed,power_lost", "--log", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert f"log: {tmp_path}" in done.output
    report = verify_log(tmp_path)
    assert report.ok, report.difference or report.log.troubles
    assert len(report.incarnations) > 1
    assert all(found.closed for found in report.incarnations)
    told = json.loads(
        run("--seed", "18", "--steps", "3000", "--faults", "crashed,power_lost", "--json").output
    )
    assert sum(found.records for found in report.incarnations) <= told["records"] + told["incarnations"]
    assert len(report.incarnations) == told["incarnations"]


def test_a_log_whose_beginning_was_retired_verifies_too(tmp_path: Path) -> None:
    arguments = ("--seed", "26", "--steps", "6000", "--faults", "retired=1,dropped_dram")
    told = json.loads(run(*arguments, "--log", str(tmp_path), "--json").output)
    assert told["faults"]["retired"] > 1
    report = verify_log(tmp_path)
    assert report.ok, report.difference or report.log.troubles
    assert report.incarnations[0].first_seq > 1


def test_it_never_writes_among_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    done = run("--log", str(tmp_path))
    assert done.exit_code == 2
    assert "notes.txt" in done.output
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ("slow,typo", "there is no fault 'typo'; name some of short_read"),
        ("slow=2", "write for example"),
        ("slow=", "ok"),
        ("all,slow", "there is no fault 'all'"),
    ],
)
def test_faults_that_it_does_not_know_are_refused_with_those_that_it_knows(faults: str, words: str) -> None:
    done = run("--faults", faults, "--steps", "10")
    assert done.exit_code == (0 if words == "ok" else 2)
    assert words in " ".join(done.output.replace("│", " ").split())


def test_it_lists_every_kind_of_trouble() -> None:
    done = run("--list-faults")
    assert [line.split()[0] for line in done.output.splitlines()] == list(MEANINGS)


class Broken(Simulation):
    def drain(self) -> None:
        raise AssertionError("the drain left something behind")


def test_a_broken_rule_is_told_with_its_seed_and_leaves_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "Simulation", Broken)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    done = run("--seed", "9", "--steps", "500", "--json")
    assert done.exit_code == 1
    told = json.loads(done.output)
    assert (told["seed"], told["ok"]) == (9, False)
    assert "left something behind" in told["broken"]
    assert told["version"]
    log = Path(told["log"])
    assert log.parent == tmp_path
    report = verify_log(log)
    assert report.ok, "the log ends where the run broke off, and says no wrong word"
    assert report.incarnations[-1].records > 0


def test_a_broken_run_says_for_people_how_to_tell_it_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "Simulation", Broken)
    done = run("--seed", "9", "--steps", "500", "--log", str(tmp_path / "log"))
    assert done.exit_code == 1
    told = click.unstyle(done.output)
    assert "FAILED after the last record above: AssertionError: the drain left something behind" in told
    for word in ("seed=9", "steps=500", "faults=swarm", "commit=", "version=", "kernel_revision="):
        assert word in told


def test_a_run_that_holds_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert run("--seed", "4", "--steps", "300").exit_code == 0
    assert list(tmp_path.iterdir()) == []
