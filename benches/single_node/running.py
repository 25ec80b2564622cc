"""Runs one arm: the manager beside a fresh serving process, then what came of it, judged and written down."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from benches.common import give_up
from benches.single_node.joined import Life, lives, stages
from benches.single_node.judging import Judged, judge
from benches.single_node.managing import running_manager
from benches.single_node.plan import Arm, Order, Places, Result
from benches.single_node.report import write_samples
from benches.single_node.workloads import MEASURED
from orbitkv.adapters.switches import QUEUE_WARMUP, TRACE_TRANSFERS
from orbitkv.adapters.trace_statistics import quantiles


def run_arm(arm: Arm, folder: Path) -> Judged:
    folder.mkdir()
    print(f"{arm.name}: serving", file=sys.stderr, flush=True)
    if arm.backend == "orbitkv":
        with running_manager(arm, folder) as manager:
            result = _served(arm, folder, str(manager.socket), manager.metrics_url)
        log: Path | None = manager.log
    else:
        result, log = _served(arm, folder), None
    judged = judge(arm, result, log)
    found = _joined(arm, folder, result) if arm.trace_transfers else []
    _add_medians(judged, result, found)
    write_samples(folder, result.samples, found)
    if judged.differences:
        _control(judged, folder)
    return judged


def _served(arm: Arm, folder: Path, socket: str = "", metrics_url: str = "") -> Result:
    """By a process of its own. Whatever that says stays in `engine.out`."""
    places = Places(socket=socket, metrics_url=metrics_url, result=str(folder / "result.json"))
    order = folder / "order.json"
    order.write_bytes(msgspec.json.format(msgspec.json.encode(Order(arm, places))))
    switches = {
        QUEUE_WARMUP: "1" if arm.queue_warmup else "0",
        TRACE_TRANSFERS: "1" if arm.trace_transfers else "0",
    }
    with (folder / "engine.out").open("w") as said:
        code = subprocess.run(
            [sys.executable, "-m", "benches.single_node.arm", str(order)],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=os.environ | switches,
            check=False,
        ).returncode
    if code:
        lines = [line for line in (folder / "engine.out").read_text().splitlines() if line.strip()]
        give_up(
            f"The engine's process ended with code {code}, and this run has no summary",
            f"Its last words: {lines[-1].rstrip('.') if lines else 'none'}",
            f"See {folder / 'engine.out'}",
        )
    return msgspec.json.decode(Path(places.result).read_bytes(), type=Result)


def _joined(arm: Arm, folder: Path, result: Result) -> list[Life]:
    paths = [folder / name for name in ("engine.out", "engines.out", "manager.out")]
    return lives(stages(paths), [sample.request for sample in result.samples])


def _add_medians(judged: Judged, result: Result, found: list[Life]) -> None:
    """What the timelines tell of each phase, and of the window."""
    by_name = {life.request: life for life in found}
    for phase, figures in judged.phases.items():
        lived = [by_name[one.request] for one in result.samples if one.phase == phase and by_name]
        medians = _medians(lived)
        judged.phases[phase] = {**figures, **medians}
        if phase == MEASURED and judged.window is not None:
            judged.window |= medians


def _medians(lived: list[Life]) -> dict[str, float]:
    """Of those that have the figure; nothing for what none has."""
    figures: dict[str, list[float | None]] = {
        "queue_to_first_use_p50_ms": [life.queue_to_first_use_ms for life in lived],
        "read_p50_ms": [life.read_ms for life in lived],
        "copy_p50_ms": [life.copy_ms for life in lived if life.copied_bytes],
    }
    known = {name: [value for value in values if value is not None] for name, values in figures.items()}
    return {
        name: quantiles([round(value * 1000) for value in values], (0.5,))[0] / 1000
        for name, values in known.items()
        if values
    }


def _control(judged: Judged, folder: Path) -> None:
    """The prompts whose output differed, served without OrbitKV: cold, and as a GPU hit."""
    prompts = tuple(sorted({difference.prompt for difference in judged.differences}))
    arm = msgspec.structs.replace(judged.arm, backend="none", workload="serial", only_prompts=prompts)
    place = folder / "control"
    place.mkdir()
    result = _served(arm, place)
    rows = [
        {"prompt": sample.prompt, "phase": sample.phase, "output": sample.output} for sample in result.samples
    ]
    document = {"different": judged.differences_plain(), "without OrbitKV": rows}
    (folder / "controls.json").write_bytes(msgspec.json.format(msgspec.json.encode(document)))
