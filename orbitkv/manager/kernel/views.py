"""Views: what the shell may read of the state, in its own words. Pure; nothing here changes anything.

Numbers become keys, offsets and places here, at the moment an effect is carried out or a reply is
written, so that neither facts nor effects carry raw keys.
"""

from collections.abc import Sequence
from enum import IntEnum

import attrs

from orbitkv.events.commands import BeginSave
from orbitkv.events.outcomes import QueryEnd
from orbitkv.manager.kernel.columns import NONE, Ints, pack, unpack
from orbitkv.manager.kernel.state import GroupLayout, Instance, State


class QueryStatus(IntEnum):
    LOADING = 0
    """Waiting for budget or for reads: ask again."""
    READY = 1
    MISSED = 2
    BYPASSED = 3
    RETIRED = 4


@attrs.frozen(slots=True)
class QueryView:
    status: QueryStatus
    operation: int
    lease: int = 0
    boundary_tokens: int = 0
    parts: tuple[tuple[int, int, int], ...] = ()
    """(group, first page position, pages) per part, in the order of `buffers`."""
    buffers: Ints | None = None
    dram_pages: int = 0
    ssd_pages: int = 0


def resolve_keys(state: State, space: int, keys: Sequence[bytes]) -> tuple[bytes, tuple[bytes, ...]]:
    """(page numbers as a packed column with NONE_U32 for unknown keys, the unknown keys in order)"""
    pages = state.pages.resolve(space, keys)
    if None not in pages:
        return pack(pages), ()  # type: ignore[arg-type]  # no None among them
    unknown = tuple(key for key, page in zip(keys, pages, strict=True) if page is None)
    return pack([NONE if page is None else page for page in pages]), unknown


def group_layout(state: State, session: int, group: int) -> GroupLayout | None:
    """The layout of a group of the session's instance; None if it is not served or has no such group."""
    entry = state.sessions.get(session)
    if entry is None or entry.instance < 0:
        return None
    return state.instances[entry.instance].groups.get(group)


def instance_of(state: State, session: int) -> Instance | None:
    entry = state.sessions.get(session)
    return state.instances.get(entry.instance) if entry is not None else None


def find_operation(state: State, session: int, request: str, attempt: int) -> int | None:
    """The operation, live or just answered without a lease, that stands for this request."""
    entry = state.sessions.get(session)
    if entry is None:
        return None
    key = (entry.instance, request, attempt)
    number = state.by_request.get(key)
    if number is not None:
        return number
    decision = state.decisions.get(key)
    return decision.operation if decision is not None else None


def query_view(state: State, operation: int) -> QueryView:
    entry = state.operations.get(operation)
    if entry is None:
        key = state.decided.get(operation)
        if key is None:
            return QueryView(QueryStatus.RETIRED, operation)
        bypassed = state.decisions[key].end == QueryEnd.BYPASSED
        return QueryView(QueryStatus.BYPASSED if bypassed else QueryStatus.MISSED, operation)
    if entry.lease < 0:
        return QueryView(QueryStatus.LOADING, operation)
    lease = state.leases[entry.lease]
    ssd = int(entry.from_ssd.sum())
    return QueryView(
        QueryStatus.READY,
        operation,
        entry.lease,
        lease.boundary_tokens,
        lease.parts,
        lease.buffers,
        len(lease.buffers) - ssd,
        ssd,
    )


def pool_offsets(state: State, buffers: Ints) -> bytes:
    """Byte offsets in the pool as a u64 column."""
    return state.buffers.offset[buffers].astype("<u8").tobytes()


def save_plan(state: State, command: BeginSave) -> list[int]:
    """By position in the command's page list: the buffer that the rank is to fill, or NONE.

    To be asked right after the command has been stepped.
    """
    session = state.sessions[command.session]
    layout = state.instances[session.instance].groups[command.group]
    unknown = iter(command.unknown)
    index = state.pages.spaces[layout.space].index
    plan = []
    for page in unpack(command.pages).tolist():
        number = index.get(next(unknown)) if page == NONE else page
        buffer = int(state.pages.saving[number]) if number is not None else -1
        save = state.saves.get(buffer)
        wanted = (
            save is not None
            and state.pages.buffer[number] < 0  # else the command dropped it as resident
            and session.rank in layout.fills
            and save.instance == session.instance
            and session.rank not in save.filled
            and session.rank not in save.copying
        )
        plan.append(buffer if wanted else NONE)
    return plan


def generations(state: State, buffers: Sequence[int]) -> bytes:
    """Generation numbers of buffers as a u64 column."""
    return state.buffers.generation[list(buffers)].astype("<u8").tobytes()


@attrs.frozen(slots=True)
class PageName:
    namespace_digest: bytes
    group: int
    key: bytes


def page_name(state: State, page: int) -> PageName:
    space = state.pages.spaces[int(state.pages.space[page])]
    return PageName(space.namespace_digest, space.group, state.pages.keys[page])


@attrs.frozen(slots=True)
class BufferPlace:
    page: int
    offset: int
    footprint_bytes: int
    slot_bytes: int
    generation: int


def buffer_place(state: State, buffer: int) -> BufferPlace:
    table = state.buffers
    return BufferPlace(
        int(table.page[buffer]),
        int(table.offset[buffer]),
        int(table.footprint[buffer]),
        int(table.slot_bytes[buffer]),
        int(table.generation[buffer]),
    )


@attrs.frozen(slots=True)
class SlotPlace:
    segment: int
    index: int
    file_offset: int
    image_bytes: int
    generation: int
    """Of the content, with `incarnation` the one that made it."""
    incarnation: int


def slot_place(state: State, slot: int) -> SlotPlace:
    number, index = state.slots.place(slot)
    segment = state.slots.segments[number]
    return SlotPlace(
        number,
        index,
        state.slots.file_offset(slot),
        segment.slot_bytes,
        int(segment.generation[index]),
        int(segment.incarnation[index]),
    )


def unknown_holders(state: State) -> list[int]:
    """Processes that left while they copied and whose end the host cannot tell; an operator frees them."""
    return [
        number
        for number, process in state.processes.items()
        if process.copies and not process.sessions and not process.end_observable
    ]
