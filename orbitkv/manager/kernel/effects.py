"""effects_of: the chores that a record asks of the world; and outstanding: those not yet reported.

Effects come from the record alone, so that replay simply does not ask for them.
"""

import attrs

from orbitkv.events import facts
from orbitkv.events.commands import RecoverSegment
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
from orbitkv.events.outcomes import SessionEnd, SlotEnd
from orbitkv.events.record import Record
from orbitkv.manager.kernel.state import State

_MANAGER_CLOSES = (SessionEnd.SUPERSEDED, SessionEnd.PROCESS_GONE)


def effects_of(record: Record) -> list[Effect]:
    effects: list[Effect] = []
    recovering = isinstance(record.cause, RecoverSegment)
    for event in record.events:
        match event:
            case facts.ReadsSubmitted():
                effects.append(ReadPages(event.reads, event.buffers, event.slots, event.foreground))
            case facts.WritesSubmitted():
                effects.append(WritePages(event.slots, event.buffers))
            case facts.CopiesStarted():
                effects.append(CopySlices(event.session, event.rank, event.buffers, event.staging_offsets))
            case facts.SealsStarted():
                effects.append(SealPages(event.buffers))
            case facts.SuperblockCarved():
                effects.append(PrepareSuperblock(event.superblock))
            case facts.SegmentOpened() if not recovering:
                effects.append(FormatSegment(event.segment, event.slot_bytes))
            case facts.SlotsFreed() if event.end == SlotEnd.OTHER_PAGE:
                effects.append(ClearSlots(event.slots, quarantine=False))
            case facts.SlotsQuarantined():
                effects.append(ClearSlots(event.slots, quarantine=True))
            case facts.SessionClosed() if event.cause in _MANAGER_CLOSES:
                effects.append(CloseConnection(event.session))
            case _:
                pass
    return effects


@attrs.frozen(slots=True)
class Outstanding:
    """What the world still owes the kernel. All 0: a shutdown may finish."""

    reads: int
    writes: int
    queued_writes: int
    copies: int
    seals: int
    restores: int
    """Copies that engines have begun and not reported."""

    @property
    def device_work(self) -> int:
        return self.reads + self.writes + self.queued_writes + self.copies + self.seals


def outstanding(state: State) -> Outstanding:
    return Outstanding(
        reads=len(state.reads) - len(state.read_queue) - len(state.warm_queue),
        writes=len(state.writing),
        queued_writes=len(state.write_queue),
        copies=sum(len(save.copying) for save in state.saves.values()),
        seals=sum(save.sealing for save in state.saves.values()),
        restores=sum(c.holds for lease in state.leases.values() for c in lease.shares.values()),
    )
