"""What a new incarnation owes the one before: close its chain, take over its pages, start afresh.

Works on bytes and columns that the composition root read from disk. A manager that was killed left no
last word, so its successor speaks it: what was pending is unused, with cause `restart`. Then the
slots that the SSD directory holds are put on record, in pieces small enough for a log frame.
"""

from collections.abc import Iterable, Iterator, Sequence

import attrs

from orbitkv.events.codec import decode_records
from orbitkv.events.commands import CloseIncarnation, RecoverSegment
from orbitkv.events.record import Record
from orbitkv.manager.kernel.apply import fold
from orbitkv.manager.kernel.snapshot import restore
from orbitkv.manager.kernel.state import State
from orbitkv.manager.kernel.step import step
from orbitkv.manager.ports import RecoveredSegment

SLOTS_PER_COMMAND_MAX = 2048
"""About 100 KiB of keys and columns: a few such commands fill one log frame."""


class UnreadablePredecessor(Exception):
    """The last chain's records cannot be folded. The text says where, why and what to do about it."""


@attrs.frozen(slots=True)
class Closing:
    """The last record of a chain, made by its successor."""

    record: Record
    state: str
    """The state it ended in, in one line."""


def close_predecessor(
    snapshot: bytes, payloads: Iterable[bytes | memoryview], *, lost_tail: bool
) -> Closing | None:
    """Fold the last segment of the old chain and decide its closing record; None if it has one.

    Raises UnreadablePredecessor.
    """
    state = _folded(snapshot, payloads)
    if state.closed:
        return None
    # Nobody knows when it ended. Its own last time is the latest that is known, and a clock of this
    # boot may have nothing to do with it.
    record = step(state, state.at_ns, CloseIncarnation(lost_tail=lost_tail))
    if not isinstance(record, Record):
        raise UnreadablePredecessor(
            f"the old incarnation {state.incarnation} cannot be closed after record {state.seq}: {record}"
        )
    return Closing(record, repr(state))


def _folded(snapshot: bytes, payloads: Iterable[bytes | memoryview]) -> State:
    seq = 0
    try:
        state = restore(snapshot)
        for payload in payloads:
            for record in decode_records(payload):
                seq = record.seq
                fold(state, record)
    except Exception as error:
        raise UnreadablePredecessor(
            f"the log of the last incarnation cannot be folded at record {seq} "
            f"({type(error).__name__}: {error}); `orbitkv replay verify` on it says more"
        ) from error
    return state


def recovery_commands(segments: Sequence[RecoveredSegment]) -> Iterator[RecoverSegment]:
    """The SSD directory as commands, segment by segment, in pieces."""
    for segment in segments:
        yield from _pieces(segment)


def _pieces(found: RecoveredSegment) -> Iterator[RecoverSegment]:
    count = len(found.keys)
    # A segment without a page is still open in the directory and may hold quarantined slots.
    for start in range(0, max(count, 1), SLOTS_PER_COMMAND_MAX):
        stop = min(start + SLOTS_PER_COMMAND_MAX, count)
        narrow, wide = slice(4 * start, 4 * stop), slice(8 * start, 8 * stop)
        yield RecoverSegment(
            segment=found.segment,
            slot_bytes=found.slot_bytes,
            slots=found.slots[narrow],
            spaces=found.spaces[narrow],
            scopes=found.scopes,
            keys=found.keys[start:stop],
            generations=found.generations[wide],
            incarnations=found.incarnations[narrow],
            footprints=found.footprints[narrow],
            quarantined=found.quarantined if start == 0 else b"",
        )
