"""A simulated run's records as a log on disk, so that every tool that reads logs reads runs too.

One segment for each incarnation, one frame for each record; nothing is synced or compressed. It only
writes, and only into an empty directory, so that no real log is ever touched.
"""

from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from orbitkv.events import commands
from orbitkv.events.codec import encode_records
from orbitkv.events.frame import LOG_ID_BYTES, Chain, LogError, SegmentHeader, SegmentName, encode_header
from orbitkv.events.record import Record
from orbitkv.manager.kernel import KERNEL_REVISION, new_state, snapshot


class SimulatedLog:
    """Give it every record of a run, in order. Use it as a context: leaving it closes the last segment."""

    def __init__(self, directory: Path, seed: int) -> None:
        """Raises LogError when the directory holds anything, or cannot be made."""
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
        self._directory = directory
        self._log_id = seed.to_bytes(LOG_ID_BYTES, "little", signed=True)
        self._file: BinaryIO | None = None
        self._chain = Chain(0, 1)

    def __enter__(self) -> "SimulatedLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_segment()

    def append(self, record: Record) -> None:
        """One record; a Start begins the next incarnation's segment. Raises OSError."""
        if isinstance(record.cause, commands.Start):
            self._end_segment()
            self._begin_segment(record.cause.incarnation)
        assert self._file is not None, "the first record of a run is Start"
        payload = encode_records([record])
        head = self._chain.records_head(record.seq, payload, synced_seq=record.seq - 1)
        self._file.write(head)
        self._file.write(payload)

    def _begin_segment(self, incarnation: int) -> None:
        header = encode_header(
            SegmentHeader(
                log_id=self._log_id,
                incarnation=incarnation,
                number=1,
                first_seq=1,
                wall_offset_ns=0,
                kernel_revision=KERNEL_REVISION,
                previous_checksum=self._chain.checksum,
            )
        )
        self._file = (self._directory / str(SegmentName(incarnation, 1))).open("xb")
        self._chain = Chain.after_header(header, 1)
        state = snapshot(new_state())
        head = self._chain.snapshot_head(state, synced_seq=0)
        self._file.write(header + head + state)

    def _end_segment(self) -> None:
        if self._file is None:
            return
        self._file.write(self._chain.closing_head(synced_seq=self._chain.next_seq - 1))
        self._file.close()
        self._file = None
