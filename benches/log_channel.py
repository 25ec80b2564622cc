"""What the log costs a query through the channel: managers with and without it, side by side.

Eight client processes ask queries of 256 page hashes, each answered from DRAM with a lease that is then
released. `no log` encodes no record and journals nothing (baseline, and once more as the null run);
`log` is what an operator runs; `log, metered` takes the CPU time of the manager's parts on the way, so
its speed is not judged. All are started several times. What rolling over costs once in some 28,000 queries
(a snapshot, compressing the finished segment) is in single rounds at most, and so not in the medians.

What a query leaves on the disk is read from the log's files when their manager has ended. Zstd does well
there: a query asks for pages that were saved one after the other, so their numbers run on.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs
import msgspec
import zstandard

from benches.channel import Field, Worker, field_of
from benches.common import Arm, Goal, Report, Rounds, Sample, Spread, interleave, table
from benches.log_server import Figures
from orbitkv.events.codec import decode_records
from orbitkv.events.commands import SubmitQuery
from orbitkv.events.frame import FrameKind
from orbitkv.events.scan import Scan, expand
from orbitkv.io.segments import segment_files

KEYS = 256
CLIENTS = 8
STARTS = 4
"""Two processes of the same program differ by up to a tenth for as long as they live, so the figures are
of several starts of all of them."""
PAGES = 65_536
BASELINE = "no log"
ARMS = {BASELINE: "silent", "no log again": "silent", "log": "logged", "log, metered": "metered"}
RATE_RATIO_MIN = 0.95
KERNEL_SHARE_MAX = 0.15
PARTS = {
    "step": "kernel: step",
    "lookups": "kernel: lookups for a query",
    "effects": "follower: effects",
    "notices": "follower: notices",
    "encode": "log: encode",
    "append": "log: append",
    "threads": "log: its threads",
}
_ZSTD_LEVEL = 3


@attrs.define(slots=True)
class Manager:
    """One arm: a manager of the log bench, with its clients and its log."""

    field: Field
    log: Path
    queries: int = 0
    """Asked so far."""

    def run(self, seconds: float) -> Sample:
        before = self.figures()
        asked = self.field.run(CLIENTS, KEYS, seconds)
        after = self.figures()
        queries = round(asked["queries_per_s"] * seconds)
        self.queries += queries
        spent_ns = {part: after.part_cpu_ns[part] - ns for part, ns in before.part_cpu_ns.items()}
        spent_ns["threads"] = after.threads_cpu_ns - before.threads_cpu_ns
        spent_ns["whole"] = after.cpu_ns - before.cpu_ns
        sample = {f"{part}_us": ns / queries / 1e3 for part, ns in spent_ns.items()}
        return {**sample, "queries_per_s": asked["queries_per_s"], "p50_us": asked["p50_us"]}

    def figures(self) -> Figures:
        server = Worker(self.field.server)
        server.order("figures")
        return msgspec.json.decode(server.answer(), type=Figures)

    def end(self) -> None:
        """Let it write its log to the end and leave."""
        self.field.end_server()


@contextmanager
def managers(directory: Path) -> Iterator[dict[str, Manager]]:
    """All arms, serving."""
    with ExitStack() as stack:
        made: dict[str, Manager] = {}
        for name, arm in ARMS.items():
            folder = directory / name.replace(",", "").replace(" ", "-")
            folder.mkdir()
            path, log = str(folder / "s"), folder / "log"
            command = ("benches.log_server", arm, path, str(log), str(PAGES))
            made[name] = Manager(stack.enter_context(field_of(command, "channel", path, PAGES)), log)
        yield made


# --- what stands in the files -------------------------------------------------------------------------


@attrs.frozen(slots=True)
class LogSizes:
    """Of the frames that hold queries and releases."""

    queries: int
    records: int
    facts: int
    frames: int
    plain_bytes: int
    packed_bytes: int
    """The same frames after compression at the level of finished segments."""


def log_sizes(log: Path, first_seq: int) -> LogSizes:
    """Of everything that was recorded from this seq on."""
    queries = records = facts = frames = plain_bytes = packed_bytes = 0
    for _, path in segment_files(log):
        pieces: list[bytes] = []
        data = expand(path.read_bytes()).data
        for frame in Scan(data):
            if frame.kind is not FrameKind.RECORDS or frame.first_seq < first_seq:
                continue
            pieces.append(data[frame.offset : frame.end_offset])
            held = decode_records(frame.payload)
            frames += 1
            records += len(held)
            facts += sum(len(record.events) for record in held)
            queries += sum(isinstance(record.cause, SubmitQuery) for record in held)
        plain_bytes += sum(map(len, pieces))
        packed_bytes += len(zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(b"".join(pieces)))
    return LogSizes(queries, records, facts, frames, plain_bytes, packed_bytes)


# --- the report ---------------------------------------------------------------------------------------


def through_channel(report: Report, rounds: int, seconds: float, directory: Path) -> None:
    """Measure all arms and add their tables and goals. `rounds` are of each of the starts."""
    samples: dict[str, list[Sample]] = {arm: [] for arm in ARMS}
    for start in range(STARTS):
        found, sizes = _measure_once(start, rounds, seconds, directory)
        for arm in ARMS:
            samples[arm] += found.samples[arm]
    every = Rounds(samples)
    _add_speeds(report, every)
    _add_parts(report, every)
    _add_sizes(report, sizes, every)


def _measure_once(start: int, rounds: int, seconds: float, directory: Path) -> tuple[Rounds, LogSizes]:
    with tempfile.TemporaryDirectory(prefix="orbitkv-", dir=directory) as name, managers(Path(name)) as made:
        first_seq = made["log"].figures().seq + 1
        arms: dict[str, Arm] = {
            arm: lambda _, manager=manager: manager.run(seconds)  # type: ignore[misc]  # bound early
            for arm, manager in made.items()
        }
        found = interleave(arms, rounds=rounds, seed=start)
        made["log"].end()
        sizes = log_sizes(made["log"].log, first_seq)
    if sizes.queries != made["log"].queries:
        raise RuntimeError(f"{made['log'].queries} queries were answered, the log has {sizes.queries}")
    return found, sizes


def _add_speeds(report: Report, found: Rounds) -> None:
    made = table(
        f"{KEYS} hashes, {CLIENTS} clients; CPU of the manager and of its log threads, per query",
        "arm",
        "queries/s",
        "/ no log",
        "p50 us",
        "CPU us",
        "/ no log",
        "threads us",
    )
    figures: dict[str, object] = {}
    for arm in ARMS:
        made.add_row(
            arm,
            f"{found.spread(arm, 'queries_per_s').median:,.0f}",
            found.ratio(arm, BASELINE, "queries_per_s").text(3),
            found.spread(arm, "p50_us").text(0),
            f"{found.spread(arm, 'whole_us').median:.0f}",
            found.ratio(arm, BASELINE, "whole_us").text(3),
            f"{found.spread(arm, 'threads_us').median:.1f}",
        )
        figures[f"{arm}, {KEYS} hashes, {CLIENTS} clients"] = {
            figure: found.spread(arm, figure).median
            for figure in ("queries_per_s", "p50_us", "whole_us", "threads_us")
        }
    ratio = found.ratio("log", BASELINE, "queries_per_s")
    null = found.ratio("no log again", BASELINE, "queries_per_s")
    figures["log / no log, queries/s"] = attrs.asdict(ratio)
    figures["null run, queries/s"] = attrs.asdict(null)
    figures["log / no log, CPU"] = attrs.asdict(found.ratio("log", BASELINE, "whole_us"))
    report.add(made, figures)
    report.goal(Goal("queries/s, log / no log", ratio.median, RATE_RATIO_MIN))


def _add_parts(report: Report, found: Rounds) -> None:
    made = table("Where the manager's CPU goes, log on (metered)", "part", "us/query", "share")
    arm = "log, metered"
    shares = {part: _share(found, arm, f"{part}_us").median for part in PARTS}
    for part, words in PARTS.items():
        made.add_row(words, found.spread(arm, f"{part}_us").text(1), f"{shares[part]:.1%}")
    rest = 1 - sum(shares.values())
    made.add_row("channel, decoding, replies, tasks", "", f"{rest:.1%}")
    made.add_row("all", found.spread(arm, "whole_us").text(1), "")
    report.add(made, {"shares of the manager's CPU": {**shares, "rest": rest}})
    report.goal(Goal("kernel (step) / manager's CPU", shares["step"], KERNEL_SHARE_MAX, at_least=False))


def _share(found: Rounds, arm: str, figure: str) -> Spread:
    """Of the CPU time of the same run."""
    return Spread.of([sample[figure] / sample["whole_us"] for sample in found.samples[arm]])


def _add_sizes(report: Report, sizes: LogSizes, found: Rounds) -> None:
    made = table("In the log's files, per query with its release", "what", "figure")
    figures = {
        "records": sizes.records / sizes.queries,
        "facts": sizes.facts / sizes.queries,
        "bytes": sizes.plain_bytes / sizes.queries,
        "bytes after zstd": sizes.packed_bytes / sizes.queries,
    }
    for what, figure in figures.items():
        made.add_row(what, f"{figure:,.1f}")
    rate = found.spread("log", "queries_per_s").median
    figures["records a frame"] = sizes.records / sizes.frames
    figures["durable facts/s at this load"] = rate * figures["facts"]
    made.add_row("records a frame", f"{figures['records a frame']:.1f}")
    made.add_row("durable facts/s at this load", f"{figures['durable facts/s at this load']:,.0f}")
    report.add(made, {"log, per query": figures})
