"""The one lane for everything that changes the SSD: after the log, and in the log's order.

See `executor` for why. What the directory refuses (OSError) makes the store read-only for new pages
until a later try succeeds; pages that are there are still read.
"""

from collections.abc import Callable, Sequence
from math import inf

import attrs
import trio

from orbitkv.events.commands import Command, SetStore
from orbitkv.events.effects import ClearSlots, FormatSegment, WritePages
from orbitkv.events.outcomes import WriteOutcome
from orbitkv.manager.kernel.columns import unpack
from orbitkv.manager.kernel.state import State
from orbitkv.manager.ports import Journal, JournalFull, PageStore, PageWrite, WriteDone
from orbitkv.manager.shell.health import Health
from orbitkv.manager.shell.loop import LogExhausted
from orbitkv.manager.shell.places import page_write
from orbitkv.manager.shell.reports import Reports

SYNC_INTERVAL_S = 5.0
"""A power loss costs at most the pages written in the last seconds before it."""
RETRY_INTERVAL_S = 30.0
"""How long a store that refused a change is left alone before new pages are tried on it again."""

SsdChore = FormatSegment | ClearSlots | WritePages
Report = Callable[[Sequence[Command]], None]


@attrs.frozen(slots=True)
class _Chores:
    """What one record wants done."""

    seq: int
    chores: Sequence[SsdChore]


@attrs.define(slots=True)
class SsdLane:
    state: State
    journal: Journal
    store: PageStore | None
    reports: Reports
    health: Health
    _pending: int = attrs.field(default=0, init=False)
    _unformatted: set[int] = attrs.field(factory=set, init=False)
    """Segments whose format failed: nothing may be written into them, earlier entries might come back."""
    _changed: bool = attrs.field(default=False, init=False)
    """Something was written since the last sync."""
    _to_lane: trio.MemorySendChannel[_Chores] = attrs.field(init=False)
    _lane: trio.MemoryReceiveChannel[_Chores] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # Bounded by the kernel: a slot or segment is not given out again before its chore has ended,
        # and the bytes of writes in flight have a limit.
        self._to_lane, self._lane = trio.open_memory_channel[_Chores](inf)

    @property
    def idle(self) -> bool:
        return not self._pending

    def add(self, seq: int, chores: Sequence[SsdChore]) -> None:
        self._pending += 1
        self._to_lane.send_nowait(_Chores(seq, chores))

    async def run(self, report: Report) -> None:
        async for item in self._lane:
            await self._logged(item.seq)
            for chore in item.chores:
                troubles = self._carry_out(chore)
                if troubles:
                    report(troubles)
            self._pending -= 1

    async def run_syncing(self) -> None:
        while True:
            await trio.sleep(SYNC_INTERVAL_S)
            if self._changed and self.store is not None:
                self._changed = False
                try:
                    await self.store.sync()
                    self.health.clear("ssd_sync")
                except OSError as error:
                    self.health.degrade(
                        "ssd_sync",
                        f"the SSD cannot be flushed ({error}); pages written since may not survive a power "
                        "loss: look at the device behind ssd_path",
                    )

    async def run_retrying(self, report: Report) -> None:
        while True:
            await trio.sleep(RETRY_INTERVAL_S)
            if not self.state.store_writable:
                report([SetStore(writable=True, reason="")])

    async def _logged(self, seq: int) -> None:
        try:
            await self.journal.written(seq)
        except JournalFull as full:
            raise LogExhausted(f"the log takes no more: {full}") from full

    def _carry_out(self, chore: SsdChore) -> list[Command]:
        assert self.store is not None, "the kernel changes the SSD only if there is one"
        self._changed = True
        match chore:
            case FormatSegment():
                return self._format(self.store, chore.segment, chore.slot_bytes)
            case ClearSlots():
                return self._clear(self.store, chore)
            case WritePages():
                return self._write(self.store, chore)

    def _format(self, store: PageStore, segment: int, slot_bytes: int) -> list[Command]:
        try:
            store.format_segment(segment, slot_bytes)
        except OSError as error:
            self._unformatted.add(segment)
            return [_not_writable(error)]
        self._unformatted.discard(segment)
        return []

    def _clear(self, store: PageStore, chore: ClearSlots) -> list[Command]:
        slots_max = self.state.config.ssd_slots_per_segment_max
        by_segment: dict[int, list[int]] = {}
        for slot in unpack(chore.slots).tolist():
            segment, index = divmod(slot, slots_max)
            by_segment.setdefault(segment, []).append(index)
        try:
            for segment, indices in by_segment.items():
                store.clear_slots(segment, indices, quarantine=chore.quarantine)
        except OSError as error:
            # The next start may find these entries again; their trailers are verified on every read.
            return [_not_writable(error)]
        return []

    def _write(self, store: PageStore, chore: WritePages) -> list[Command]:
        pairs = zip(unpack(chore.slots).tolist(), unpack(chore.buffers).tolist(), strict=True)
        writes: list[PageWrite] = [
            page_write(self.state, self.reports.expect_write(slot), buffer, slot) for slot, buffer in pairs
        ]
        commands: list[Command] = []
        for segment in sorted({write.segment for write in writes} & self._unformatted):
            commands += self._format(store, segment, self.state.slots.segments[segment].slot_bytes)
        store.submit_writes([write for write in writes if write.segment not in self._unformatted])
        void = [write for write in writes if write.segment in self._unformatted]
        return commands + self.reports.of_store(
            [WriteDone(write.token, WriteOutcome.FAILED, 0, "its segment has no header") for write in void]
        )


def _not_writable(error: OSError) -> Command:
    return SetStore(writable=False, reason=f"the SSD directory cannot be changed ({error.strerror or error})")
