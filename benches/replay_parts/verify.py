"""What it costs to decide a log again, beside what it cost the manager to decide it the first time.

CPU time of this process. `live` steps the same commands and encodes a frame of records at a time, which is
what the manager's loop does with them (the baseline; again as the null run); `verify` is the command: it
reads, decodes, steps, compares and encodes.
"""

import time

from benches.common import Arm, Goal, Report, Sample, interleave, table
from benches.replay_parts.logs import BenchLog
from orbitkv.events.codec import encode_records
from orbitkv.events.record import Record
from orbitkv.manager.kernel import new_state, step
from replay.verify import verify_log

RECORDS_PER_S_MIN = 100_000
TIMES_LIVE_MAX = 1.5


def measure(report: Report, log: BenchLog, rounds: int) -> None:
    arms: dict[str, Arm] = {"live": _live(log), "live again": _live(log), "verify": _verify(log)}
    found = interleave(arms, rounds=rounds)
    rows = table("verify", "arm", "CPU us/record", "times live", "records/s")
    figures: dict[str, object] = {}
    for arm in arms:
        spread, ratio = found.spread(arm, "us"), found.ratio(arm, "live", "us")
        rows.add_row(arm, spread.text(), ratio.text(), f"{1e6 / spread.median:,.0f}")
        figures[f"verify: {arm}"] = {"us_per_record": spread.median, "times_live": ratio.median}
    report.add(rows, figures)
    report.goal(
        Goal(
            "verify / live stepping",
            found.ratio("verify", "live", "us").median,
            TIMES_LIVE_MAX,
            at_least=False,
            allowance=found.null_spread("live again", "live", "us"),
        )
    )
    rate = 1e6 / found.spread("verify", "us").median
    report.goal(Goal("verify, records/s and core", rate, RECORDS_PER_S_MIN))


def _live(log: BenchLog) -> Arm:
    frames = log.frames

    def run(_: int) -> Sample:
        state = new_state()
        started = time.process_time_ns()
        for frame in frames:
            decided = [step(state, record.at_ns, record.cause) for record in frame]
            encode_records([record for record in decided if isinstance(record, Record)])
        assert state.seq == len(log.records), "every command made its record"
        return _sample(started, log)

    return run


def _verify(log: BenchLog) -> Arm:
    def run(_: int) -> Sample:
        started = time.process_time_ns()
        verified = verify_log(log.path)
        assert verified.ok and verified.records == len(log.records), "the whole log verifies"
        return _sample(started, log)

    return run


def _sample(started_ns: int, log: BenchLog) -> Sample:
    return {"us": (time.process_time_ns() - started_ns) / 1e3 / len(log.records)}
