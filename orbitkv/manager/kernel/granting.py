"""Granting: reserve a demand's bytes, own its DRAM hits, join or queue the reads for the rest.

Waiting demands are granted in the order of their records when bytes come free, not when someone
polls. Foreground demand owns its DRAM hits before it allocates anything. Pages beyond the boundary
are neither read, leased nor promoted.
"""

from collections.abc import Sequence

from orbitkv.events.facts import (
    PagesPromoted,
    QueryGranted,
    QueryWaiting,
    ReadsJoined,
    ReadsQueued,
)
from orbitkv.events.outcomes import Origin
from orbitkv.manager.kernel.columns import NONE, ZERO, Ints, lowest, pack
from orbitkv.manager.kernel.presence import Reached, reached
from orbitkv.manager.kernel.sharing import claim, marginal_bytes
from orbitkv.manager.kernel.state import Instance, Operation, Part, State
from orbitkv.manager.kernel.turn import Turn

_DEMAND = Origin.DEMAND


def grant_or_wait(turn: Turn, number: int, parts: Sequence[Part]) -> None:
    """Grant a new operation, or let it wait behind others for its budget."""
    state = turn.state
    operation = state.operations[number]
    instance = state.instances[operation.instance]
    charge_bytes = _cost(state, operation, parts)
    blocked = _blocked(state, instance, charge_bytes)
    if blocked is None and not _waits_behind(state, operation.instance):
        _grant(turn, number, parts, charge_bytes)
        return
    by_instance = blocked is True
    config = state.config
    turn.emit(
        QueryWaiting(
            number,
            tuple(pack(part.pages) for part in parts),
            tuple(part.unknown for part in parts),
            instance.reserved_bytes if by_instance else state.reserved_bytes,
            config.instance_query_budget_bytes if by_instance else config.query_budget_bytes,
            by_instance,
        )
    )


def _cost(state: State, operation: Operation, parts: Sequence[Part]) -> int:
    """What the operation has to reserve now; never more than what it was opened with."""
    if state.config.charge_shared:
        return marginal_bytes(state, operation.instance, parts, hint=False)
    return operation.charge_bytes


def _blocked(state: State, instance: Instance, charge: int) -> bool | None:
    """None: it fits. True: the instance's own limit is met. False: only the global one is."""
    if instance.reserved_bytes + charge > state.config.instance_query_budget_bytes:
        return True
    if state.reserved_bytes + charge > state.config.query_budget_bytes:
        return False
    return None


def _waits_behind(state: State, instance: int) -> bool:
    """Nobody overtakes a demand that waits for the global budget, or one of the same instance."""
    stopped: set[int] = set()
    for number in state.waiting:
        operation = state.operations[number]
        if operation.instance == instance:
            return True
        if operation.instance in stopped:
            continue
        cost = _cost(state, operation, operation.parts)
        if _blocked(state, state.instances[operation.instance], cost) is not True:
            return True
        stopped.add(operation.instance)
    return False


def grant_waiting(turn: Turn) -> None:
    """Grant waiting demands in order. One that only its own instance's limit stops does not stop others."""
    state = turn.state
    stopped: set[int] = set()
    for number in list(state.waiting):
        operation = state.operations[number]
        if operation.instance in stopped:
            continue
        parts = _known_again(state, operation)
        cost = _cost(state, operation, parts)
        blocked = _blocked(state, state.instances[operation.instance], cost)
        if blocked is False:
            return
        if blocked is True:
            stopped.add(operation.instance)
            continue
        turn.loosened.extend(part.pages[part.pages != NONE] for part in operation.parts)
        _grant(turn, number, parts, cost)


def _known_again(state: State, operation: Operation) -> list[Part]:
    """The parts of a waiting operation, with the keys looked up again that were not known before."""
    parts = []
    for part in operation.parts:
        pages = part.pages.copy()
        space = state.instances[operation.instance].groups[part.group].space
        if part.unknown:
            found = state.pages.resolve(space, part.unknown)
            pages[pages == NONE] = [NONE if page is None else page for page in found][: (pages == NONE).sum()]
        parts.append(Part(part.group, part.page_tokens, part.trailing, pages, part.unknown, part.asked))
    return parts


def _grant(turn: Turn, number: int, parts: Sequence[Part], charge_bytes: int) -> None:
    _take_hold(turn, number, parts, charge_bytes)
    if turn.state.config.charge_shared:
        claim(turn, number, turn.state.instances[turn.state.operations[number].instance], parts)


def _take_hold(turn: Turn, number: int, parts: Sequence[Part], charge_bytes: int) -> None:
    state = turn.state
    turn.reservations[number] = None
    turn.answerable[number] = None
    if len(parts) == 1 and not parts[0].trailing and not parts[0].unknown:
        hits = state.pages.buffer[parts[0].pages]
        if lowest(hits) >= 0:  # by far the most frequent grant: one group, all in DRAM
            turn.emit(QueryGranted(number, charge_bytes, (len(hits),), b"", pack(hits)))
            _promote(turn, hits)
            return
    there = reached(state, parts)
    in_dram = (there.buffers >= ZERO).nonzero()[0]
    hits = there.buffers[in_dram]
    positions = b"" if len(hits) == len(there.pages) else pack(in_dram)
    turn.emit(QueryGranted(number, charge_bytes, there.bounds, positions, pack(hits)))
    _promote(turn, hits)
    _queue_reads(turn, number, there, len(there.pages) - len(hits))


def _queue_reads(turn: Turn, number: int, there: Reached, absent: int) -> None:
    """Join the reads that run for some of the `absent` pages, queue reads for the others."""
    queued = ((there.buffers & there.reading) < ZERO).nonzero()[0]  # neither in DRAM nor being read
    if len(queued) < absent:
        shared = ((there.buffers < ZERO) & (there.reading >= ZERO)).nonzero()[0]
        turn.emit(ReadsJoined(number, pack(there.reading[shared]), pack(shared)))
        turn.reads_wanted = True  # what only hints waited for may use the foreground's part from now on
    if len(queued):
        pages = pack(there.pages[queued])
        turn.emit(ReadsQueued(number, turn.state.read_next, pages, pack(queued), _DEMAND))
        turn.reads_wanted = True


def _promote(turn: Turn, hits: Ints) -> None:
    """Foreground demand promotes what it takes ownership of to the retained class."""
    if len(hits):
        lower = turn.state.buffers.below_retained(hits)
        if len(lower):
            turn.emit(PagesPromoted(pack(lower)))
