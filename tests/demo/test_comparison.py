"""Warm-up off and on side by side: what is compared with what, and one small comparison for real."""

import json
from itertools import pairwise
from pathlib import Path

from orbitkv.adapters.demo.compared import Comparison, Spread
from orbitkv.adapters.demo.comparison import compared, order_of
from orbitkv.adapters.demo.show_comparison import comparison_table, skip_words
from orbitkv.adapters.demo.summary import ExposedMs, ModelledMs, Summary, Tiers, Workload
from tests.demo.processes import gone
from tests.demo.test_demo_run import demo, environment, leftovers

TINY = ("--no-pictures", "--requests", "25", "--speed", "30", "--pool", "16MiB", "--ssd", "256MiB")
MIB = 1 << 20


def summary(
    *,
    ttft_p95: float = 10.0,
    wall_s: float = 2.0,
    ssd_mib: int = 4,
    skips: dict[str, int] | None = None,
    trouble: list[str] | None = None,
) -> Summary:
    return Summary(
        requests=10,
        completed=10,
        ttft_ms=ModelledMs(ttft_p95 / 2, ttft_p95),
        asked_pages=0,
        hit_pages=Tiers(0, 0),
        missed_pages=0,
        ssd_read_bytes=ssd_mib * MIB,
        ssd_write_bytes=0,
        restored_bytes=0,
        ssd_bytes_per_request=ssd_mib * MIB // 10,
        exposed_wait_ms=ExposedMs(0.0, 0.0, 0),
        prepared_bytes=0,
        restored_warm_bytes=0,
        unused_bytes=0,
        pending_bytes=0,
        hints_admitted=0,
        hint_skips=skips or {},
        byte_mismatches=0,
        io_engine="threads",
        io_direct=False,
        io_reason="",
        log_records=1,
        log_bytes=1,
        verify="ok",
        wall_s=wall_s,
        workload=Workload(
            source="generated",
            warmup=False,
            speed=1,
            seed=0,
            engines=1,
            ranks=1,
            scale=1,
            page_bytes=1,
            pool_pages=1,
            hbm_pages=1,
            working_set_pages=1,
        ),
        engine={},
        manager={},
        trouble=trouble or [],
    )


def three_pairs() -> Comparison:
    off = [summary(ttft_p95=10, skips={}), summary(ttft_p95=20), summary(ttft_p95=40)]
    on = [
        summary(ttft_p95=5, skips={"foreground": 3}),
        summary(ttft_p95=20, skips={"foreground": 5, "bytes": 2}),
        summary(ttft_p95=30, skips={"foreground": 4}),
    ]
    return compared({"off": off, "on": on}, "ext4 on a disk")


def test_the_order_turns_round_from_pair_to_pair() -> None:
    orders = [order_of(pair) for pair in range(6)]
    assert all(sorted(order) == ["off", "on"] for order in orders)
    assert all(before != after for before, after in pairwise(orders))


def test_figures_are_compared_within_their_pair() -> None:
    figure = three_pairs().figures["ttft_p95_ms"]
    assert figure.off == Spread(20, 10, 40)
    assert figure.on == Spread(20, 5, 30)
    assert figure.ratio == Spread(0.75, 0.5, 1.0), "the machine's drift cancels"


def test_nothing_is_divided_by_nothing() -> None:
    figure = three_pairs().figures["prepared_mib"]
    assert (figure.off.median, figure.ratio) == (0, None)


def test_skips_are_told_by_reason_per_run() -> None:
    comparison = three_pairs()
    assert comparison.skips == {"off": {}, "on": {"bytes": 0, "foreground": 4}}
    assert skip_words(comparison.skips["on"]) == "4 foreground"


def test_trouble_names_its_run() -> None:
    runs = {"off": [summary()], "on": [summary(trouble=["3 requests did not end"])]}
    comparison = compared(runs, "ext4")
    assert comparison.trouble == ["pair 1, warm-up on: 3 requests did not end"]
    assert not comparison.good


def test_the_table_names_medium_and_engine() -> None:
    title = str(comparison_table(three_pairs()).title)
    assert "3 pairs of 10 requests" in title
    assert "ext4 on a disk, threads, buffered" in title


def test_a_comparison_runs_both_and_leaves_every_log(tmp_path: Path) -> None:
    environ, out = environment(tmp_path / "t"), tmp_path / "out"
    arguments = ("--compare", "--pairs", "1", "--engines", "1", "--ranks", "1", *TINY)
    with demo(out, environ, *arguments) as process:
        said, complained = process.communicate(timeout=100)
    assert process.returncode == 0, complained
    document = json.loads((out / "compare.json").read_text())
    assert (document["pairs"], document["order"], document["trouble"]) == (1, [["off", "on"]], [])
    for arm in ("off", "on"):
        (run,) = document["runs"][arm]
        assert run == json.loads((out / f"pair-1-{arm}" / "summary.json").read_text())
        assert run["workload"]["warmup"] is (arm == "on")
        assert (run["engine"]["hints_sent"] > 0) is (arm == "on")
        assert list((out / f"pair-1-{arm}" / "log").glob("*.orbitlog"))
    assert "TTFT p95 ms (modelled)" in said
    assert "hints skipped" in said
    assert gone(environ) == []
    assert leftovers(out, tmp_path / "t") == []
    assert list(out.rglob("ssd-*")) == []
