"""How many steps a second the simulator takes, and how much of its time the kernel has.

CPU time of this process, over several seeds as they come (a swarm: each has other trouble). `step` is the
kernel alone on the commands of the same runs (the baseline; again as the null run).
"""

import time

from benches.common import Arm, Goal, Report, Sample, interleave, table
from benches.replay_parts.logs import BenchLog
from orbitkv.events import commands
from orbitkv.events.record import Record
from orbitkv.manager.kernel import new_state, step
from replay.simulate.simulation import Simulation

SEEDS = range(900, 906)
STEPS = 3_000
STEPS_PER_S_MIN = 30_000


def measure(report: Report, log: BenchLog, rounds: int) -> None:
    records: list[Record] = []
    for seed in SEEDS:
        Simulation(seed, on_record=records.append).run(STEPS)
    arms: dict[str, Arm] = {"step": _step(records), "step again": _step(records), "simulate": _simulate()}
    found = interleave(arms, rounds=rounds)
    rows = table("simulate", "arm", "CPU us/step", "times step", "steps/s")
    figures: dict[str, object] = {}
    for arm in arms:
        spread, ratio = found.spread(arm, "us"), found.ratio(arm, "step", "us")
        rate = f"{1e6 / spread.median:,.0f}" if arm == "simulate" else "-"
        rows.add_row(arm, spread.text(), ratio.text(), rate)
        figures[f"simulate: {arm}"] = {"us_per_step": spread.median, "times_step": ratio.median}
    report.add(rows, figures)
    report.condition(
        "simulated", f"seeds {SEEDS[0]} to {SEEDS[-1]}, {STEPS} steps and {len(records):,} records"
    )
    rate_per_s = 1e6 / found.spread("simulate", "us").median
    report.goal(Goal("simulate, steps/s", rate_per_s, STEPS_PER_S_MIN))


def _simulate() -> Arm:
    def run(_: int) -> Sample:
        started = time.process_time_ns()
        for seed in SEEDS:
            Simulation(seed).run(STEPS)
        return _sample(started)

    return run


def _step(records: list[Record]) -> Arm:
    def run(_: int) -> Sample:
        state = new_state()
        started = time.process_time_ns()
        for record in records:
            if isinstance(record.cause, commands.Start):
                state = new_state()
            if not isinstance(record.cause, commands.CloseIncarnation):  # decided on what a crash left
                step(state, record.at_ns, record.cause)
        return _sample(started)

    return run


def _sample(started_ns: int) -> Sample:
    return {"us": (time.process_time_ns() - started_ns) / 1e3 / (STEPS * len(SEEDS))}
