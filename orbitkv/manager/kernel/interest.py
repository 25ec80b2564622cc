"""Interest: who still waits for which page, and what happens when a page will not come.

A waiter is cut at the first page of its prefix that failed or found no room. Reads beyond the cut
that nobody else wants leave the queue; submitted ones land normally and belong to nobody.
"""

import numpy as np

from orbitkv.events.facts import QueryCut, ReadsDropped
from orbitkv.manager.kernel.columns import pack
from orbitkv.manager.kernel.prefixes import reach
from orbitkv.manager.kernel.state import Operation
from orbitkv.manager.kernel.turn import Turn


def cut(turn: Turn, number: int, failed: list[int]) -> None:
    """The pages at these positions of an operation will not come."""
    operation = turn.state.operations.get(number)
    if operation is None or operation.lease >= 0:
        return
    before = operation.buffers[operation.buffers >= 0]
    awaited = list(operation.awaited)
    turn.emit(QueryCut(number, _new_reach(operation, failed)))
    after = operation.buffers[operation.buffers >= 0]
    if len(after) < len(before):
        turn.released.append(np.setdiff1d(before, after))
    drop_unwanted(turn, [read for read in awaited if read not in operation.awaited])
    turn.answerable[number] = None


def _new_reach(operation: Operation, failed: list[int]) -> tuple[int, ...]:
    owned = operation.buffers >= 0
    if operation.hint:
        owned[:] = True  # it owns nothing, and needs only what it waits for
    owned[list(operation.awaited.values())] = True
    owned[failed] = False
    parts = []
    start = 0
    for part in operation.parts:
        available = np.zeros(part.reach, np.bool_)
        available[part.first :] = owned[start : start + part.needed]
        start += part.needed
        parts.append((part.page_tokens, part.trailing, available))
    return reach(parts)


def drop_unwanted(turn: Turn, numbers: list[int]) -> None:
    """Queued reads that nobody waits for any more leave the queue uncounted."""
    state = turn.state
    unwanted = [n for n in numbers if not state.reads[n].submitted and not state.reads[n].waiters]
    drop_reads(turn, unwanted, no_room=False)


def drop_reads(turn: Turn, numbers: list[int], *, no_room: bool) -> None:
    """These queued reads will not be submitted: a miss for everyone who waits for them."""
    if not numbers:
        return
    state = turn.state
    waiting: dict[int, list[int]] = {}
    for number in numbers:
        read = state.reads[number]
        for operation, position in read.waiters.items():
            waiting.setdefault(operation, []).append(position)
        turn.reservations[read.starter] = None
    turn.loosened.append(np.array([state.reads[number].page for number in numbers], np.int64))
    turn.emit(ReadsDropped(pack(numbers), no_room))
    for operation, positions in waiting.items():
        cut(turn, operation, positions)
