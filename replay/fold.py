"""Takes the kernel's state through a log by applying its facts; compares each snapshot on the way.

`python -m replay fold LOG`; also the walk in which `replay.verify` works. Reads no clock and draws no
random number: two walks over the same bytes find the same.
"""

from pathlib import Path

from orbitkv.events.frame import SegmentHeader
from orbitkv.events.record import Record
from orbitkv.manager import kernel
from orbitkv.manager.kernel import State
from replay.findings import Difference, Incarnation, Report
from replay.log import Log, LogFrame, LogSegment, Progress
from replay.totals import totals_of
from replay.wording.lines import struct_text


class Disagreement(Exception):
    """The kernel cannot follow the log here."""

    def __init__(self, what: str, expected: str, got: str, record: Record | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.expected = expected
        self.got = got
        self.record = record

    def at(self, segment: LogSegment) -> Difference:
        return Difference(
            path=segment.path,
            incarnation=segment.header.incarnation,
            seq=self.record.seq if self.record else segment.header.first_seq,
            cause=struct_text(self.record.cause) if self.record else "",
            what=self.what,
            expected=self.expected,
            got=self.got,
        )


class Folder:
    """How a state follows a log. This one believes the facts; all methods may raise Disagreement."""

    def decides(self, header: SegmentHeader) -> bool:
        """Whether records under this header are decided again."""
        return False

    def advance(self, state: State, frame: LogFrame) -> None:
        for record in frame.records:
            try:
                kernel.fold(state, record)
            except Exception as error:
                raise Disagreement(
                    "its facts do not fit the state", facts_text(record), words(error), record
                ) from error


def walk(log: Log, folder: Folder, progress: Progress | None = None) -> Report:
    """Follow the log to its end or to the first difference. Raises LogError."""
    report = Report(log)
    state: State | None = None
    found: Incarnation | None = None
    done_bytes = 0
    for segment in log.segments():
        if found is None or found.incarnation != segment.header.incarnation:
            _finish(found, state)
            found = Incarnation.of(segment.header, decided=folder.decides(segment.header))
            report.incarnations.append(found)
            state = None
        try:
            state = _begin(found, segment, state)
            for frame in segment.frames():
                assert state is not None, "a segment has frames only behind its snapshot"
                folder.advance(state, frame)
                found.saw(frame.records)
                if progress is not None:
                    progress(done_bytes + segment.size_bytes * frame.offset // segment.expanded_bytes)
        except Disagreement as disagreement:
            report.difference = disagreement.at(segment)
            return report
        if not segment.whole:
            _finish(found, state)
            state = None
        done_bytes += segment.size_bytes
    _finish(found, state)
    return report


def fold_log(path: Path, progress: Progress | None = None) -> Report:
    """Raises LogError."""
    return walk(Log.open(path), Folder(), progress)


def _begin(found: Incarnation, segment: LogSegment, state: State | None) -> State | None:
    """The state before the segment's first record; the snapshot must agree with a state that was folded."""
    found.segments += 1
    if segment.snapshot is None:
        return None
    try:
        restored = kernel.restore(segment.snapshot)
    except Exception as error:
        raise Disagreement("its snapshot cannot be restored", "a state", words(error)) from error
    if state is None or found.next_seq != segment.header.first_seq:
        return restored
    expected, got = digest_text(restored), digest_text(state)
    if expected != got:
        raise Disagreement(
            "the snapshot is not the state that the records before it lead to",
            f"{restored!r} digest {expected}",
            f"{state!r} digest {got}",
        )
    found.snapshots_compared += 1
    return state


def _finish(found: Incarnation | None, state: State | None) -> None:
    if found is not None and state is not None:
        found.state = repr(state)
        found.digest = digest_text(state)
        found.totals = totals_of(state)


def digest_text(state: State) -> str:
    return f"{kernel.digest(state):016x}"


def facts_text(record: Record) -> str:
    return " | ".join(struct_text(event) for event in record.events) or "no facts"


def words(error: Exception) -> str:
    """An exception as a reader of the report can use it."""
    return f"{type(error).__name__}: {error}".rstrip(": ")
