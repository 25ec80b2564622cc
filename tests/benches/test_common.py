"""The arithmetic that every bench relies on."""

import json
from pathlib import Path

import pytest

from benches.common import Goal, Report, Rounds, Spread, interleave, medium, table


def test_arms_take_turns_in_changing_order_after_a_round_that_is_thrown_away() -> None:
    ran: list[tuple[int, str]] = []

    def arm(name: str):  # type: ignore[no-untyped-def] # a closure of two words
        return lambda number: ran.append((number, name)) or {"figure": float(number)}

    rounds = interleave({"a": arm("a"), "b": arm("b")}, rounds=8)
    assert [number for number, _ in ran] == sorted([-1, *range(8)] * 2)
    assert {tuple(name for number, name in ran if number == each) for each in range(8)} == {
        ("a", "b"),
        ("b", "a"),
    }
    assert [sample["figure"] for sample in rounds.samples["a"]] == [float(each) for each in range(8)]


def test_ratios_are_taken_round_by_round_so_that_drift_cancels() -> None:
    drifting = [1.0, 2.0, 4.0, 8.0, 16.0]
    rounds = Rounds(
        {
            "base": [{"speed": speed} for speed in drifting],
            "arm": [{"speed": 0.9 * speed} for speed in drifting],
            "null": [
                {"speed": speed * by} for speed, by in zip(drifting, (1.1, 0.9, 1.0, 1.2, 0.8), strict=True)
            ],
        }
    )
    ratio = rounds.ratio("arm", "base", "speed")
    assert ratio == Spread(pytest.approx(0.9), pytest.approx(0.9), pytest.approx(0.9))
    assert rounds.null_spread("null", "base", "speed") == pytest.approx(0.1)


def test_a_goal_is_met_within_its_allowance_and_on_its_own_side() -> None:
    assert Goal("speed", 0.93, 0.95, allowance=0.02).met
    assert not Goal("speed", 0.92, 0.95, allowance=0.02).met
    assert Goal("cost", 0.51, 0.5, at_least=False, allowance=0.02).met
    assert not Goal("cost", 0.53, 0.5, at_least=False, allowance=0.02).met


def test_a_report_says_the_same_in_words_and_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report("Something fast", {"medium": medium(tmp_path)})
    rows = table("Speeds", "arm", "GB/s")
    rows.add_row("store", "2.50")
    report.add(rows, {"store": {"gb_per_s": 2.5}})
    report.goal(Goal("store / C", 0.5, 0.95))
    report.finish(tmp_path / "figures.json")
    printed = capsys.readouterr().out
    assert "Something fast" in printed
    assert "2.50" in printed
    assert "NO" in printed
    document = json.loads((tmp_path / "figures.json").read_text())
    assert document["figures"] == {"store": {"gb_per_s": 2.5}}
    assert document["goals"][0]["met"] is False
    assert {"processor", "kernel", "python", "load before", "load after", "medium"} <= set(
        document["conditions"]
    )
