"""How fast a log is folded, beside what it must at least do: read frames, decode records.

CPU time of this process. `frames` checks every checksum and decodes nothing (the baseline; again as the
null run); `records` decodes as well; `apply` folds records that are decoded already; `fold` is the command.
"""

import time

from benches.common import Arm, Goal, Report, Sample, interleave, table
from benches.replay_parts.logs import BenchLog
from orbitkv.events.codec import decode_records
from orbitkv.events.frame import FrameKind
from orbitkv.events.scan import Scan
from orbitkv.manager.kernel import fold, new_state
from replay.fold import fold_log

RECORDS_PER_S_MIN = 200_000


def measure(report: Report, log: BenchLog, rounds: int) -> None:
    arms: dict[str, Arm] = {
        "frames": _frames(log),
        "frames again": _frames(log),
        "records": _records(log),
        "apply": _apply(log),
        "fold": _fold(log),
    }
    found = interleave(arms, rounds=rounds)
    rows = table("fold", "arm", "CPU us/record", "times frames", "records/s")
    figures: dict[str, object] = {}
    for arm in arms:
        spread, ratio = found.spread(arm, "us"), found.ratio(arm, "frames", "us")
        rows.add_row(arm, spread.text(), ratio.text(1), f"{1e6 / spread.median:,.0f}")
        figures[f"fold: {arm}"] = {"us_per_record": spread.median, "times_frames": ratio.median}
    report.add(rows, figures)
    rate = 1e6 / found.spread("fold", "us").median
    report.goal(Goal("fold, records/s and core", rate, RECORDS_PER_S_MIN))


def _frames(log: BenchLog) -> Arm:
    data = log.data

    def run(_: int) -> Sample:
        started = time.process_time_ns()
        frames = sum(1 for _ in Scan(data))
        assert frames > len(log.records) // 20, "the log has many frames"
        return _sample(started, log)

    return run


def _records(log: BenchLog) -> Arm:
    data = log.data

    def run(_: int) -> Sample:
        started = time.process_time_ns()
        count = sum(
            len(decode_records(frame.payload)) for frame in Scan(data) if frame.kind is FrameKind.RECORDS
        )
        assert count == len(log.records), "every record is decoded"
        return _sample(started, log)

    return run


def _apply(log: BenchLog) -> Arm:
    def run(_: int) -> Sample:
        state = new_state()
        started = time.process_time_ns()
        for record in log.records:
            fold(state, record)
        return _sample(started, log)

    return run


def _fold(log: BenchLog) -> Arm:
    def run(_: int) -> Sample:
        started = time.process_time_ns()
        folded = fold_log(log.path)
        assert folded.ok and folded.records == len(log.records), "the whole log folds"
        return _sample(started, log)

    return run


def _sample(started_ns: int, log: BenchLog) -> Sample:
    return {"us": (time.process_time_ns() - started_ns) / 1e3 / len(log.records)}
