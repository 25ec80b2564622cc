"""Carries out effects: what the records of a piece ask of the world, in the order that keeps it safe.

Two orders hold, each for one reason:

- Whatever changes the SSD (formatting, clearing, writing) waits until its record has been written to
  the log, and keeps the log's order. Else a crash could leave a page on the SSD that no log explains,
  or clear a slot that a later record had already given to another page.
- Reads and copies into a superblock wait until its memory has been prepared: populating and collapsing
  move pages about, which must not happen under a device's feet.

Must not decide anything: what cannot be done is reported as a completion that says so.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf

import attrs
import trio

from orbitkv.events.effects import (
    ClearSlots,
    CloseConnection,
    CopySlices,
    Effect,
    FormatSegment,
    PrepareSuperblock,
    ReadPages,
    SealPages,
    WritePages,
)
from orbitkv.events.record import Record
from orbitkv.manager.kernel.columns import unpack, unpack_wide
from orbitkv.manager.kernel.effects import effects_of
from orbitkv.manager.kernel.state import State
from orbitkv.manager.ports import Carrier, PageRead, PageStore, Pool, SliceCopy
from orbitkv.manager.shell.health import Health
from orbitkv.manager.shell.places import page_read, page_seal, slice_copies
from orbitkv.manager.shell.reports import Copying, Reports
from orbitkv.manager.shell.ssd import SsdChore, SsdLane


@attrs.define(slots=True)
class Executor:
    state: State
    pool: Pool
    carrier: Carrier
    store: PageStore | None
    ssd: SsdLane
    reports: Reports
    health: Health
    close_connection: Callable[[int], None]
    _waiting: dict[int, list[PageRead | SliceCopy]] = attrs.field(factory=dict, init=False)
    """Superblock being prepared -> what is to go into it."""
    _to_prepare: trio.MemorySendChannel[int] = attrs.field(init=False)
    _superblocks: trio.MemoryReceiveChannel[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # Bounded by the number of superblocks: each waits here once.
        self._to_prepare, self._superblocks = trio.open_memory_channel[int](inf)

    @property
    def idle(self) -> bool:
        """Nothing that effects asked for still waits here. (What ports work on, the kernel counts.)"""
        return not self._waiting and self.ssd.idle

    def carry_out(self, records: Sequence[Record]) -> None:
        reads: list[PageRead] = []
        for record in records:
            chores: list[SsdChore] = []
            for effect in effects_of(record):
                self._carry_out(effect, reads, chores)
            if chores:
                self.ssd.add(record.seq, chores)
        self._submit_reads(reads)

    def _carry_out(self, effect: Effect, reads: list[PageRead], chores: list[SsdChore]) -> None:
        match effect:
            case ReadPages():
                reads.extend(self._page_reads(effect))
            case FormatSegment() | ClearSlots() | WritePages():
                chores.append(effect)
            case CopySlices():
                self._copy(effect)
            case SealPages():
                self._seal(effect)
            case PrepareSuperblock():
                if effect.superblock not in self._waiting:
                    self._waiting[effect.superblock] = []
                    self._to_prepare.send_nowait(effect.superblock)
            case CloseConnection():
                self.close_connection(effect.session)

    def _page_reads(self, effect: ReadPages) -> list[PageRead]:
        columns = (unpack(column).tolist() for column in (effect.reads, effect.buffers, effect.slots))
        foreground = effect.foreground
        return [
            page_read(self.state, read, buffer, slot, foreground=foreground)
            for read, buffer, slot in zip(*columns, strict=True)
        ]

    def _submit_reads(self, reads: Sequence[PageRead]) -> None:
        if self._waiting:
            reads = [read for read in reads if not self._held_back(read)]
        if reads:
            assert self.store is not None, "the kernel reads from the SSD only if there is one"
            self.store.submit_reads(reads)

    def _copy(self, effect: CopySlices) -> None:
        ready: list[SliceCopy] = []
        buffers, offsets = unpack(effect.buffers).tolist(), unpack_wide(effect.staging_offsets).tolist()
        for buffer, offset in zip(buffers, offsets, strict=True):
            copying = Copying(effect.session, effect.rank, buffer)
            expect = partial(self.reports.expect_copy, copying)
            copies = slice_copies(self.state, expect, effect.session, effect.rank, buffer, offset)
            ready.extend(copy for copy in copies if not self._held_back(copy))
        if ready:
            self.carrier.submit_copies(ready)

    def _seal(self, effect: SealPages) -> None:
        # The page's slices were copied by the same carrier before, so its memory has been prepared.
        buffers = unpack(effect.buffers).tolist()
        self.carrier.submit_seals(
            [page_seal(self.state, self.reports.expect_seal(buffer), buffer) for buffer in buffers]
        )

    def _held_back(self, transfer: PageRead | SliceCopy) -> bool:
        waiting = self._waiting.get(transfer.pool_offset // self.state.config.superblock_bytes)
        if waiting is None:
            return False
        waiting.append(transfer)
        return True

    async def run_preparing(self) -> None:
        """One superblock at a time: they are carved one by one, and the machine has other work."""
        async for superblock in self._superblocks:
            try:
                await self.pool.prepare_superblock(superblock)
                self.health.clear("pool")
            except OSError as error:
                # Transfers into it still go out: a device that finds no memory there says so, and the
                # page is a miss. Holding them back would hold their reservations for ever.
                self.health.degrade("pool", str(error))
            self._release(self._waiting.pop(superblock))

    def _release(self, waiting: Sequence[PageRead | SliceCopy]) -> None:
        copies = [item for item in waiting if isinstance(item, SliceCopy)]
        if copies:
            self.carrier.submit_copies(copies)
        self._submit_reads([item for item in waiting if isinstance(item, PageRead)])
