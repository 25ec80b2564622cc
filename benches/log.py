"""The log: durable facts a second at several frame sizes, and what it costs a query through the channel.

    python -m benches.log [--json FILE] [--only storage|channel] [--rounds N] [--channel-rounds N]
                          [--seconds S] [--directory DIR]

The second half is told in `benches.log_channel`. In the first, the records are those of a simulated run.
Per frame size, four arms: `encode` makes the frames' payloads and throws them away (baseline, and once
more as the null run); `journal` appends them as the manager does and ends when the last one is durable;
`sync each` writes and syncs frame by frame, the slowest honest way. Times are wall times; CPU is that of
the whole process, journal thread included.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import trio
import zstandard

from benches.common import Arm, Goal, Report, Rounds, Sample, interleave, medium, table
from benches.log_channel import STARTS, through_channel
from orbitkv.events.codec import encode_records
from orbitkv.events.frame import FRAME_HEAD_BYTES, SegmentHeader
from orbitkv.events.record import Record
from orbitkv.io.clock import SystemClock
from orbitkv.io.journal import FileJournal
from orbitkv.io.segment_writer import FileCalls, PendingFrame, SegmentWriter
from orbitkv.io.segments import LogDirectory
from orbitkv.manager.kernel import KERNEL_REVISION
from replay.simulate.simulation import Simulation

FACTS_PER_FRAME = (1, 16, 256)
FRAMES = {1: 20_000, 16: 5_000, 256: 1_000}
"""Frames that one run of `encode` and `journal` makes, by facts per frame."""
FRAMES_SYNCED_EACH = 100
DURABLE_FACTS_PER_S = 500_000
"""The goal of a measured prototype, at 256 facts a frame."""


def simulated_records(count: int) -> list[Record]:
    """At least so many records of simulated runs."""
    records: list[Record] = []
    for seed in itertools.count(1):
        Simulation(seed, on_record=records.append, crashes=False).run(4_000)
        if len(records) >= count:
            return records
    raise AssertionError("unreachable")


def into_frames(records: Sequence[Record], facts_per_frame: int, count: int) -> list[list[Record]]:
    """Frames of about so many facts, going round the records until there are enough."""
    frames: list[list[Record]] = []
    frame: list[Record] = []
    facts = 0
    for record in itertools.cycle(records):
        frame.append(record)
        facts += len(record.events)
        if facts >= facts_per_frame:
            frames.append(frame)
            frame, facts = [], 0
            if len(frames) == count:
                return frames
    raise AssertionError("unreachable")


def facts_in(frames: Sequence[Sequence[Record]]) -> int:
    return sum(len(record.events) for frame in frames for record in frame)


@contextmanager
def measured(sample: dict[str, float], facts: int) -> Iterator[None]:
    wall_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
    yield
    wall_ns, cpu_ns = time.perf_counter_ns() - wall_ns, time.process_time_ns() - cpu_ns
    sample["facts_per_s"] = facts / wall_ns * 1e9
    sample["cpu_ns_per_fact"] = cpu_ns / facts


def encode_only(frames: Sequence[Sequence[Record]]) -> Arm:
    def run(_: int) -> Sample:
        sample: dict[str, float] = {}
        with measured(sample, facts_in(frames)):
            for frame in frames:
                encode_records(frame)
        return sample

    return run


def durable_journal(frames: Sequence[Sequence[Record]], directory: Path) -> Arm:
    async def write(path: Path, sample: dict[str, float]) -> None:
        log = LogDirectory.open(path)
        journal = FileJournal.begin(
            log, SystemClock(), incarnation=1, kernel_revision=KERNEL_REVISION, snapshot=b""
        )
        with measured(sample, facts_in(frames)):
            seq = 1
            for frame in frames:
                journal.append(seq, seq + len(frame) - 1, encode_records(frame))
                seq += len(frame)
                if journal.lag_bytes > 32 << 20:
                    await journal.written(seq - 1)
            await journal.aclose()
        assert journal.synced_seq == seq - 1
        log.close()

    return _in_fresh_directory(directory, lambda path, sample: trio.run(write, path, sample))


def synced_each(frames: Sequence[Sequence[Record]], directory: Path) -> Arm:
    def write(path: Path, sample: dict[str, float]) -> None:
        header = SegmentHeader(
            log_id=bytes(16),
            incarnation=1,
            number=1,
            first_seq=1,
            wall_offset_ns=0,
            kernel_revision=KERNEL_REVISION,
            previous_checksum=0,
        )
        writer = SegmentWriter.create(path, header, b"", FileCalls())
        seq = 1
        with measured(sample, facts_in(frames)):
            for frame in frames:
                writer.write([PendingFrame(seq, seq + len(frame) - 1, encode_records(frame))])
                writer.sync()
                seq += len(frame)
        writer.close()

    return _in_fresh_directory(directory, write)


def _in_fresh_directory(directory: Path, write: Callable[[Path, dict[str, float]], None]) -> Arm:
    def run(_: int) -> Sample:
        sample: dict[str, float] = {}
        with tempfile.TemporaryDirectory(dir=directory) as fresh:
            write(Path(fresh), sample)
        return sample

    return run


def storage(report: Report, rounds: int, directory: Path) -> None:
    """Measure all frame sizes and add their tables and goals."""
    records = simulated_records(20_000)
    rates = table("thousand facts a second", "facts/frame", "encode", "journal, durable", "sync each")
    costs = table("against bare encoding", "facts/frame", "journal/encode", "null run", "CPU ns/fact", "bare")
    sizes = table("log bytes", "facts/frame", "records/frame", "bytes/frame", "bytes/fact", "zstd 3")
    figures: dict[str, object] = {}
    for facts_per_frame in FACTS_PER_FRAME:
        frames = into_frames(records, facts_per_frame, FRAMES[facts_per_frame])
        arms: dict[str, Arm] = {
            "encode": encode_only(frames),
            "encode again": encode_only(frames),
            "journal": durable_journal(frames, directory),
            "sync each": synced_each(frames[:FRAMES_SYNCED_EACH], directory),
        }
        found = interleave(arms, rounds=rounds)
        rates.add_row(str(facts_per_frame), *_rates(found))
        costs.add_row(str(facts_per_frame), *_costs(found))
        sizes.add_row(*_sizes(facts_per_frame, frames))
        for arm in arms:
            figures[f"{arm}, {facts_per_frame} facts a frame"] = {
                figure: found.spread(arm, figure).median for figure in ("facts_per_s", "cpu_ns_per_fact")
            }
        if facts_per_frame == 256:
            durable = found.spread("journal", "facts_per_s").median
            report.goal(Goal("durable facts/s at 256 a frame", durable, DURABLE_FACTS_PER_S))
    report.add(rates, figures)
    report.add(costs, {})
    report.add(sizes, {})


def _rates(found: Rounds) -> list[str]:
    spreads = [found.spread(arm, "facts_per_s") for arm in ("encode", "journal", "sync each")]
    return [
        f"{spread.median / 1e3:,.0f} ({spread.low / 1e3:,.0f} to {spread.high / 1e3:,.0f})"
        for spread in spreads
    ]


def _costs(found: Rounds) -> list[str]:
    return [
        f"{found.ratio('journal', 'encode', 'facts_per_s').median:.2f}",
        f"{found.ratio('encode again', 'encode', 'facts_per_s').median:.2f}",
        *(f"{found.spread(arm, 'cpu_ns_per_fact').median:.0f}" for arm in ("journal", "encode")),
    ]


def _sizes(facts_per_frame: int, frames: Sequence[Sequence[Record]]) -> list[str]:
    payloads = [encode_records(frame) for frame in frames]
    total_bytes = sum(map(len, payloads)) + FRAME_HEAD_BYTES * len(payloads)
    packed_bytes = len(zstandard.ZstdCompressor(level=3).compress(b"".join(payloads)))
    return [
        str(facts_per_frame),
        f"{sum(map(len, frames)) / len(frames):.1f}",
        f"{total_bytes / len(frames):,.0f}",
        f"{total_bytes / facts_in(frames):.1f}",
        f"{total_bytes / packed_bytes:.2f}x",
    ]


@click.command()
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here too.")
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1), help="Of the storage half.")
@click.option(
    "--channel-rounds", default=10, show_default=True, type=click.IntRange(1), help="A start of the other."
)
@click.option("--seconds", default=0.25, show_default=True, type=click.FloatRange(0.05), help="A run of it.")
@click.option("--directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--only", type=click.Choice(["storage", "channel"]), help="One half alone.")
def main(
    json_path: Path | None,
    rounds: int,
    channel_rounds: int,
    seconds: float,
    directory: Path | None,
    only: str | None,
) -> None:
    """Measure the log's storage, and what the log costs a query."""
    place = directory or Path(tempfile.gettempdir())
    report = Report(
        "log: storage, and what it costs a query",
        {
            "rounds": f"storage {rounds}; channel {STARTS} times {channel_rounds} of {seconds} s",
            "log on": medium(place),
        },
    )
    if only != "channel":
        storage(report, rounds, place)
    if only != "storage":
        through_channel(report, channel_rounds, seconds, place)
    report.finish(json_path)


if __name__ == "__main__":
    main()
