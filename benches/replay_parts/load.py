"""How fast a log becomes tables: rows a second of CPU time, beside what any reading of a log must do.

CPU time of the whole process, with DuckDB's threads. `decode` checks every checksum and decodes every record
into the vocabulary's types, and keeps nothing (the baseline; again as the null run). `poor` loads the same
log, of many small facts; `rich` one of facts with 64 to 256 pages, given as a multiple of decoding that one.
`file` loads into a database file, `sealed` takes Parquet in place of the log's bytes. `count by kind` is what
DuckDB needs for the plainest question about the rows of `poor`.

The run's records are repeated, because a statement costs as much as ten thousand rows, and a log has
millions. What is derived from the facts is not in these figures.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import msgspec
import numpy as np

from benches.common import Arm, Goal, Report, Rounds, Sample, interleave, table
from benches.replay_parts.logs import FRAME_RECORDS, BenchLog
from orbitkv.events import commands, facts
from orbitkv.events.codec import decode_records, encode_records
from orbitkv.events.frame import Chain, SegmentHeader, SegmentName, encode_header
from orbitkv.events.outcomes import EvictionReason, Origin, PageClass
from orbitkv.events.record import Record
from replay.log import Log
from replay.warehouse.database import opened
from replay.warehouse.loading import Loader
from replay.warehouse.sealed import SealedFolder
from replay.warehouse.sealing import seal_log
from replay.warehouse.tables import TABLES

POOR_FACTS = 1_000_000
SEGMENT_RECORDS = 150_000
"""Some 30 MB."""
RICH_RECORDS = 6_000
ROWS_PER_S_MIN = 1_500_000
_LOG_ID = b"a log for benches"[:16]
_PARTS = ((0, 64, 0, 256),)


@attrs.frozen
class _Arms:
    poor: Path
    rich: Path
    sealed: Path
    folder: Path
    rows: dict[str, int]
    connection: Any
    """To the rows of `poor`."""


def measure(report: Report, log: BenchLog, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as directory, opened(None) as connection:
        arms = _prepared(Path(directory), log, connection)
        found = interleave(
            {
                "decode": _decode(arms.poor),
                "decode again": _decode(arms.poor),
                "decode rich": _decode(arms.rich),
                "poor": _load(arms.poor, arms, None),
                "rich": _load(arms.rich, arms, None),
                "file": _load(arms.poor, arms, arms.folder / "bench.duckdb"),
                "sealed": _load(arms.poor, arms, None, SealedFolder(arms.sealed)),
                "count by kind": _count(arms),
            },
            rounds=rounds,
        )
        _tell(report, arms, found)


def _tell(report: Report, arms: _Arms, found: Rounds) -> None:
    rows = table("load", "arm", "CPU s", "times decode", "rows/s")
    figures: dict[str, object] = {}
    for arm in found.samples:
        baseline = "decode rich" if arm == "rich" else "decode"
        of_rows = arms.rows["rich" if "rich" in arm else "poor"]
        spread, ratio = found.spread(arm, "s"), found.ratio(arm, baseline, "s")
        rate = of_rows / spread.median
        loads = arm in ("poor", "rich", "file", "sealed")
        rows.add_row(arm, spread.text(), ratio.text(1), f"{rate:,.0f}" if loads else "")
        figures[f"load: {arm}"] = {"s": spread.median, "times_decode": ratio.median, "rows_per_s": rate}
    report.add(rows, figures)
    counts = found.ratio("poor", "count by kind", "s")
    report.condition(
        "load",
        f"{arms.rows['poor']:,} rows of small facts, {arms.rows['rich']:,} of large ones;"
        f" loading takes {counts.text(0)} times as long as counting by kind",
    )
    for arm in ("poor", "rich"):
        rate = arms.rows[arm] / found.spread(arm, "s").median
        report.goal(Goal(f"load, {arm} in pages, rows/s of CPU", rate, ROWS_PER_S_MIN))


# --- arms -------------------------------------------------------------------------------------------------


def _decode(path: Path) -> Arm:
    def run(_: int) -> Sample:
        started = time.process_time_ns()
        for segment in Log.open(path).segments():
            for frame in segment.record_frames():
                decode_records(frame.payload)
        return _sample(started)

    return run


def _load(path: Path, arms: _Arms, database: Path | None, sealed: SealedFolder | None = None) -> Arm:
    nowhere = SealedFolder(arms.folder / "nothing is sealed here")

    def run(_: int) -> Sample:
        if database is not None:
            database.unlink(missing_ok=True)
        started = time.process_time_ns()
        with opened(database) as connection:
            log = Log.open(path)
            Loader(connection, sealed or nowhere).load(log)
            assert not log.troubles, "the log is healthy"
        return _sample(started)

    return run


def _count(arms: _Arms) -> Arm:
    def run(_: int) -> Sample:
        started = time.process_time_ns()
        arms.connection.execute("SELECT cause, count(*) FROM records GROUP BY cause").fetchall()
        for each in TABLES:
            arms.connection.execute(f"SELECT count(seq) FROM {each.name}").fetchall()
        return _sample(started)

    return run


def _sample(started_ns: int) -> Sample:
    return {"s": (time.process_time_ns() - started_ns) / 1e9}


# --- logs -------------------------------------------------------------------------------------------------


def _prepared(folder: Path, log: BenchLog, connection: Any) -> _Arms:
    _write(folder / "poor", _repeated(log.records))
    rich = [_rich_record(seq) for seq in range(1, RICH_RECORDS + 1)]
    _write(folder / "rich", iter([rich]))
    seal_log(folder / "poor", SealedFolder(folder / "sealed"))
    Loader(connection, SealedFolder(folder / "none")).load(Log.open(folder / "poor"))
    with opened(None) as other:
        Loader(other, SealedFolder(folder / "none")).load(Log.open(folder / "rich"))
        rows = {"poor": _rows(connection), "rich": _rows(other)}
    return _Arms(folder / "poor", folder / "rich", folder / "sealed", folder, rows, connection)


def _rows(connection: Any) -> int:
    names = ("records", *(each.name for each in TABLES))
    return sum(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names)


def _repeated(records: list[Record]) -> Iterator[list[Record]]:
    """The records again and again, as one incarnation; a segment's worth at a time."""
    facts_each = sum(len(record.events) for record in records)
    segment: list[Record] = []
    for copy in range(-(-POOR_FACTS // facts_each)):
        ahead, later_ns = copy * len(records), copy * records[-1].at_ns
        for each in records:
            segment.append(msgspec.structs.replace(each, seq=each.seq + ahead, at_ns=each.at_ns + later_ns))
            if len(segment) == SEGMENT_RECORDS:
                yield segment
                segment = []
    if segment:
        yield segment


def _write(path: Path, segments: Iterator[list[Record]]) -> None:
    path.mkdir()
    previous = 0
    for number, records in enumerate(segments, 1):
        header = SegmentHeader(
            log_id=_LOG_ID,
            incarnation=1,
            number=number,
            first_seq=records[0].seq,
            wall_offset_ns=0,
            kernel_revision=0,
            previous_checksum=previous,
        )
        head = encode_header(header)
        chain = Chain.after_header(head, records[0].seq)
        data = bytearray(head + chain.snapshot_head(b"none", synced_seq=0) + b"none")
        for start in range(0, len(records), FRAME_RECORDS):
            frame = records[start : start + FRAME_RECORDS]
            payload = encode_records(frame)
            data += chain.records_head(frame[-1].seq, payload, synced_seq=0) + payload
        data += chain.closing_head(synced_seq=0)
        previous = chain.checksum
        (path / str(SegmentName(1, number))).write_bytes(data)


def _rich_record(seq: int) -> Record:
    """A prompt of 256 pages, of which 64 are read from the SSD for it, and pages that give way."""
    pages, some = _column(256, seq), _column(64, seq)
    operation = 1 << 32 | seq
    return Record(
        seq,
        seq * 1_000_000,
        commands.Tick(),
        (
            facts.QueryOpened(operation, 1, 1, f"request-{seq}", 0, 0, 256, 1 << 28, 1 << 40, _PARTS),
            facts.QueryGranted(operation, 1 << 28, (256,), b"", pages),
            facts.PagesTouched(pages),
            facts.PagesEvicted(some, PageClass.RETAINED, EvictionReason.CAPACITY),
            facts.BuffersFreed(some),
            facts.ReadsQueued(operation, seq * 64, some, some, Origin.DEMAND),
            facts.BuffersAllocated(some, some, _wide(64, seq), 1 << 20, 1 << 20, seq * 64),
            facts.ReadsSubmitted(some, some, some, Origin.DEMAND),
            facts.ReadsLanded(some, some, some),
            facts.PagesInserted(some, PageClass.RETAINED, Origin.DEMAND),
        ),
    )


def _column(count: int, first: int) -> bytes:
    return np.arange(first, first + count, dtype="<u4").tobytes()


def _wide(count: int, first: int) -> bytes:
    return (np.arange(first, first + count, dtype="<u8") << 20).tobytes()
