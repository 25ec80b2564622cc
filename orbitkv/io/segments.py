"""The log's directory: who may write it, which segments stand in it, what an earlier incarnation left.

Blocking; used at start, and by the journal's thread. Knows frames, not records: what a snapshot or a
payload means is the kernel's business. Readers of a log are in `replay` and never change one; here
the end of a dead incarnation is repaired, and whatever is taken away is reported.

    directory = LogDirectory.open(path)                 locks it
    recovery = directory.recover()                      cuts a torn tail, says so
    directory.close_chain(recovery.predecessor, record) the successor closes the old chain first
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from orbitkv.events.frame import (
    LOG_ID_BYTES,
    SEGMENT_BYTES_MAX,
    Chain,
    DamagedHeader,
    FrameKind,
    LogError,
    NewerFormat,
    NotALog,
    SegmentHeader,
    SegmentName,
    parse_segment_name,
)
from orbitkv.events.scan import Ending, Scan, Stop, expand
from orbitkv.io.segment_writer import (
    TEMPORARY_SUFFIX,
    FileCalls,
    PendingFrame,
    SegmentWriter,
    explain,
    write_file,
)

LOCK_NAME = "lock"
DAMAGED_SUFFIX = ".damaged"


class LogLocked(LogError):
    """Another process writes this log."""


@attrs.frozen(slots=True)
class Cut:
    """Bytes that were taken out of an earlier incarnation's log."""

    path: Path
    offset: int
    lost_bytes: int
    reason: str
    kept_as: Path | None = None
    """Where the bytes are now. None: they held no whole frame, and are gone."""

    def __str__(self) -> str:
        kept = f"; they are kept in {self.kept_as.name}" if self.kept_as else ""
        return f"{self.path}: cut at byte {self.offset}, {self.lost_bytes} bytes: {self.reason}{kept}"


@attrs.frozen(slots=True, kw_only=True)
class Predecessor:
    """The last incarnation that left records: enough to fold its end and to close its chain."""

    path: Path
    header: SegmentHeader
    snapshot: bytes
    """The kernel's state before `header.first_seq`."""
    payloads: tuple[memoryview, ...]
    """The record frames after the snapshot, in order, for `codec.decode_records`."""
    next_seq: int
    """The seq that a closing record must have."""
    sealed: bool
    records_end_offset: int
    records_checksum: int
    """Of the last frame before the closing one."""
    checksum: int
    """Of the last frame."""


@attrs.frozen(slots=True)
class Recovery:
    predecessor: Predecessor | None
    """None: the log is new, or nothing in it can be read."""
    cuts: tuple[Cut, ...]

    @property
    def lost_tail(self) -> bool:
        """For CloseIncarnation: something was cut, so facts may be missing."""
        return bool(self.cuts)


def segment_files(directory: Path) -> list[tuple[SegmentName, Path]]:
    """Segments in log order. Of one that stands there twice (compressed a moment ago), the plain one."""
    found: dict[tuple[int, int], tuple[SegmentName, Path]] = {}
    for entry in sorted(directory.iterdir(), reverse=True):
        name = parse_segment_name(entry.name)
        if name is not None:
            found[name.incarnation, name.number] = (name, entry)
    return [found[place] for place in sorted(found)]


