"""The pressure bench: its proportions, its requests, what it refuses, and one small arm for real."""

import math
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from benches.pressure import main
from benches.pressure_arm import run_arm
from benches.pressure_report import middle, ratio
from benches.pressure_shape import CASES, PROMPT_PAGES, Case, Draw, Shape, drawn, seeding
from orbitkv.events.outcomes import HintSkip

MIB = 1 << 20
SHAPE = Shape(512 * MIB, 12)


def draws(name: str, count: int = 400, seed: int = 0) -> list[Draw]:
    return list(islice(drawn(SHAPE, CASES[name], seed), count))


def prompts(name: str) -> Counter[tuple[int, ...]]:
    return Counter(draw.request.hash_ids for draw in draws(name))


@pytest.mark.parametrize("pool_mib", [64, 256, 512, 1024])
def test_the_proportions_are_the_references(pool_mib: int) -> None:
    shape = Shape(pool_mib * MIB, 12)
    prefix_bytes = PROMPT_PAGES * shape.page_bytes
    settings = shape.manager_settings
    config = shape.engine_config("socket", warmup=True)
    assert shape.budget_bytes / shape.pool_bytes == 0.75
    assert shape.speculative_bytes / shape.budget_bytes == 0.25
    assert prefix_bytes / shape.speculative_bytes == pytest.approx(0.75, abs=0.01)
    assert shape.working_set_bytes / shape.pool_bytes == pytest.approx(1.69, abs=0.01)
    assert settings["ssd-bytes"] == 4 * shape.pool_bytes
    assert config.hbm_pages * shape.page_bytes / shape.pool_bytes == pytest.approx(0.28, abs=0.01)
    assert shape.scale == pytest.approx(4096 / pool_mib, rel=0.01), "time shrinks as the pool does"


def test_a_working_set_that_fits_the_pool_is_refused() -> None:
    result = CliRunner().invoke(main, ["--prefixes", "7"])
    assert result.exit_code == 1
    assert "7 prefixes of 64 pages fit the pool of 453 pages" in result.output
    assert "Give more than 7 --prefixes" in result.output


def test_a_pool_that_is_no_size_is_refused() -> None:
    result = CliRunner().invoke(main, ["--pool", "plenty"])
    assert result.exit_code == 1
    assert "--pool cannot be 'plenty'" in result.output


def test_the_same_seed_gives_both_arms_the_same_requests() -> None:
    for name in CASES:
        assert draws(name, 50, seed=7) == draws(name, 50, seed=7)
    assert draws("pressure", 50, seed=7) != draws("pressure", 50, seed=8)


def test_three_quarters_of_the_requests_repeat_a_seeded_prefix() -> None:
    seeded = {request.hash_ids for request in seeding(SHAPE)}
    assert len(seeded) == 12
    count = prompts("pressure")
    repeated = sum(times for blocks, times in count.items() if blocks in seeded)
    assert repeated / count.total() == pytest.approx(0.75, abs=0.06)
    assert all(times == 1 for blocks, times in count.items() if blocks not in seeded)


def test_the_cases_do_what_their_names_say() -> None:
    assert len({draw.request.priority for draw in draws("reordered")}) == 8
    pairs = zip(draws("duplicates"), draws("duplicates")[1:], strict=False)
    repeats = sum(one.request.hash_ids == other.request.hash_ids for one, other in pairs)
    assert repeats / 400 > 0.4
    aborted = [draw for draw in draws("cancelled") if draw.abort_after_s is not None]
    assert len(aborted) / 400 == pytest.approx(0.25, abs=0.06)
    assert len(prompts("HBM hits")) == 1
    assert [CASES[name].gap for name in ("pressure", "gap 0.5", "gap 1", "gap 2")] == [0, 0.5, 1, 2]


def test_ratios_are_taken_within_pairs_and_only_of_what_is_there() -> None:
    pairs = {
        "off": [{"a": 2.0, "b": 0.0, "c": math.nan}, {"a": 4.0, "b": 1.0, "c": 1.0}],
        "on": [{"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 2.0, "b": 1.0, "c": 3.0}],
    }
    found = ratio(pairs, "a")
    assert found is not None
    assert found.median == 0.5
    assert ratio(pairs, "b") is None
    assert ratio(pairs, "c") is None
    share = middle(pairs["off"], "c")
    assert share is not None
    assert share.median == 1.0, "over the pairs that have it"


def test_a_small_arm_balances(tmp_path: Path) -> None:
    case = Case(name="small", words="", empty_dram=True, aborted=0.2)
    shape = Shape(16 * MIB, 8)
    result = run_arm(shape, case, warmup=True, seed=1, admission_s=0.3, folder=tmp_path / "arm")
    figures = result.figures
    assert figures["requests"] > 0
    outcomes = figures["restored_mib"] + figures["unused_mib"] + figures["pending_end_mib"]
    assert figures["prepared_mib"] == pytest.approx(outcomes), "nothing was prepared before the window"
    told = sum(figures[f"skips_{reason.name.lower()}"] for reason in HintSkip)
    told += figures["hints_admitted"] + figures["hints_not_needed"]
    assert told == figures["hints_sent"] > 0
    assert figures["peak_warming_mib"] <= shape.speculative_bytes / MIB
    assert figures["peak_reserved_mib"] <= shape.budget_bytes / MIB
    assert list(tmp_path.rglob("ssd-*")) == []
