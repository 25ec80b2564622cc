"""A log as a trace for the Perfetto UI: requests, sessions, SSD traffic and budgets on one line of time.

`python -m replay perfetto LOG -o trace.json`. Goes through the log once and keeps only what is open. Tells
what the records say and judges nothing.
"""

from pathlib import Path
from typing import BinaryIO

import attrs

from orbitkv.events.frame import SegmentHeader
from orbitkv.events.record import Record
from orbitkv.manager import kernel
from orbitkv.manager.kernel import State
from replay.fold import words
from replay.log import Log, LogSegment, Progress
from replay.perfetto.counters import Counters
from replay.perfetto.devices import ManagerTracks, StoreTracks
from replay.perfetto.requests import RequestTracks
from replay.perfetto.trace import TraceWriter
from replay.timeline import wall_time

_GROUPS = ("budgets", "requests", "SSD", "manager")
"""What an incarnation's tracks are grouped by: each is a process in the UI."""
NOTES_MAX = 100
"""A log whose every fact is wrong is told with so many of them."""


@attrs.define(slots=True)
class Traced:
    log: Log
    records: int = 0
    events: int = 0
    incarnations: list[int] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)
    """What the trace does not show, beside the troubles and notes of the log."""

    def note(self, what: str) -> None:
        if len(self.notes) < NOTES_MAX:
            self.notes.append(what)
        elif len(self.notes) == NOTES_MAX:
            self.notes.append(f"and more; only the first {NOTES_MAX} such notes are kept")


def write_trace(path: Path, file: BinaryIO, progress: Progress | None = None) -> Traced:
    """Raises LogError. What `file` cannot take is an OSError."""
    log = Log.open(path)
    traced = Traced(log)
    writer = TraceWriter(file)
    told: _Incarnation | None = None
    origin_ns: int | None = None
    begins = ""
    done_bytes = 0
    for segment in log.segments():
        header = segment.header
        if told is not None and not told.goes_on(segment):
            told.finish()
            told = None
        for frame in segment.frames():
            if told is None:
                wall_ns = header.wall_offset_ns + frame.records[0].at_ns
                if origin_ns is None:
                    origin_ns, begins = wall_ns, wall_time(header, frame.records[0].at_ns).isoformat()
                # A clock that was set back between two incarnations must not give times before the first.
                shift_ns = max(header.wall_offset_ns - origin_ns, -frame.records[0].at_ns)
                told = _Incarnation(writer, segment, shift_ns, len(traced.incarnations), traced)
                traced.incarnations.append(header.incarnation)
            for record in frame.records:
                told.take(record)
            traced.records += len(frame.records)
            if progress is not None:
                progress(done_bytes + segment.size_bytes * frame.offset // segment.expanded_bytes)
        if told is not None and not segment.whole:
            told.finish()
            told = None
        done_bytes += segment.size_bytes
    if told is not None:
        told.finish()
    writer.finish(_about(traced, begins))
    traced.events = writer.events
    return traced


def _about(traced: Traced, begins: str) -> dict[str, object]:
    return {
        "log": str(traced.log.path),
        "time 0": begins,
        "clock": "the manager's monotonic clock; incarnations are placed by the wall clock at their start",
        "records": traced.records,
        "incarnations": traced.incarnations,
        "notes": [*traced.log.notes, *traced.notes],
        "troubles": [str(trouble) for trouble in traced.log.troubles],
    }


class _Incarnation:
    """A run of records of one incarnation without a gap."""

    def __init__(
        self, writer: TraceWriter, segment: LogSegment, shift_ns: int, order: int, traced: Traced
    ) -> None:
        header = segment.header
        self._writer = writer
        self._shift_ns = shift_ns
        self._traced = traced
        self._header: SegmentHeader = header
        self._next_seq = header.first_seq
        since = f" from seq {header.first_seq}" if header.first_seq > 1 else ""
        pids = {
            group: writer.process(
                f"incarnation {header.incarnation}{since}: {group}", order * len(_GROUPS) + place
            )
            for place, group in enumerate(_GROUPS)
        }
        self._requests = RequestTracks(writer, pids["requests"])
        self._others = (
            StoreTracks(writer, pids["SSD"], self._requests.name_of),
            ManagerTracks(writer, pids["manager"]),
        )
        self._counters = Counters(writer, pids["budgets"])
        self._at_ns = 0
        self._state = self._restored(segment)

    def goes_on(self, segment: LogSegment) -> bool:
        header = segment.header
        return (header.log_id, header.incarnation, header.first_seq) == (
            self._header.log_id,
            self._header.incarnation,
            self._next_seq,
        )

    def take(self, record: Record) -> None:
        at_ns = self._at_ns = record.at_ns + self._shift_ns
        self._fold(record, at_ns)
        for event in record.events:
            try:
                self._requests.take(event, at_ns, record.seq)
                for tracks in self._others:
                    tracks.take(event, at_ns, record.seq)
            except ValueError as error:
                self._note(f"seq {record.seq} is shown in part: {words(error)}")
        self._next_seq = record.seq + 1

    def finish(self) -> None:
        self._writer.end_all(self._at_ns, {"end": "open where the log ends"})
        self._counters.finish(self._at_ns)

    def _restored(self, segment: LogSegment) -> State | None:
        try:
            if segment.snapshot is None:
                raise ValueError("it cannot be read")
            return kernel.restore(segment.snapshot)
        except Exception as error:
            self._note(f"no budgets are shown from seq {self._next_seq} on, as its snapshot: {words(error)}")
            return None

    def _fold(self, record: Record, at_ns: int) -> None:
        """Takes the state on and its counters; what the kernel cannot follow leaves the rest standing."""
        state = self._state
        if state is None:
            return
        try:
            if record.seq == self._header.first_seq and state.started:
                self._counters.begin(state, at_ns)
            kernel.fold(state, record)
        except Exception as error:
            self._state = None
            self._note(f"no budgets are shown from seq {record.seq} on, as it does not fold: {words(error)}")
            return
        self._counters.take(state, record, at_ns)

    def _note(self, what: str) -> None:
        self._traced.note(f"incarnation {self._header.incarnation}: {what}")
