"""Records and segments for the log's tests, built from the vocabulary without a kernel."""

from collections.abc import Sequence
from pathlib import Path

from orbitkv.events import codec, commands, facts
from orbitkv.events.config import KernelConfig
from orbitkv.events.frame import Chain, SegmentHeader, SegmentName, encode_header
from orbitkv.events.outcomes import SessionEnd
from orbitkv.events.record import Record
from orbitkv.events.scan import Scan
from tests.models.columns import column

LOG_ID = b"sixteen bytes id"
EMPTY_STATE = b"the empty state"
CONFIG = KernelConfig(
    pool_bytes=1 << 30,
    superblock_bytes=16 << 20,
    query_budget_bytes=768 << 20,
    instance_query_budget_bytes=768 << 20,
)


def record(seq: int, pages: int = 4) -> Record:
    """A record of a kind that depends on its seq, with `pages` pages where it names some."""
    at_ns = 1_000_000 * seq
    match seq % 4:
        case 1 if seq == 1:
            return Record(seq, at_ns, commands.Start(1, 7, CONFIG), ())
        case 1:
            return Record(seq, at_ns, commands.CloseSession(seq, SessionEnd.CLOSED), ())
        case 2:
            opened = facts.SessionOpened(seq, 1, True, 4321)
            return Record(seq, at_ns, commands.OpenSession(seq, 1, 4321, 0, True), (opened,))
        case 3:
            part = commands.QueryPart(0, 64, 0, column(range(pages)))
            cause = commands.SubmitQuery(seq - 1, f"request-{seq}", 0, 1, 0, (part,))
            queued = facts.PagesUnbound(column(range(pages)))
            return Record(seq, at_ns, cause, (queued,))
        case _:
            return Record(seq, at_ns, commands.Tick(), (facts.StaleCompletion("read", 1),))


def records(first_seq: int, last_seq: int, pages: int = 4) -> list[Record]:
    return [record(seq, pages) for seq in range(first_seq, last_seq + 1)]


def header(incarnation: int = 1, number: int = 1, first_seq: int = 1, previous: int = 0) -> SegmentHeader:
    return SegmentHeader(
        log_id=LOG_ID,
        incarnation=incarnation,
        number=number,
        first_seq=first_seq,
        wall_offset_ns=1_700_000_000_000_000_000,
        kernel_revision=7,
        previous_checksum=previous,
    )


def segment(
    frames: Sequence[bytes | Sequence[Record]],
    *,
    at: SegmentHeader | None = None,
    snapshot: bytes = EMPTY_STATE,
    closed: bool = False,
    synced: bool = False,
) -> tuple[bytes, list[int]]:
    """A segment's bytes, and where each frame begins. A frame of raw bytes counts as one record.

    `synced`: every frame says that those before it are durable; else none claims anything.
    """
    at = at or header()
    head = encode_header(at)
    chain = Chain.after_header(head, at.first_seq)
    data = bytearray(head)
    offsets = [len(data)]
    data += chain.snapshot_head(snapshot, synced_seq=at.first_seq - 1 if synced else 0) + snapshot
    for frame in frames:
        offsets.append(len(data))
        payload = frame if isinstance(frame, bytes) else codec.encode_records(frame)
        count = 1 if isinstance(frame, bytes) else len(frame)
        durable = chain.next_seq - 1 if synced else 0
        data += chain.records_head(chain.next_seq + count - 1, payload, synced_seq=durable) + payload
    if closed:
        offsets.append(len(data))
        data += chain.closing_head(synced_seq=chain.next_seq - 1 if synced else 0)
    return bytes(data), offsets


def last_checksum(data: bytes) -> int:
    """The checksum of the frame that a whole segment ends with."""
    scan = Scan(data)
    for _ in scan:
        pass
    return scan.ending.checksum


def write_segment(directory: Path, data: bytes, incarnation: int = 1, number: int = 1) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / str(SegmentName(incarnation, number))
    path.write_bytes(data)
    return path
