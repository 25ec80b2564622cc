"""Saves: pages that an engine has computed, on their way into DRAM.

    BeginSave  -> wanted pages get buffers (new), or the rank joins a page that others are filling
    CommitSave -> the carrier copies the rank's slices out of its staging window
    all slices -> the carrier seals the page (checksum, trailer)
    sealed     -> visible, retained, acknowledged; then queued for the SSD

A page that misses a rank is invisible and is freed at its deadline or with the rank's session.
Memory that a copy or a seal is using is freed when that has ended. No room, no credit: the save is
dropped and counted; an engine never waits.
"""

from collections.abc import Iterable

import numpy as np

from orbitkv.events.commands import AbortSave, BeginSave, CommitSave, CompleteCopies, CompleteSeals
from orbitkv.events.facts import (
    CopiesLost,
    CopiesStarted,
    PagesBound,
    PagesInserted,
    PagesPromoted,
    PagesSealed,
    PagesTouched,
    SaveBegun,
    SaveJoined,
    SavesDropped,
    SavesEnded,
    SealsEnded,
    SealsStarted,
    SlicesFilled,
    StaleCompletion,
)
from orbitkv.events.outcomes import CopyOutcome, Origin, PageClass, Refusal, SaveDrop
from orbitkv.manager.kernel.columns import NONE, Ints, pack, unpack, unpack_wide
from orbitkv.manager.kernel.lookups import checked_pages, registered
from orbitkv.manager.kernel.reclaim import allocate
from orbitkv.manager.kernel.state import GroupLayout, Save, Session, State
from orbitkv.manager.kernel.turn import Refuse, Turn
from orbitkv.manager.kernel.writes import queue_writes


def begin_save(turn: Turn, command: BeginSave) -> None:
    state = turn.state
    session = registered(state, command.session)
    layout = state.instances[session.instance].groups.get(command.group)
    if layout is None:
        raise Refuse(Refusal.MALFORMED, f"group {command.group} is not registered")
    if state.shutting_down:
        raise Refuse(Refusal.SHUTTING_DOWN, "the manager is shutting down and admits nothing more")
    if command.uncredited_pages < 0:
        raise Refuse(Refusal.MALFORMED, "a count of pages is not negative")
    pages = checked_pages(state, layout.space, command.pages, command.unknown)
    if command.uncredited_pages:
        turn.emit(SavesDropped(SaveDrop.NO_CREDIT, command.uncredited_pages))
    if session.rank not in layout.fills:
        turn.emit(SavesDropped(SaveDrop.IN_PROGRESS, len(pages)))
        return
    known = pages[pages != NONE]
    absent, joined = _sort_known(turn, session, layout, known)
    room = max(0, command.credit_pages - joined)
    absent, unknown = absent[:room], command.unknown[: max(0, room - len(absent))]
    uncredited = len(known[(state.pages.buffer[known] < 0) & (state.pages.saving[known] < 0)]) - len(absent)
    uncredited += len(command.unknown) - len(unknown)
    if uncredited:
        turn.emit(SavesDropped(SaveDrop.NO_CREDIT, uncredited))
    fresh = len(unknown)
    wanted = np.concatenate([absent, np.array(state.pages.next_numbers(fresh), np.int64)])
    if not len(wanted):
        return
    if fresh:
        turn.emit(PagesBound(layout.space, pack(wanted[len(absent) :]), unknown))
        turn.loosened.append(wanted[len(absent) :])
    buffers = allocate(turn, wanted, layout.footprint_bytes, 0)
    if len(buffers):
        deadline_ns = turn.at_ns + state.config.save_lifetime_ns
        turn.emit(SaveBegun(session.instance, command.group, pack(buffers), deadline_ns))
    if len(buffers) < len(wanted):
        turn.emit(SavesDropped(SaveDrop.NO_ROOM, len(wanted) - len(buffers)))


