"""Writes the trace-event JSON that the Perfetto UI opens, event by event, so that memory stays bounded.

Knows the format and nothing of logs. Slices are pairs of B and E on a track, closed in the reverse order
of their opening, so that they nest; times are handed in rising.
"""

from collections.abc import Mapping
from typing import Any, BinaryIO, TypeAlias

import attrs
import msgspec

Args: TypeAlias = Mapping[str, Any]

_encode = msgspec.json.Encoder().encode
_NS_PER_US = 1000


@attrs.define(slots=True, eq=False)
class Track:
    """A line of slices in the UI: what the format calls a thread."""

    pid: int
    tid: int
    open_slices: int = 0


class TraceWriter:
    """Give it events in the order of time; times are nanoseconds from 0 on."""

    def __init__(self, file: BinaryIO) -> None:
        self.events = 0
        self._file = file
        self._next_id = 1
        """Of processes and tracks: one row of numbers, as a thread numbered like its process counts as its
        main one."""
        self._next_flow = 1
        self._open: dict[Track, None] = {}
        file.write(b'{"displayTimeUnit":"ms","traceEvents":[')

    def process(self, name: str, order: int) -> int:
        """A group of tracks; gives its pid."""
        pid = self._number()
        self._metadata("process_name", pid, pid, {"name": name})
        self._metadata("process_sort_index", pid, pid, {"sort_index": order})
        return pid

    def track(self, pid: int, name: str, order: int) -> Track:
        track = Track(pid, self._number())
        self._metadata("thread_name", pid, track.tid, {"name": name})
        self._metadata("thread_sort_index", pid, track.tid, {"sort_index": order})
        return track

    def begin(self, track: Track, at_ns: int, name: str, args: Args | None = None) -> None:
        track.open_slices += 1
        self._open[track] = None
        self._event("B", track, at_ns, {"name": name, "cat": "orbitkv", "args": args or {}})

    def end(self, track: Track, at_ns: int, args: Args | None = None) -> None:
        """Close the slice that was opened last."""
        assert track.open_slices, "only what began can end"
        track.open_slices -= 1
        if not track.open_slices:
            del self._open[track]
        self._event("E", track, at_ns, {"args": args} if args else {})

    def instant(self, track: Track, at_ns: int, name: str, args: Args | None = None) -> None:
        self._event("i", track, at_ns, {"name": name, "cat": "orbitkv", "s": "t", "args": args or {}})

    def counter(self, pid: int, at_ns: int, name: str, value: int) -> None:
        self._write({"ph": "C", "pid": pid, "ts": _us(at_ns), "name": name, "args": {"value": value}})

    def flow(self, name: str, source: Track, source_ns: int, target: Track, target_ns: int) -> None:
        """An arrow between the slices that are open there at these times."""
        number, self._next_flow = self._next_flow, self._next_flow + 1
        common = {"name": name, "cat": "orbitkv", "id": number}
        self._event("s", source, source_ns, common)
        self._event("f", target, target_ns, {**common, "bp": "e"})

    def end_all(self, at_ns: int, args: Args) -> None:
        """Close what is open, as the log says no more of it."""
        for track in list(self._open):
            while track.open_slices:
                self.end(track, at_ns, args)

    def finish(self, about: Args) -> None:
        """`about` goes to where the UI shows what it knows of the file."""
        self._file.write(b'\n],"otherData":' + _encode(about) + b"}\n")

    def _number(self) -> int:
        number, self._next_id = self._next_id, self._next_id + 1
        return number

    def _metadata(self, name: str, pid: int, tid: int, args: Args) -> None:
        self._write({"ph": "M", "pid": pid, "tid": tid, "ts": 0, "name": name, "args": args})

    def _event(self, kind: str, track: Track, at_ns: int, fields: Args) -> None:
        self._write({"ph": kind, "pid": track.pid, "tid": track.tid, "ts": _us(at_ns), **fields})

    def _write(self, event: Args) -> None:
        self._file.write((b",\n" if self.events else b"\n") + _encode(event))
        self.events += 1


def _us(at_ns: int) -> float:
    return at_ns / _NS_PER_US
