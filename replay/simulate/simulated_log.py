"""A simulated run's log: the same bytes that a manager writes, in memory and, if wished, as files.

It is written as a journal writes: batches of records in frames, segments that begin with a snapshot, a
point up to which all is synced, oldest segments dropped. A crash leaves what was written, a power loss
cuts the bytes anywhere behind the synced point, and the successor repairs that end and closes the chain.
It writes only into an empty directory, so that no real log is ever touched.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import attrs

from orbitkv.events import commands
from orbitkv.events.codec import decode_records, encode_records
from orbitkv.events.frame import (
    LOG_ID_BYTES,
    Chain,
    FrameKind,
    LogError,
    SegmentHeader,
    SegmentName,
    encode_header,
)
from orbitkv.events.record import Record
from orbitkv.events.scan import Scan
from orbitkv.manager.kernel import KERNEL_REVISION, State, fold, new_state, restore, snapshot, step

BATCH_RECORDS = 16
"""Most records of one frame."""


@attrs.define
class Segment:
    """One segment as far as it is written."""

    name: SegmentName
    data: bytearray
    synced_bytes: int


class SimulatedLog:
    """Give it every record of a run, in order; `close` ends it. Holds one incarnation's segments."""

    def __init__(self, seed: int, directory: Path | None = None) -> None:
        """Raises LogError when the directory holds anything, or cannot be made."""
        if directory is not None:
            _make_empty(directory)
        self.directory = directory
        self.segments: list[Segment] = []
        """Of the current incarnation, oldest first; those that were dropped are not in it."""
        self.synced_seq = 0
        self._log_id = (seed & (1 << 8 * LOG_ID_BYTES) - 1).to_bytes(LOG_ID_BYTES, "little")
        self._pending: list[Record] = []
        self._chain = Chain(0, 1)
        self._first_seq = 1

    @property
    def first_seq(self) -> int:
        """Of the segment that is being written."""
        return self._first_seq

    # --- writing ----------------------------------------------------------------------------------------

    def begin(self, incarnation: int) -> None:
        """The first segment of an incarnation."""
        self.segments.clear()
        self._chain.next_seq, self.synced_seq = 1, 0
        self._begin_segment(SegmentName(incarnation, 1), new_state())

    def append(self, record: Record) -> None:
        self._pending.append(record)
        if len(self._pending) == BATCH_RECORDS:
            self.write()

    def write(self) -> None:
        """What was appended is written: a crash of the process takes nothing of it."""
        if self._pending:
            payload = encode_records(self._pending)
            head = self._chain.records_head(self._pending[-1].seq, payload, synced_seq=self.synced_seq)
            self.segments[-1].data += head + payload
            self._pending.clear()

    def sync(self) -> None:
        """What was appended is on the medium: a power loss takes nothing of it."""
        self.write()
        last = self.segments[-1]
        last.synced_bytes, self.synced_seq = len(last.data), self._chain.next_seq - 1

    def rotate(self, state: State) -> None:
        """Seal the segment and begin the next with this state, that of the last record."""
        self.sync()
        self._seal()
        name = self.segments[-1].name
        self._begin_segment(SegmentName(name.incarnation, name.number + 1), state)

    def drop_oldest(self) -> None:
        """Retention: the oldest segment of this incarnation, and all before it, are gone."""
        dropped = self.segments.pop(0).name
        if self.directory is not None:
            for path in self.directory.iterdir():
                if path.name <= str(dropped):
                    path.unlink()

    def close(self) -> None:
        """The run is over, or broke off: everything is on disk, the last segment as it is."""
        self.write()
        if self.segments:
            self._file_away(self.segments[-1])

    def discard(self) -> None:
        """Nobody wants the files."""
        if self.directory is not None:
            shutil.rmtree(self.directory)

    # --- death and what follows it ------------------------------------------------------------------------

    def lose_power(self, random: Random) -> None:
        """Cut the last segment at a random byte behind its synced point."""
        self.write()
        last = self.segments[-1]
        del last.data[random.randint(last.synced_bytes, len(last.data)) :]

    def repair(self) -> bool:
        """As a successor does first: cut off a frame that is not whole. Whether there was one."""
        last = self.segments[-1]
        scan = Scan(bytes(last.data))
        for _ in scan:
            pass
        ending = scan.ending
        self._chain = Chain(ending.checksum, ending.next_seq)
        del last.data[ending.offset :]
        return ending.lost_bytes > 0

    def close_chain(self, folded: State, *, lost_tail: bool) -> Record | None:
        """As a successor does next: decide the closing record on the folded state, append it, seal."""
        closing = step(folded, folded.at_ns, commands.CloseIncarnation(lost_tail=lost_tail))
        if isinstance(closing, Record):
            self.append(closing)
        self.sync()
        self._seal()
        return closing if isinstance(closing, Record) else None

    # --- reading back -----------------------------------------------------------------------------------

    def records(self, first_segment: int = 0) -> Iterator[Record]:
        """Of the written bytes from this segment on."""
        for segment in self.segments[first_segment:]:
            for frame in Scan(bytes(segment.data)):
                if frame.kind is FrameKind.RECORDS:
                    yield from decode_records(frame.payload)

    def folded(self, first_segment: int = 0) -> State:
        """The state that the written bytes lead to, from this segment's snapshot on."""
        self.write()
        opening = next(iter(Scan(bytes(self.segments[first_segment].data))))
        state = restore(bytes(opening.payload))
        for record in self.records(first_segment):
            fold(state, record)
        return state

    # --- segments ---------------------------------------------------------------------------------------

    def _begin_segment(self, name: SegmentName, state: State) -> None:
        header = encode_header(
            SegmentHeader(
                log_id=self._log_id,
                incarnation=name.incarnation,
                number=name.number,
                first_seq=self._chain.next_seq,
                wall_offset_ns=0,
                kernel_revision=KERNEL_REVISION,
                previous_checksum=self._chain.checksum,
            )
        )
        self._chain = Chain.after_header(header, self._chain.next_seq)
        self._first_seq = self._chain.next_seq
        opening = snapshot(state)
        head = self._chain.snapshot_head(opening, synced_seq=self.synced_seq)
        data = bytearray(header + head + opening)
        self.segments.append(Segment(name, data, len(data)))

    def _seal(self) -> None:
        last = self.segments[-1]
        last.data += self._chain.closing_head(synced_seq=self.synced_seq)
        last.synced_bytes = len(last.data)
        self._file_away(last)

    def _file_away(self, segment: Segment) -> None:
        if self.directory is not None:
            (self.directory / str(segment.name)).write_bytes(segment.data)


def _make_empty(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        occupied = next(directory.iterdir(), None)
    except OSError as error:
        raise LogError(
            f"no log can be written to {directory}: {error.strerror}; name another directory with --log"
        ) from error
    if occupied is not None:
        raise LogError(
            f"no log is written to {directory}: it holds {occupied.name}, and a simulated log never "
            "mixes with other files; name an empty or a new directory with --log"
        )