def _sort_known(turn: Turn, session: Session, layout: GroupLayout, known: Ints) -> tuple[Ints, int]:
    """Deal with pages that are here or on their way.

    Returns the pages that must be saved anew, and how many the rank joined.
    """
    state = turn.state
    resident = known[state.pages.buffer[known] >= 0]
    rest = known[state.pages.buffer[known] < 0]
    if len(resident):
        turn.emit(SavesDropped(SaveDrop.RESIDENT, len(resident)))
        promote(turn, state.pages.buffer[resident])
    filling = state.pages.saving[rest]
    joined, busy = [], 0
    for buffer in filling[filling >= 0].tolist():
        save = state.saves[buffer]
        if session.rank in save.filled or session.rank in save.copying or save.instance != session.instance:
            busy += 1
        else:
            joined.append(buffer)
    if busy:
        turn.emit(SavesDropped(SaveDrop.IN_PROGRESS, busy))
    if joined:
        number = state.instances[session.instance].ranks[session.rank].session
        turn.emit(SaveJoined(number, pack(joined)))
    return rest[filling < 0], len(joined)


def promote(turn: Turn, buffers: Ints) -> None:
    """A save found these pages resident: they are worth keeping, and recent."""
    lower = turn.state.buffers.below_retained(buffers)
    turn.emit(PagesTouched(pack(buffers)))
    if len(lower):
        turn.emit(PagesPromoted(pack(lower)))


def commit_save(turn: Turn, command: CommitSave) -> None:
    state = turn.state
    session = registered(state, command.session)
    buffers = unpack(command.buffers).tolist()
    offsets = unpack_wide(command.staging_offsets).tolist()
    generations = unpack_wide(command.generations).tolist()
    if not len(buffers) == len(offsets) == len(generations) or len(set(buffers)) < len(buffers):
        raise Refuse(Refusal.MALFORMED, "every saved page has one place in the staging window")
    kept: list[int] = []
    places: list[int] = []
    for buffer, offset, generation in zip(buffers, offsets, generations, strict=True):
        save = _own_save(state, session, buffer, generation)
        if save is None or session.rank in save.filled or session.rank in save.copying:
            continue
        layout = state.instances[save.instance].groups[save.group]
        window_bytes = session.staging_bytes
        if session.rank not in layout.fills or not 0 <= offset <= window_bytes - layout.staging[session.rank]:
            raise Refuse(
                Refusal.MALFORMED,
                f"staging offset {offset} does not leave room for a page in a window of {window_bytes} bytes",
            )
        kept.append(buffer)
        places.append(offset)
    if kept:
        turn.emit(CopiesStarted(command.session, session.rank, pack(kept), np.array(places, "<i8").tobytes()))


def _own_save(state: State, session: Session, buffer: int, generation: int) -> Save | None:
    """The save, if it still takes slices and is the one that the plan meant."""
    save = state.saves.get(buffer)
    if save is None or save.given_up or state.buffers.generation[buffer] != generation:
        return None
    if save.instance != session.instance:
        raise Refuse(Refusal.FOREIGN, "the save belongs to another instance")
    return save


def abort_save(turn: Turn, command: AbortSave) -> None:
    state = turn.state
    session = registered(state, command.session)
    buffers, generations = unpack(command.buffers).tolist(), unpack_wide(command.generations).tolist()
    if len(buffers) != len(generations):
        raise Refuse(Refusal.MALFORMED, "every saved page has one generation")
    planned = zip(buffers, generations, strict=True)
    own = [buffer for buffer, made in planned if _own_save(state, session, buffer, made) is not None]
    drop_saves(turn, list(dict.fromkeys(own)), SaveDrop.ABORTED)


def drop_saves(turn: Turn, buffers: Iterable[int], reason: SaveDrop) -> None:
    """Give up half-filled pages; memory that is being copied into or sealed is freed when that ends."""
    state = turn.state
    dropped = [b for b in buffers if not state.saves[b].given_up]
    if not dropped:
        return
    turn.emit(SavesDropped(reason, len(dropped), pack(dropped)))
    _free_given_up(turn, dropped)


