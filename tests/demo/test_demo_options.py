"""What the demo refuses, and how it sizes a run, before any process is started."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from orbitkv.adapters.demo.command import command
from orbitkv.adapters.demo.options import DemoOptions
from orbitkv.adapters.demo.places import make_places
from orbitkv.adapters.demo.plan import make_plan
from orbitkv.adapters.errors import AdapterError
from orbitkv.adapters.generator import generate
from orbitkv.adapters.trace import write_trace

TWO_REQUESTS = """\
{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
{"timestamp": 1, "input_length": 1100, "output_length": 1000, "hash_ids": [0, 2, 3]}
"""


def options(out: Path | None, **changes: object) -> DemoOptions:
    plain: dict[str, object] = {
        "trace": None,
        "requests": 50,
        "speed": 10.0,
        "seed": 0,
        "engines": 1,
        "ranks": 2,
        "pool": "64MiB",
        "ssd": "256MiB",
        "warmup": None,
        "compare": False,
        "pairs": 3,
        "out": out,
        "as_json": True,
    }
    return DemoOptions.of(**(plain | changes))  # type: ignore[arg-type]  # the words of a command line


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "earlier").touch()
    result = CliRunner().invoke(command, ["--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "is not empty" in result.output
    assert "Remedy: empty it or name another --out" in result.output
    assert list(tmp_path.iterdir()) == [tmp_path / "earlier"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AdapterError, match="is not a folder"):
        options(tmp_path / "file")


def test_without_a_folder_each_run_has_its_own() -> None:
    assert options(None).out.parent == Path("orbitkv-demo")


@pytest.mark.parametrize(
    ("word", "switch", "on"),
    [
        (None, None, True),  # the demo is there to show it
        (None, "1", True),
        (None, "0", False),
        ("on", "0", True),
        ("off", "1", False),
    ],
)
def test_warm_up_is_on_unless_the_command_line_or_the_switch_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, word: str | None, switch: str | None, on: bool
) -> None:
    monkeypatch.delenv("ORBITKV_QUEUE_WARMUP", raising=False)
    if switch is not None:
        monkeypatch.setenv("ORBITKV_QUEUE_WARMUP", switch)
    assert options(None, warmup=word).warmup is on


def test_a_comparison_of_one_arm_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["--compare", "--warmup", "on", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "Remedy: leave one of them out" in result.output
    assert not (tmp_path / "out").exists()


def test_pairs_count_only_when_there_is_something_to_compare(tmp_path: Path) -> None:
    assert options(tmp_path / "out", pairs=5).pairs == 0
    assert options(tmp_path / "out", pairs=5, compare=True).pairs == 5


def test_the_engines_are_told_what_the_demo_was_told(tmp_path: Path) -> None:
    plan = make_plan(options(tmp_path / "out", warmup="off"))
    assert plan.engine_config(0, tmp_path).queue_warmup is False
    arm = plan.arm(warmup=True, out=tmp_path / "arm")
    assert arm.engine_config(0, tmp_path).queue_warmup is True
    assert (arm.requests, arm.hbm_pages, arm.manager_settings) == (
        plan.requests,
        plan.hbm_pages,
        plan.manager_settings,
    )


@pytest.mark.parametrize("size", ["lots", "-1", "5MB/s", ""])
def test_a_size_that_is_none_is_named_with_its_option(tmp_path: Path, size: str) -> None:
    with pytest.raises(AdapterError, match=r"--pool cannot be") as caught:
        options(tmp_path, pool=size)
    assert caught.value.remedy


def test_a_broken_trace_ends_with_its_line_number_before_anything_is_started(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(TWO_REQUESTS + "{broken\n")
    result = CliRunner().invoke(command, ["--trace", str(trace), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert f"Line 3 of the trace {trace}" in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()


def test_an_empty_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").touch()
    with pytest.raises(AdapterError, match="is empty"):
        make_plan(options(tmp_path / "out", trace=tmp_path / "trace.jsonl"))


def test_a_page_file_larger_than_the_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="no room for a page file"):
        make_plan(options(tmp_path / "out" / "deeper", ssd="8000TiB"))


def test_sizes_follow_from_pool_ranks_and_the_longest_request(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(TWO_REQUESTS)
    plan = make_plan(options(tmp_path / "out", trace=trace))
    assert (plan.page_bytes, plan.slice_bytes, plan.scale) == (128 * 1024, 64 * 1024, 576)
    assert plan.pool_pages == (64 << 20) // (132 * 1024)
    assert plan.working_set_pages == 2, "whole pages only"
    assert plan.working_set_fits_pool
    assert plan.hbm_pages == int(0.28 * plan.pool_pages)
    shared = make_plan(options(tmp_path / "out", trace=trace, engines=2))
    assert shared.hbm_pages == int(0.14 * plan.pool_pages), "all engines' GPU memory together"
    small = make_plan(options(tmp_path / "out", trace=trace, pool="2MiB", ranks=3))
    assert small.hbm_pages == 5 + 16, "never less than the longest request needs"
    assert small.page_bytes == 3 * 40960, "slices are multiples of 4 KiB"


def test_a_generated_trace_and_its_file_are_the_same_run(tmp_path: Path) -> None:
    generated = make_plan(options(tmp_path / "out", seed=3))
    write_trace(tmp_path / "trace.jsonl", iter(generated.requests))
    assert next(generate(3)) == generated.requests[0]
    assert make_plan(options(tmp_path / "out", trace=tmp_path / "trace.jsonl")).requests == generated.requests


def test_what_is_temporary_goes_even_when_the_run_fails(tmp_path: Path) -> None:
    def fail(seen: list[Path]) -> None:
        with make_places(tmp_path / "out") as places:
            (places.ssd_path / "pages").touch()
            places.socket_path.touch()
            seen += [places.ssd_path, places.socket_path.parent]
            raise RuntimeError

    seen: list[Path] = []
    with pytest.raises(RuntimeError):
        fail(seen)
    assert not any(path.exists() for path in seen)
    assert (tmp_path / "out").is_dir()


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AdapterError, match="Nothing can be written"), make_places(tmp_path / "file" / "out"):
        pass
