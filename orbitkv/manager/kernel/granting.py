"""Granting: reserve a demand's bytes, own its DRAM hits, join or queue the reads for the rest.

Waiting demands are granted in the order of their records when bytes come free, not when someone
polls. Foreground demand owns its DRAM hits before it allocates anything. Pages beyond the boundary
are neither read, leased nor promoted.
"""

from collections.abc import Sequence

import numpy as np

from orbitkv.events.facts import (
    PagesPromoted,
    PagesTouched,
    QueryGranted,
    QueryWaiting,
    ReadsJoined,
    ReadsQueued,
)
from orbitkv.events.outcomes import Origin, PageClass
from orbitkv.manager.kernel.columns import NONE, Ints, pack
from orbitkv.manager.kernel.prefixes import Available, reach
from orbitkv.manager.kernel.state import Instance, Operation, Part, State
from orbitkv.manager.kernel.turn import Turn


def grant_or_wait(turn: Turn, number: int, parts: Sequence[Part]) -> None:
    """Grant a new operation, or let it wait behind others for its budget."""
    state = turn.state
    operation = state.operations[number]
    instance = state.instances[operation.instance]
    blocked = _blocked(state, instance, operation.charge_bytes)
    if blocked is None and not _waits_behind(state, operation.instance):
        _grant(turn, number, parts)
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


def _blocked(state: State, instance: Instance, charge: int) -> bool | None:
    """None: it fits. True: the instance's own limit is met. False: the global one is."""
    if state.reserved_bytes + charge > state.config.query_budget_bytes:
        return False
    if instance.reserved_bytes + charge > state.config.instance_query_budget_bytes:
        return True
    return None


def _waits_behind(state: State, instance: int) -> bool:
    """Nobody overtakes a demand that waits for the global budget, or one of the same instance."""
    for number in state.waiting:
        operation = state.operations[number]
        if operation.instance == instance:
            return True
        if _blocked(state, state.instances[operation.instance], operation.charge_bytes) is not True:
            return True
    return False


def grant_waiting(turn: Turn) -> None:
    """Grant waiting demands in order. One that only its own instance's limit stops does not stop others."""
    state = turn.state
    stopped: set[int] = set()
    for number in list(state.waiting):
        operation = state.operations[number]
        if operation.instance in stopped:
            continue
        blocked = _blocked(state, state.instances[operation.instance], operation.charge_bytes)
        if blocked is False:
            return
        if blocked is True:
            stopped.add(operation.instance)
            continue
        parts = _known_again(state, operation)
        turn.loosened.extend(part.pages[part.pages != NONE] for part in operation.parts)
        _grant(turn, number, parts)


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


def _grant(turn: Turn, number: int, parts: Sequence[Part]) -> None:
    state = turn.state
    operation = state.operations[number]
    looked_up = [_look_up(state, part.pages) for part in parts]
    bounds = reach([(p.page_tokens, p.trailing, seen[2]) for p, seen in zip(parts, looked_up, strict=True)])
    needed = []
    for part, bound in zip(parts, bounds, strict=True):
        part.reach = bound
        needed.append(slice(part.first, bound))
    pages = np.concatenate([part.pages[span] for part, span in zip(parts, needed, strict=True)])
    buffers = np.concatenate([seen[0][span] for seen, span in zip(looked_up, needed, strict=True)])
    reading = np.concatenate([seen[1][span] for seen, span in zip(looked_up, needed, strict=True)])
    in_dram = buffers >= 0
    all_in_dram = bool(in_dram.all())
    positions = np.arange(len(pages)) if all_in_dram else np.flatnonzero(in_dram)
    hits = buffers if all_in_dram else buffers[positions]
    turn.emit(QueryGranted(number, operation.charge_bytes, bounds, pack(positions), pack(hits)))
    turn.reservations[number] = None
    _own(turn, hits)
    if not all_in_dram:
        joined = np.flatnonzero(~in_dram & (reading >= 0))
        queued = np.flatnonzero(~in_dram & (reading < 0))
        if len(joined):
            turn.emit(ReadsJoined(number, pack(reading[joined]), pack(joined)))
        if len(queued):
            turn.emit(ReadsQueued(number, state.read_next, pack(pages[queued]), pack(queued), Origin.DEMAND))
            turn.reads_wanted = True
    turn.answerable[number] = None


def _look_up(state: State, pages: Ints) -> tuple[Ints, Ints, Available]:
    """(buffer, read, available) by page; -1 for none."""
    known = np.where(pages == NONE, 0, pages) if len(state.pages.keys) else np.zeros_like(pages)
    missing = pages == NONE
    buffers = state.pages.buffer[known]
    reading = state.pages.read[known]
    available = (buffers >= 0) | (reading >= 0) | (state.pages.slot[known] >= 0)
    if missing.any():
        buffers[missing] = -1
        reading[missing] = -1
        available[missing] = False
    return buffers, reading, available


def _own(turn: Turn, hits: Ints) -> None:
    """Foreground demand promotes what it takes ownership of, and makes it recent."""
    if not len(hits):
        return
    table = turn.state.buffers
    classes = np.array([page_class for page_class, _ in table.queue_numbers], np.int64)
    lower = classes[table.queue[hits]] != PageClass.RETAINED
    if lower.any():
        turn.emit(PagesPromoted(pack(hits[lower])))
        hits = hits[~lower]
    if len(hits):
        turn.emit(PagesTouched(pack(hits)))
