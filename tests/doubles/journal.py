"""A journal in memory, which can stall, fill up, and lose what was not written."""

import attrs
import trio

from orbitkv.events.codec import decode_records
from orbitkv.events.record import Record
from orbitkv.manager.ports import JournalFull


@attrs.frozen
class Frame:
    first_seq: int
    last_seq: int
    payload: bytes


@attrs.define
class Segment:
    snapshot: bytes
    next_seq: int
    frames: list[Frame] = attrs.Factory(list)


class MemoryJournal:
    """Implements `ports.Journal`. A payload is a list of records as `events.codec` encodes it.

    It asserts what a log promises: frames follow each other without a gap, and nothing is appended
    after the journal refused a frame until it has room again.
    """

    def __init__(self, *, lag_bytes_max: int = 1 << 20, frames_per_segment: int = 1 << 30) -> None:
        self.segments: list[Segment] = [Segment(b"", 1)]
        """What stands in files."""
        self.closed = False
        self._waiting: list[Frame | Segment] = []
        self._lag_bytes_max = lag_bytes_max
        self._frames_per_segment = frames_per_segment
        self._frames_in_segment = 0
        self._next_seq = 1
        self._written_seq = 0
        self._stalled = False
        self._trouble = ""
        self.housekeeping_trouble = ""
        """To be set by a test."""
        self._progress = trio.Event()

    # --- what can go wrong ----------------------------------------------------------------------------

    def stall(self) -> None:
        """The disk takes its time: frames wait in memory until `resume()`."""
        self._stalled = True

    def fill(self, reason: str = "no space left on device: free space or lower log_bytes_max") -> None:
        """The disk is full: as a stall, and the journal says so, until `resume()`."""
        self._stalled = True
        self._trouble = reason

    def resume(self) -> None:
        self._stalled = False
        self._trouble = ""
        self._write()

    def crash(self) -> list[Record]:
        """What a successor finds: the records of written frames. Frames in memory are gone."""
        self._waiting.clear()
        self.closed = True
        return self.records

    @property
    def frames(self) -> list[Frame]:
        """Written ones, over all segments."""
        return [frame for segment in self.segments for frame in segment.frames]

    @property
    def records(self) -> list[Record]:
        """Those of the written frames."""
        return [record for frame in self.frames for record in decode_records(frame.payload)]

    # --- the port --------------------------------------------------------------------------------------

    def append(self, first_seq: int, last_seq: int, payload: bytes) -> None:
        assert not self.closed, "the journal is closed"
        assert first_seq == self._next_seq, f"expected seq {self._next_seq}, got {first_seq}"
        assert last_seq >= first_seq, f"a frame from {first_seq} to {last_seq}"
        if self.lag_bytes + len(payload) > self._lag_bytes_max:
            raise JournalFull(self._trouble or "the log's disk is too slow")
        self._next_seq = last_seq + 1
        self._frames_in_segment += 1
        self._waiting.append(Frame(first_seq, last_seq, bytes(payload)))
        self._write()

    @property
    def segment_full(self) -> bool:
        return self._frames_in_segment >= self._frames_per_segment

    def roll(self, snapshot: bytes, next_seq: int) -> None:
        assert next_seq == self._next_seq, f"a segment must begin at {self._next_seq}, not {next_seq}"
        self._frames_in_segment = 0
        self._waiting.append(Segment(snapshot, next_seq))
        self._write()

    async def written(self, seq: int) -> None:
        await trio.lowlevel.checkpoint()
        while self._written_seq < seq:
            await self._progress.wait()

    @property
    def written_seq(self) -> int:
        return self._written_seq

    @property
    def lag_bytes(self) -> int:
        return sum(len(waiting.payload) for waiting in self._waiting if isinstance(waiting, Frame))

    @property
    def log_bytes(self) -> int:
        return sum(len(frame.payload) for frame in self.frames)

    @property
    def trouble(self) -> str:
        return self._trouble

    async def aclose(self) -> None:
        self.resume()
        self.closed = True

    def _write(self) -> None:
        if self._stalled:
            return
        for waiting in self._waiting:
            if isinstance(waiting, Segment):
                self.segments.append(waiting)
            else:
                self.segments[-1].frames.append(waiting)
                self._written_seq = waiting.last_seq
        self._waiting.clear()
        self._progress.set()
        self._progress = trio.Event()
