"""What the ports report, as commands: everything one wake brought is one command of a kind.

Keeps what was asked of the ports until it is reported. A report that nothing waits for becomes a
completion of nothing (NONE_U32), so that it stands in the log and changes nothing.
Read ids need no keeping: the kernel never gives one twice.
"""

from collections.abc import Iterable, Sequence
from itertools import count

import attrs

from orbitkv.events.commands import (
    Command,
    CompleteCopies,
    CompleteReads,
    CompleteSeals,
    CompleteWrites,
    SetStore,
)
from orbitkv.events.ids import NONE_U32
from orbitkv.events.outcomes import CopyOutcome, WriteOutcome
from orbitkv.manager.kernel.columns import pack
from orbitkv.manager.ports import CarrierDone, CopyDone, ReadDone, SealDone, WriteDone
from orbitkv.manager.shell.pending import Pending

_U32_MAX = 0xFFFF_FFFF


@attrs.define(slots=True)
class Copying:
    """One rank's part of one page on its way out of a staging window, in one or more pieces."""

    session: int
    rank: int
    buffer: int
    pieces_left: int = 0
    outcome: CopyOutcome = CopyOutcome.COPIED
    elapsed_us: int = 0


class Reports:
    def __init__(self) -> None:
        numbers = count(1)
        self._copies = Pending[Copying](numbers)
        self._seals = Pending[int](numbers)
        self._writes = Pending[int](numbers)

    # --- what was asked -------------------------------------------------------------------------------

    def expect_copy(self, copying: Copying) -> int:
        copying.pieces_left += 1
        return self._copies.add(copying)

    def expect_seal(self, buffer: int) -> int:
        return self._seals.add(buffer)

    def expect_write(self, slot: int) -> int:
        return self._writes.add(slot)

    # --- what came of it ------------------------------------------------------------------------------

    def of_store(self, done: Sequence[ReadDone | WriteDone]) -> list[Command]:
        commands: list[Command] = []
        reads = [item for item in done if isinstance(item, ReadDone)]
        if reads:
            commands.append(
                CompleteReads(
                    reads=pack([item.token for item in reads]),
                    outcomes=bytes(item.outcome for item in reads),
                    read_bytes=pack([_clipped(item.read_bytes) for item in reads]),
                    elapsed_us=pack([_clipped(item.elapsed_us) for item in reads]),
                )
            )
        writes = [item for item in done if isinstance(item, WriteDone)]
        if writes:
            commands.append(
                CompleteWrites(
                    slots=pack([_known(self._writes.take(item.token)) for item in writes]),
                    outcomes=bytes(item.outcome for item in writes),
                    elapsed_us=pack([_clipped(item.elapsed_us) for item in writes]),
                )
            )
            commands.extend(_out_of_space(writes))
        return commands

    def of_carrier(self, done: Sequence[CarrierDone]) -> list[Command]:
        commands = self._of_copies(item for item in done if isinstance(item, CopyDone))
        seals = [item for item in done if isinstance(item, SealDone)]
        if seals:
            buffers = [_known(self._seals.take(item.token)) for item in seals]
            commands.append(CompleteSeals(buffers=pack(buffers)))
        return commands

    def _of_copies(self, done: Iterable[CopyDone]) -> list[Command]:
        """One command for each rank that has parts of pages complete with these pieces."""
        ended: dict[tuple[int, int], list[Copying]] = {}
        for item in done:
            copying = self._copies.take(item.token)
            if copying is None:
                copying = Copying(0, 0, NONE_U32, pieces_left=1)
            copying.pieces_left -= 1
            copying.outcome = max(copying.outcome, item.outcome)
            copying.elapsed_us += item.elapsed_us
            if not copying.pieces_left:
                ended.setdefault((copying.session, copying.rank), []).append(copying)
        return [
            CompleteCopies(
                session=session,
                rank=rank,
                buffers=pack([copying.buffer for copying in parts]),
                outcomes=bytes(copying.outcome for copying in parts),
                elapsed_us=sum(copying.elapsed_us for copying in parts),
            )
            for (session, rank), parts in ended.items()
        ]


def _out_of_space(writes: Sequence[WriteDone]) -> list[Command]:
    for item in writes:
        if item.outcome is WriteOutcome.NO_SPACE:
            reason = f"the SSD has no space left ({item.detail or 'ENOSPC'}); free some, or lower ssd_bytes"
            return [SetStore(writable=False, reason=reason)]
    return []


def _known(number: int | None) -> int:
    return NONE_U32 if number is None else number


def _clipped(value: int) -> int:
    """Columns hold 32 bits: a device that hung for more than 71 minutes is recorded as 71 minutes."""
    return min(value, _U32_MAX)
