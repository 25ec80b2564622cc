"""A page store in memory that stalls, fails, shortens, corrupts and swaps pages, by script or by seed."""

from array import array
from collections.abc import Iterable, Sequence

from orbitkv.events.ids import ALIGNMENT_BYTES, TRAILER_BYTES
from orbitkv.events.outcomes import ReadOutcome, WriteOutcome
from orbitkv.manager.ports import (
    PageIdentity,
    PageRead,
    PageWrite,
    ReadDone,
    RecoveredSegment,
    StoreInfo,
    WriteDone,
)
from tests.doubles.faults import StoreFaults
from tests.doubles.medium import Entry, EntryCleared, EntrySet, Medium, PageData, SegmentFormatted, StoredPage
from tests.doubles.outbox import Outbox

ELAPSED_US = 100
GARBAGE = 0xEE
"""What a failed transfer leaves in memory, so that somebody who uses it anyway is found out."""


class MemoryStore:
    """Implements `ports.PageStore` over a pool view and a `Medium`.

    A transfer ends when it is submitted, unless its slot is stalled; then it ends with `release()`.
    It asserts what its user owes: transfers in flight share neither memory nor, where one writes,
    slots; they stay inside the pool and the capacity; and a written slot lies in a formatted segment.
    """

    def __init__(
        self,
        pool: memoryview,
        medium: Medium,
        *,
        capacity_bytes: int,
        slots_per_segment_max: int = 16384,
        faults: StoreFaults | None = None,
    ) -> None:
        self.medium = medium
        self.faults = faults or StoreFaults()
        self.refusal: OSError | None = None
        """While set, `format_segment`, `clear_slots` and `sync` raise it."""
        self.held: list[PageRead | PageWrite] = []
        """Transfers that wait for `release()`, oldest first."""
        self.reads: list[PageRead] = []
        """Every read ever submitted."""
        self.writes: list[PageWrite] = []
        self.closed = False
        self._pool = pool
        self._capacity_bytes = capacity_bytes
        self._slots_per_segment_max = slots_per_segment_max
        self._stalled: set[int] = set()
        self._all_stalled = False
        self._unreported: dict[int, PageRead | PageWrite] = {}
        self._outbox: Outbox[ReadDone | WriteDone] = Outbox()

    # --- what can go wrong ------------------------------------------------------------------------------

    def stall(self, *slots: int) -> None:
        """Transfers of these slots (none named: of all) do not end until they are released."""
        self._stalled.update(slots)
        self._all_stalled = self._all_stalled or not slots

    def release(self, *slots: int) -> None:
        """End the stall of these slots (none named: of all) and whatever waited because of it."""
        self._stalled -= set(slots) or self._stalled
        self._all_stalled = bool(slots) and self._all_stalled
        for transfer in [one for one in self.held if not slots or one.slot in slots]:
            self.end(transfer)

    def end(self, transfer: PageRead | PageWrite) -> None:
        """End one held transfer: the caller chooses the order."""
        self.held.remove(transfer)
        self._outbox.put(self._read(transfer) if isinstance(transfer, PageRead) else self._write(transfer))

    # --- the port ---------------------------------------------------------------------------------------

    @property
    def info(self) -> StoreInfo:
        return StoreInfo(
            engine="threads",
            direct=False,
            reason="a test double",
            path="memory",
            capacity_bytes=self._capacity_bytes,
            segment_bytes=self.medium.segment_bytes,
        )

    def recovered(self) -> Sequence[RecoveredSegment]:
        contents = self.medium.current
        return [
            self._recovered_segment(segment, slot_bytes)
            for segment, slot_bytes in sorted(contents.slot_bytes.items())
        ]

    def submit_reads(self, reads: Sequence[PageRead]) -> None:
        for read in reads:
            self.reads.append(read)
            self._submit(read)

    def submit_writes(self, writes: Sequence[PageWrite]) -> None:
        for write in writes:
            slot_bytes = self.medium.current.slot_bytes.get(write.segment, 0)
            assert write.image_bytes <= slot_bytes, f"slot of {slot_bytes} bytes is too small for {write}"
            assert write.file_offset // self.medium.segment_bytes == write.segment, f"elsewhere: {write}"
            self.medium.write(EntryCleared(write.segment, write.slot_index))
            self.writes.append(write)
            self._submit(write)

    async def completions(self) -> Sequence[ReadDone | WriteDone]:
        return self._report(await self._outbox.take_all())

    def completions_nowait(self) -> Sequence[ReadDone | WriteDone]:
        return self._report(self._outbox.take_nowait())

    def format_segment(self, segment: int, slot_bytes: int) -> None:
        self._refuse()
        first, last = segment * self.medium.segment_bytes, (segment + 1) * self.medium.segment_bytes
        assert last <= self._capacity_bytes, f"segment {segment} lies beyond the capacity"
        busy = [one for one in self._unreported.values() if first <= one.file_offset < last]
        assert not busy, f"segment {segment} is formatted under {busy}"
        self.medium.write(SegmentFormatted(segment, slot_bytes))

    def clear_slots(self, segment: int, slot_indices: Sequence[int], *, quarantine: bool) -> None:
        self._refuse()
        for slot_index in slot_indices:
            self.medium.write(EntryCleared(segment, slot_index, quarantine))

    @property
    def in_flight(self) -> int:
        return len(self._unreported)

    async def sync(self) -> None:
        self._refuse()
        self.medium.sync()

    async def aclose(self) -> None:
        self.release()
        self.refusal = None
        self.medium.sync()
        self.closed = True

    # --- how ----------------------------------------------------------------------------------------------

    def _refuse(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def _report(self, done: list[ReadDone | WriteDone]) -> list[ReadDone | WriteDone]:
        for one in done:
            del self._unreported[one.token]
        return done

    def _submit(self, transfer: PageRead | PageWrite) -> None:
        assert not self.closed, "the store is closed"
        assert transfer.token not in self._unreported, f"token {transfer.token} is in flight already"
        end = transfer.pool_offset + transfer.image_bytes
        assert 0 <= transfer.pool_offset < end <= len(self._pool), f"outside the pool: {transfer}"
        assert transfer.file_offset + transfer.image_bytes <= self._capacity_bytes, (
            f"beyond the cap: {transfer}"
        )
        for other in self._unreported.values():
            self._assert_apart(transfer, other)
        self._unreported[transfer.token] = transfer
        self.held.append(transfer)
        if not (self._all_stalled or transfer.slot in self._stalled):
            self.end(transfer)

    @staticmethod
    def _assert_apart(one: PageRead | PageWrite, other: PageRead | PageWrite) -> None:
        if isinstance(one, PageRead) or isinstance(other, PageRead):
            apart = _apart(one.pool_offset, other.pool_offset, one.image_bytes, other.image_bytes)
            assert apart, f"two transfers in flight share memory: {one} and {other}"
        if isinstance(one, PageWrite) or isinstance(other, PageWrite):
            apart = _apart(one.file_offset, other.file_offset, one.image_bytes, other.image_bytes)
            assert apart, f"a slot is written while it is in flight: {one} and {other}"

    def _read(self, read: PageRead) -> ReadDone:
        outcome = self.faults.next_read(read.slot)
        page = self.medium.page_at(read.file_offset)
        if outcome == ReadOutcome.WHOLE:
            outcome = _verdict(page, read)
        image = bytearray(page.image if page else b"")[: read.image_bytes].ljust(read.image_bytes, b"\0")
        read_bytes = read.image_bytes
        match outcome:
            case ReadOutcome.SHORT:
                read_bytes = read.image_bytes // 2
                image[read_bytes:] = bytes([GARBAGE]) * (read.image_bytes - read_bytes)
            case ReadOutcome.FAILED:
                read_bytes = 0
                image[:] = bytes([GARBAGE]) * read.image_bytes
            case ReadOutcome.CORRUPT:
                image[0] ^= 1
            case ReadOutcome.OTHER_PAGE | ReadOutcome.WHOLE:
                pass
        self._pool[read.pool_offset : read.pool_offset + read.image_bytes] = image
        return ReadDone(read.token, outcome, read_bytes, ELAPSED_US, _detail(outcome, ReadOutcome.WHOLE))

    def _write(self, write: PageWrite) -> WriteDone:
        outcome = self.faults.next_write(write.slot)
        image = bytes(self._pool[write.pool_offset : write.pool_offset + write.image_bytes])
        page = StoredPage(write.identity, image, torn=outcome != WriteOutcome.WRITTEN)
        if outcome != WriteOutcome.NO_SPACE:
            self.medium.write(PageData(write.file_offset, page))
        if outcome == WriteOutcome.WRITTEN:
            entry = Entry(write.identity, write.image_bytes - TRAILER_BYTES)
            self.medium.write(EntrySet(write.segment, write.slot_index, entry))
        return WriteDone(write.token, outcome, ELAPSED_US, _detail(outcome, WriteOutcome.WRITTEN))

    def _recovered_segment(self, segment: int, slot_bytes: int) -> RecoveredSegment:
        contents = self.medium.current
        first = segment * self._slots_per_segment_max
        found = sorted(
            (index, entry)
            for (where, index), entry in contents.entries.items()
            if where == segment and (segment, index) not in contents.quarantined
        )
        identities = [entry.identity for _, entry in found]
        scopes = sorted({_scope(identity) for identity in identities})
        rotten = sorted(index for where, index in contents.quarantined if where == segment)
        return RecoveredSegment(
            segment=segment,
            slot_bytes=slot_bytes,
            slots=_column(first + index for index, _ in found),
            spaces=_column(scopes.index(_scope(identity)) for identity in identities),
            scopes=tuple(scopes),
            keys=tuple(identity.key for identity in identities),
            generations=array("Q", (identity.generation for identity in identities)).tobytes(),
            incarnations=_column(identity.incarnation for identity in identities),
            footprints=_column(entry.footprint_bytes // ALIGNMENT_BYTES for _, entry in found),
            quarantined=_column(first + index for index in rotten),
        )


def _verdict(page: StoredPage | None, read: PageRead) -> ReadOutcome:
    if page is None or page.torn or len(page.image) != read.image_bytes:
        return ReadOutcome.CORRUPT
    return ReadOutcome.WHOLE if page.identity == read.identity else ReadOutcome.OTHER_PAGE


def _detail(outcome: ReadOutcome | WriteOutcome, success: ReadOutcome | WriteOutcome) -> str:
    return "" if outcome == success else f"injected or found: {outcome.name}"


def _apart(start: int, other_start: int, size: int, other_size: int) -> bool:
    return start + size <= other_start or other_start + other_size <= start


def _scope(identity: PageIdentity) -> tuple[bytes, int]:
    return identity.namespace_digest, identity.group


def _column(values: Iterable[int]) -> bytes:
    return array("I", values).tobytes()
