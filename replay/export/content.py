"""What an exported log holds: the original's content as it is, or with pseudonyms in it."""

from orbitkv.events.frame import SegmentHeader
from orbitkv.events.record import Record
from orbitkv.manager import kernel
from replay.export.names import Pseudonyms
from replay.export.records import RecordRewriter
from replay.export.snapshots import rewritten_snapshot
from replay.export.spaces import Spaces
from replay.log import Log, Progress


class Unchanged:
    """The content as it is."""

    def prepare(self, log: Log, progress: Progress | None) -> int:
        """What must be known before the first record. Gives the bytes of the log dealt with."""
        return 0

    def is_behind(self, header: SegmentHeader, seq: int = 0) -> bool:
        """Whether this segment, or this record of it, is left out: it was not there yet in `prepare`."""
        return False

    def log_id(self, log_id: bytes) -> bytes:
        return log_id

    def snapshot(self, data: bytes) -> bytes:
        """Raises whatever a broken one leads to."""
        return data

    def records(self, records: list[Record]) -> list[Record] | None:
        """None: they stand in the copy with the very bytes that they have."""
        return None


class Pseudonymised(Unchanged):
    def __init__(self, pseudonyms: Pseudonyms) -> None:
        self._pseudonyms = pseudonyms
        self._spaces = Spaces(pseudonyms)
        self._rewriter = RecordRewriter(pseudonyms, self._spaces)
        self._end = (0, 0, 0)
        """Incarnation, segment, and the seq behind its last record, up to which the spaces are known."""

    def prepare(self, log: Log, progress: Progress | None) -> int:
        done_bytes, at = 0, (0, 0)
        for segment in log.segments():
            header = segment.header
            if log.troubles or segment.snapshot is None:
                break
            self._end = header.incarnation, header.number, header.first_seq
            if at != (header.incarnation, header.first_seq):
                try:
                    self._spaces.begin(kernel.restore(segment.snapshot))
                except Exception:
                    break  # The copy comes to the same place, and says so there.
            at = header.incarnation, header.first_seq
            for frame in segment.frames():
                self._spaces.follow(frame.records)
                at = header.incarnation, frame.records[-1].seq + 1
                if progress is not None:
                    progress(done_bytes + segment.size_bytes * frame.offset // segment.expanded_bytes)
            self._end = header.incarnation, header.number, at[1]
            done_bytes += segment.size_bytes
        return done_bytes

    def is_behind(self, header: SegmentHeader, seq: int = 0) -> bool:
        return (header.incarnation, header.number, seq) >= self._end

    def log_id(self, log_id: bytes) -> bytes:
        return self._pseudonyms.log_id(log_id)

    def snapshot(self, data: bytes) -> bytes:
        return rewritten_snapshot(kernel.restore(data), self._pseudonyms, self._spaces)

    def records(self, records: list[Record]) -> list[Record] | None:
        return self._rewriter.records(records)
