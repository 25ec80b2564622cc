"""The SSD, the sessions and the pool on a trace.

A read or a write has a slice from its submission to its end, on the first track of its kind that is free:
as many tracks as there ever were at once, as logs hold millions of reads. Follows facts alone.
"""

from collections.abc import Callable

import numpy as np

from orbitkv.events import facts
from orbitkv.events.facts import Event
from orbitkv.events.outcomes import ReadOutcome, WriteOutcome
from replay.perfetto.trace import TraceWriter, Track
from replay.wording.phrases import name_of
from replay.wording.sentences import sentence


class Lanes:
    """Things of one kind, each on a track of its own while it lasts."""

    def __init__(self, writer: TraceWriter, pid: int, name: str, first_order: int) -> None:
        self._writer = writer
        self._pid = pid
        self._name = name
        self._order = first_order
        self._tracks = 0
        self._free: list[Track] = []
        self._busy: dict[int, Track] = {}

    def begin(self, number: int, at_ns: int, name: str, args: dict[str, object]) -> None:
        """What began under this number before must have ended in a part of the log that is missing."""
        self.end(number, at_ns, {"end": "not in the log"})
        track = self._free.pop() if self._free else self._track()
        self._busy[number] = track
        self._writer.begin(track, at_ns, name, args)

    def end(self, number: int, at_ns: int, args: dict[str, object]) -> None:
        track = self._busy.pop(number, None)
        if track is not None:
            self._writer.end(track, at_ns, args)
            self._free.append(track)
            self._free.sort(key=lambda each: -each.tid)

    def _track(self) -> Track:
        self._tracks += 1
        return self._writer.track(self._pid, f"{self._name} {self._tracks}", self._order + self._tracks)


class StoreTracks:
    """Reads and writes of the SSD."""

    def __init__(self, writer: TraceWriter, pid: int, request_of: Callable[[int], str]) -> None:
        self._writer = writer
        self._queue = writer.track(pid, "read queue", 0)
        self._reads = Lanes(writer, pid, "read", 0)
        self._writes = Lanes(writer, pid, "write", 1 << 20)
        self._queued: dict[int, tuple[int, int, int]] = {}
        """Read -> its operation and page, and when it was queued."""
        self._request_of = request_of

    def take(self, event: Event, at_ns: int, seq: int) -> None:
        match event:
            case facts.ReadsQueued():
                for read, page in enumerate(_numbers(event.pages), event.read):
                    self._queued[read] = event.operation, page, at_ns
            case facts.ReadsSubmitted():
                for read in _numbers(event.reads):
                    self._submit(read, event, at_ns, seq)
            case facts.ReadsLanded():
                sizes = _numbers(event.read_bytes)
                for read, size in zip(_numbers(event.reads), sizes, strict=True):
                    self._reads.end(read, at_ns, {"end": "landed", "bytes": size, "end_seq": seq})
            case facts.ReadsFailed():
                for read, outcome in zip(_numbers(event.reads), event.outcomes, strict=True):
                    end = ReadOutcome(outcome).name.lower()
                    self._reads.end(read, at_ns, {"end": f"failed ({end})", "end_seq": seq})
            case facts.ReadsDropped():
                for read in _numbers(event.reads):
                    self._queued.pop(read, None)
                self._writer.instant(
                    self._queue, at_ns, "reads dropped", {"seq": seq, "what": sentence(event, at_ns)}
                )
            case facts.WritesSubmitted():
                for slot, buffer in zip(_numbers(event.slots), _numbers(event.buffers), strict=True):
                    self._writes.begin(slot, at_ns, f"write slot {slot}", {"seq": seq, "buffer": buffer})
            case facts.SlotsWritten():
                for slot in _numbers(event.slots):
                    self._writes.end(slot, at_ns, {"end": "written", "end_seq": seq})
            case facts.WritesFailed():
                for slot, outcome in zip(_numbers(event.slots), event.outcomes, strict=True):
                    end = WriteOutcome(outcome).name.lower()
                    self._writes.end(slot, at_ns, {"end": f"failed ({end})", "end_seq": seq})
            case _:
                pass

    def _submit(self, read: int, event: facts.ReadsSubmitted, at_ns: int, seq: int) -> None:
        args: dict[str, object] = {"seq": seq, "read": read}
        queued = self._queued.pop(read, None)
        request = ""
        if queued is not None:
            operation, page, queued_ns = queued
            request = self._request_of(operation)
            args |= {"page": page, "request": request, "queued_us": (at_ns - queued_ns) / 1000}
        self._reads.begin(read, at_ns, f"read {event.origin.name.lower()}", args)


class ManagerTracks:
    """Sessions, and what happened to the pool and to the manager itself."""

    def __init__(self, writer: TraceWriter, pid: int) -> None:
        self._writer = writer
        self._pid = pid
        self._pool = writer.track(pid, "pool", 0)
        self._life = writer.track(pid, "manager", 1)
        self._sessions: dict[int, Track] = {}

    def take(self, event: Event, at_ns: int, seq: int) -> None:
        match event:
            case facts.SessionOpened():
                track = self._writer.track(
                    self._pid, f"session {event.session} (pid {event.pid})", 2 + event.session
                )
                self._sessions[event.session] = track
                self._writer.begin(track, at_ns, f"session {event.session}", _told(event, at_ns, seq))
            case facts.RankRegistered() if event.session in self._sessions:
                name = f"rank {event.rank} of {event.name}"
                self._writer.instant(self._sessions[event.session], at_ns, name, _told(event, at_ns, seq))
            case facts.SessionClosed() if event.session in self._sessions:
                track = self._sessions.pop(event.session)
                self._writer.end(track, at_ns, {"end": event.cause.name.lower(), "end_seq": seq})
            case facts.PagesEvicted() | facts.AllocationFailed() | facts.PagesUnused():
                self._writer.instant(self._pool, at_ns, _kind(event), _told(event, at_ns, seq))
            case (
                facts.IncarnationStarted()
                | facts.ShutdownBegun()
                | facts.IncarnationClosed()
                | facts.StoreChanged()
                | facts.SlotsQuarantined()
            ):
                self._writer.instant(self._life, at_ns, _kind(event), _told(event, at_ns, seq))
            case _:
                pass


def _numbers(column: bytes) -> list[int]:
    numbers: list[int] = np.frombuffer(column, "<u4").tolist()
    return numbers


def _told(event: Event, at_ns: int, seq: int) -> dict[str, object]:
    return {"seq": seq, "what": sentence(event, at_ns)}


def _kind(event: Event) -> str:
    match event:
        case facts.PagesEvicted() | facts.PagesUnused():
            why = event.reason if isinstance(event, facts.PagesEvicted) else event.cause
            what = "evicted" if isinstance(event, facts.PagesEvicted) else "unused"
            return f"{what} ({why.name.lower()})"
        case _:
            return name_of(event)