def _free_given_up(turn: Turn, buffers: Iterable[int]) -> None:
    state = turn.state
    saves = {buffer: state.saves[buffer] for buffer in buffers}
    ended = [b for b, s in saves.items() if s.given_up and not s.copying and not s.sealing]
    if ended:
        turn.loosened.append(np.array([saves[b].page for b in ended], np.int64))
        turn.released.append(np.array(ended, np.int64))
        turn.instances.update(dict.fromkeys(saves[b].instance for b in ended))
        turn.emit(SavesEnded(pack(ended)))


def drop_overtaken(turn: Turn, landed: Ints) -> None:
    """Pages that ranks are saving have just landed from the SSD: the resident generation stays."""
    state = turn.state
    saving = state.pages.saving[state.buffers.page[landed]]
    if (saving >= 0).any():
        drop_saves(turn, saving[saving >= 0].tolist(), SaveDrop.RESIDENT)
        promote(turn, landed[saving >= 0])


def drop_saves_of_rank(turn: Turn, instance: int, rank: int, reason: SaveDrop) -> None:
    """The rank's session ends: pages that still miss its slices will never be complete."""
    state = turn.state
    if not state.instances[instance].saves:
        return
    incomplete = [
        buffer
        for buffer, save in state.saves.items()
        if save.instance == instance
        and rank in state.instances[instance].groups[save.group].fills
        and rank not in save.filled
    ]
    drop_saves(turn, incomplete, reason)


def complete_copies(turn: Turn, command: CompleteCopies) -> None:
    state = turn.state
    buffers = unpack(command.buffers).tolist()
    if len(buffers) != len(command.outcomes):
        raise Refuse(Refusal.MALFORMED, "the columns of a completion must have equal lengths")
    filled: list[int] = []
    lost: list[int] = []
    seen: set[int] = set()
    for buffer, outcome in zip(buffers, command.outcomes, strict=True):
        save = state.saves.get(buffer)
        if save is None or command.rank not in save.copying or buffer in seen:
            continue
        seen.add(buffer)
        if outcome == CopyOutcome.COPIED and not save.given_up:
            filled.append(buffer)
        else:
            lost.append(buffer)
    if len(seen) < len(buffers):
        turn.emit(StaleCompletion("copy", len(buffers) - len(seen)))
    if filled:
        turn.emit(SlicesFilled(command.session, command.rank, pack(filled), command.elapsed_us))
    if lost:
        turn.emit(CopiesLost(command.session, command.rank, pack(lost)))
        drop_saves(turn, lost, SaveDrop.SOURCE_GONE)
        _free_given_up(turn, [buffer for buffer in lost if buffer in state.saves])
    complete = [b for b in filled if _is_complete(state, state.saves[b])]
    if complete:
        turn.emit(SealsStarted(pack(complete)))


def _is_complete(state: State, save: Save) -> bool:
    fills = state.instances[save.instance].groups[save.group].fills
    return len(save.filled) == len(fills)


def complete_seals(turn: Turn, command: CompleteSeals) -> None:
    state = turn.state
    buffers = unpack(command.buffers).tolist()
    sealing = [b for b in dict.fromkeys(buffers) if b in state.saves and state.saves[b].sealing]
    if len(sealing) < len(buffers):
        turn.emit(StaleCompletion("seal", len(buffers) - len(sealing)))
    given_up = [b for b in sealing if state.saves[b].given_up]
    if sealing:
        turn.emit(SealsEnded(pack(sealing)))
    _free_given_up(turn, given_up)
    sealed = [b for b in sealing if b in state.saves]
    overtaken = [b for b in sealed if state.pages.buffer[state.saves[b].page] >= 0]
    if overtaken:
        resident = np.array([state.pages.buffer[state.saves[b].page] for b in overtaken], np.int64)
        drop_saves(turn, overtaken, SaveDrop.RESIDENT)
        promote(turn, resident)
    saved = [b for b in sealed if b in state.saves]
    if saved:
        turn.instances.update(dict.fromkeys(state.saves[b].instance for b in saved))
        turn.emit(PagesSealed(pack(saved)))
        turn.emit(PagesInserted(pack(saved), PageClass.RETAINED, Origin.DEMAND))
        queue_writes(turn, saved)
