"""Start, clock, recovery, operator's wishes, the end."""

from collections.abc import Iterable, Mapping
from itertools import takewhile

import numpy as np

from orbitkv.events.commands import RecoverSegment, Start
from orbitkv.events.facts import (
    IncarnationClosed,
    IncarnationStarted,
    PagesBound,
    PagesUnused,
    SegmentOpened,
    ShutdownBegun,
    SlotsCondemned,
    SlotsRecovered,
    SpaceOpened,
)
from orbitkv.events.outcomes import (
    EvictionReason,
    HintEnd,
    LeaseEnd,
    PageClass,
    QueryEnd,
    Refusal,
    SaveDrop,
    Unused,
)
from orbitkv.manager.kernel.answering import end_lease, end_operation
from orbitkv.manager.kernel.apply_hints import all_pending
from orbitkv.manager.kernel.columns import pack, unpack, unpack_wide
from orbitkv.manager.kernel.hints import end_hint
from orbitkv.manager.kernel.reclaim import evict
from orbitkv.manager.kernel.saves import drop_saves
from orbitkv.manager.kernel.state import Lease, Operation, Save, State
from orbitkv.manager.kernel.turn import Refuse, Turn


def start(turn: Turn, command: Start) -> None:
    if turn.state.started:
        raise Refuse(Refusal.MALFORMED, "the incarnation has started already")
    turn.emit(IncarnationStarted(command.incarnation, command.kernel_revision, command.config, command.host))


def next_deadline(state: State) -> int | None:
    """When the next operation, lease or save runs out; None if nothing can."""
    deadlines = []
    if state.unanswered:
        deadlines.append(state.operations[next(iter(state.unanswered))].deadline_ns)
    if state.hints:
        deadlines.append(state.operations[next(iter(state.hints))].deadline_ns)
    if state.promised:
        deadlines.append(state.leases[next(iter(state.promised))].deadline_ns)
    for save in state.saves.values():
        if not save.given_up:
            deadlines.append(save.deadline_ns)
            break
    return min(deadlines, default=None)


def tick(turn: Turn) -> None:
    state = turn.state
    for number in _due(turn.at_ns, state.unanswered, state.operations):
        end_operation(turn, number, QueryEnd.EXPIRED)
    for number in _due(turn.at_ns, state.hints, state.operations):
        end_hint(turn, number, HintEnd.EXPIRED)
    for number in _due(turn.at_ns, state.promised, state.leases):
        _end_promise(turn, number, QueryEnd.LEASE_EXPIRED, LeaseEnd.EXPIRED)
    drop_saves(turn, _due(turn.at_ns, state.saves, state.saves), SaveDrop.EXPIRED)


def _end_promise(turn: Turn, lease: int, query_end: QueryEnd, lease_end: LeaseEnd) -> None:
    """End a lease with its operation; the operation may have ended before, with its opener's session."""
    operation = turn.state.leases[lease].operation
    if operation in turn.state.operations:
        end_operation(turn, operation, query_end)
    else:
        end_lease(turn, lease, lease_end)


def _due(
    at_ns: int,
    numbers: Iterable[int],
    rows: Mapping[int, Operation] | Mapping[int, Lease] | Mapping[int, Save],
) -> list[int]:
    """Those of `numbers`, which are in deadline order, that have run out."""
    return list(takewhile(lambda number: rows[number].deadline_ns <= at_ns, numbers))


def drop_dram(turn: Turn) -> None:
    """Evict every page that nobody holds. What the SSD has stays there."""
    table = turn.state.buffers
    for (page_class, _), number in list(table.queue_numbers.items()):
        buffers = table.queues[number].entries(table)
        unheld = buffers[table.holds[buffers] == 0]
        if len(unheld):
            evict(turn, unheld, PageClass(page_class), EvictionReason.CLEANUP)


def recover_segment(turn: Turn, command: RecoverSegment) -> None:
    """Serve an earlier incarnation's slots again. A page in two slots keeps the first.

    A segment beyond the configured capacity, or with slots of another size than was recovered for it
    before, is left alone: the cap holds, and its place is overwritten in time.
    """
    state = turn.state
    table = state.slots
    if state.session_high:
        raise Refuse(Refusal.MALFORMED, "slots are recovered before the first session")
    if command.segment >= table.segments_max or not 0 < command.slot_bytes <= table.segment_bytes:
        return
    if command.segment not in table.segments:
        turn.emit(SegmentOpened(command.segment, command.slot_bytes))
    if table.segments[command.segment].slot_bytes != command.slot_bytes:
        return
    if command.quarantined:
        turn.emit(SlotsCondemned(command.segment, command.quarantined))
    spaces = [_space(turn, *scope) for scope in command.scopes]
    scope_of = unpack(command.spaces)
    kept: list[int] = []
    pages: list[int] = []
    fresh: dict[int, list[int]] = {}
    seen: set[tuple[int, bytes]] = set()
    for place, key in enumerate(command.keys):
        space = spaces[int(scope_of[place])]
        page = state.pages.spaces[space].index.get(key)
        if (space, key) in seen or (page is not None and state.pages.slot[page] >= 0):
            continue
        seen.add((space, key))
        kept.append(place)
        pages.append(-1 if page is None else page)
        if page is None:
            fresh.setdefault(space, []).append(len(kept) - 1)
    for space, places in fresh.items():
        numbers = state.pages.next_numbers(len(places))
        keys = tuple(command.keys[kept[place]] for place in places)
        turn.emit(PagesBound(space, pack(numbers), keys))
        for place, page in zip(places, numbers, strict=True):
            pages[place] = page
    if kept:
        picked = np.array(kept)
        turn.emit(
            SlotsRecovered(
                command.segment,
                pack(unpack(command.slots)[picked]),
                pack(pages),
                unpack_wide(command.generations)[picked].astype("<i8").tobytes(),
                pack(unpack(command.incarnations)[picked]),
                pack(unpack(command.footprints)[picked]),
            )
        )


def _space(turn: Turn, namespace_digest: bytes, group: int) -> int:
    space = turn.state.space_numbers.get((namespace_digest, group))
    if space is None:
        space = len(turn.state.pages.spaces)
        turn.emit(SpaceOpened(space, namespace_digest, group))
    return space


def begin_shutdown(turn: Turn) -> None:
    """Promise nothing more. Copies, reads, seals and SSD writes that run are waited for."""
    state = turn.state
    if state.shutting_down:
        return
    turn.emit(ShutdownBegun())
    for number in list(state.operations):
        if number in state.hints:
            end_hint(turn, number, HintEnd.SHUTDOWN)
        elif number in state.operations:
            end_operation(turn, number, QueryEnd.SHUTDOWN)
    for number in list(state.promised):
        end_lease(turn, number, LeaseEnd.SHUTDOWN)
    drop_saves(turn, [b for b, save in state.saves.items() if not save.sealing], SaveDrop.SHUTDOWN)


def close_incarnation(turn: Turn, *, lost_tail: bool) -> None:
    begin_shutdown(turn)
    pending = all_pending(turn.state)
    if len(pending):
        turn.emit(PagesUnused(pack(pending), Unused.RESTART))
    turn.emit(IncarnationClosed(lost_tail))