class LogDirectory:
    """A log directory that this process alone may write, until `close`."""

    def __init__(self, path: Path, lock_fd: int, calls: FileCalls) -> None:
        self.path = path
        self.calls = calls
        self.log_id = os.urandom(LOG_ID_BYTES)
        self.previous_checksum = 0
        """Of the frame that the next incarnation's first segment continues."""
        self.last_incarnation = max(
            (name.incarnation for entry in path.iterdir() if (name := _segment_of(entry.name))), default=0
        )
        """The highest incarnation that ever began here; 0 if none did. Its successor must be higher."""
        self._lock_fd = lock_fd

    @classmethod
    def open(cls, path: Path, calls: FileCalls | None = None) -> "LogDirectory":
        """Create the directory if need be (0700) and lock it. Raises LogError, LogLocked."""
        with explained(path):
            if path.exists() and not path.is_dir():
                raise NotALog(f"{path} is a file, and a log is a directory; set log_path to a directory")
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _refuse_foreign_directory(path)
            lock_fd = _lock(path)
            for leftover in path.glob(f"*{TEMPORARY_SUFFIX}"):
                leftover.unlink()
            return cls(path, lock_fd, calls or FileCalls())

    def close(self) -> None:
        os.close(self._lock_fd)

    def recover(self) -> Recovery:
        """Find the last incarnation's end; cut what is torn, set aside what is damaged.

        A segment whose snapshot cannot be read is set aside whole, and the one before it is the end.
        An incarnation that died before its first record is removed. Raises LogError for I/O trouble
        and for a log of a newer format, which is left as it is.
        """
        cuts: list[Cut] = []
        predecessor: Predecessor | None = None
        with explained(self.path):
            for name, path in reversed(segment_files(self.path)):
                predecessor = self._recover_segment(name, path, cuts)
                if predecessor is not None:
                    self.log_id = predecessor.header.log_id
                    self.previous_checksum = predecessor.checksum
                    break
            self.calls.sync_directory(self.path)
        return Recovery(predecessor, tuple(cuts))

    def close_chain(self, predecessor: Predecessor, record: bytes = b"") -> None:
        """Append the frame with the closing record (seq `predecessor.next_seq`), if any, and seal.

        A closing frame with no segment behind it is taken off first; it holds no fact.
        """
        if predecessor.sealed and not record:
            return
        with explained(predecessor.path):
            fd = os.open(predecessor.path, os.O_RDWR | os.O_CLOEXEC)
            os.ftruncate(fd, predecessor.records_end_offset)
            os.fdatasync(fd)
            writer = SegmentWriter(
                predecessor.path,
                fd,
                predecessor.records_end_offset,
                Chain(predecessor.records_checksum, predecessor.next_seq),
                predecessor.next_seq - 1,
                self.calls,
            )
            try:
                if record:
                    seq = predecessor.next_seq
                    writer.write([PendingFrame(seq, seq, record)])
                writer.seal()
            finally:
                writer.close()
        self.previous_checksum = writer.checksum

    def _recover_segment(self, name: SegmentName, path: Path, cuts: list[Cut]) -> Predecessor | None:
        expanded = expand(_read(path))
        try:
            scan = Scan(expanded.data, expanded.trouble)
        except NewerFormat as error:
            raise NewerFormat(f"{path}: {error}, or set another log_path") from error
        except (NotALog, DamagedHeader) as error:
            self._set_aside(path, str(error), cuts)
            return None
        snapshot: bytes | None = None
        payloads: list[memoryview] = []
        end_offset, checksum = 0, 0
        for frame in scan:
            if frame.kind is FrameKind.CLOSING:
                continue
            if frame.kind is FrameKind.SNAPSHOT:
                snapshot = bytes(frame.payload)
            else:
                payloads.append(frame.payload)
            end_offset, checksum = frame.end_offset, frame.checksum
        ending = scan.ending
        if snapshot is None:
            self._set_aside(path, ending.reason, cuts)
            return None
        if name.compressed:
            path = self._store_expanded(name, path, expanded.data[: ending.offset])
        if ending.reason:
            cuts.append(self._cut(path, expanded.data, ending))
        if name.number == 1 and not payloads:
            path.unlink()
            return None
        return Predecessor(
            path=path,
            header=scan.header,
            snapshot=snapshot,
            payloads=tuple(payloads),
            next_seq=ending.next_seq,
            sealed=ending.stop is Stop.SEALED,
            records_end_offset=end_offset,
            records_checksum=checksum,
            checksum=ending.checksum,
        )

    def _cut(self, path: Path, data: bytes, ending: Ending) -> Cut:
        kept: Path | None = None
        if ending.stop is not Stop.TORN:
            kept = path.with_name(f"{path.name}{DAMAGED_SUFFIX}-{ending.offset}")
            os.close(write_file(kept, [data[ending.offset :]], self.calls))
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self.calls.ftruncate(fd, ending.offset)
            self.calls.fdatasync(fd)
        finally:
            os.close(fd)
        return Cut(path, ending.offset, ending.lost_bytes, ending.reason, kept)

    def _set_aside(self, path: Path, reason: str, cuts: list[Cut]) -> None:
        kept = path.with_name(path.name + DAMAGED_SUFFIX)
        lost_bytes = path.stat().st_size
        path.rename(kept)
        cuts.append(Cut(path, 0, lost_bytes, reason, kept))

    def _store_expanded(self, name: SegmentName, path: Path, data: bytes) -> Path:
        plain = path.with_name(str(attrs.evolve(name, compressed=False)))
        os.close(write_file(plain, [data], self.calls))
        path.unlink()
        return plain


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns an OSError into a LogError that says what mends it."""
    try:
        yield
    except OSError as error:
        raise LogError(f"the log cannot be used: {explain(error, path)}") from error


def _segment_of(file_name: str) -> SegmentName | None:
    """The segment that a file belongs to, also one that was set aside."""
    return parse_segment_name(file_name.split(DAMAGED_SUFFIX)[0])


def _refuse_foreign_directory(path: Path) -> None:
    names = sorted(entry.name for entry in path.iterdir())
    if names and LOCK_NAME not in names and not any(_segment_of(name) for name in names):
        raise NotALog(
            f"{path} holds files and no log (for instance {names[0]});"
            " set log_path to an empty or new directory, or to that of a log"
        )


def _lock(path: Path) -> int:
    fd = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        if error.errno != errno.EWOULDBLOCK:
            raise
        raise LogLocked(
            f"{path} is being written by another manager (process {holder}), and a log has one writer;"
            " stop that manager, or set another log_path"
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def _read(path: Path) -> bytes:
    size_bytes = path.stat().st_size
    if size_bytes > SEGMENT_BYTES_MAX:
        raise LogError(
            f"{path} has {size_bytes} bytes, more than a log segment may have; move it away from the log"
        )
    return path.read_bytes()
