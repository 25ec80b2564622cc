"""effects_of: the chores that a record asks of the world; and outstanding: those not yet reported.

Effects come from the record alone, so that replay simply does not ask for them.
"""

from collections.abc import Callable
from typing import Any

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


def _format_segment(record: Record, event: facts.SegmentOpened) -> Effect | None:
    recovering = isinstance(record.cause, RecoverSegment)
    return None if recovering else FormatSegment(event.segment, event.slot_bytes)


def _clear_slots(record: Record, event: facts.SlotsFreed) -> Effect | None:
    return ClearSlots(event.slots, quarantine=False) if event.end == SlotEnd.OTHER_PAGE else None


def _close_connection(record: Record, event: facts.SessionClosed) -> Effect | None:
    return CloseConnection(event.session) if event.cause in _MANAGER_CLOSES else None


_EFFECTS: dict[type, Callable[[Record, Any], Effect | None]] = {
    facts.ReadsSubmitted: lambda _, event: ReadPages(
        event.reads, event.buffers, event.slots, event.foreground
    ),
    facts.WritesSubmitted: lambda _, event: WritePages(event.slots, event.buffers),
    facts.CopiesStarted: lambda _, event: CopySlices(
        event.session, event.rank, event.buffers, event.staging_offsets
    ),
    facts.SealsStarted: lambda _, event: SealPages(event.buffers),
    facts.SuperblockCarved: lambda _, event: PrepareSuperblock(event.superblock),
    facts.SegmentOpened: _format_segment,
    facts.SlotsFreed: _clear_slots,
    facts.SlotsQuarantined: lambda _, event: ClearSlots(event.slots, quarantine=True),
    facts.SessionClosed: _close_connection,
}
"""By the fact's type, as nearly all facts of a busy manager ask for nothing."""


def effects_of(record: Record) -> list[Effect]:
    effects: list[Effect] = []
    for event in record.events:
        make = _EFFECTS.get(type(event))
        effect = None if make is None else make(record, event)
        if effect is not None:
            effects.append(effect)
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
