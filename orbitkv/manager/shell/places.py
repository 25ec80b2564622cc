"""Turns the kernel's numbers into what the ports need: offsets, identities, lengths.

Called when an effect is released, which may be later than its decision. That is sound because what an
effect names is busy until its completion is stepped, so its rows cannot have moved on meanwhile.
Only reads the state.
"""

from collections.abc import Callable, Iterator

from orbitkv.events.geometry import image_bytes
from orbitkv.manager.kernel.state import State
from orbitkv.manager.kernel.views import buffer_place, page_name, slot_place
from orbitkv.manager.ports import PageIdentity, PageRead, PageSeal, PageWrite, SliceCopy


def page_read(state: State, token: int, buffer: int, slot: int, *, foreground: bool) -> PageRead:
    memory, disk = buffer_place(state, buffer), slot_place(state, slot)
    return PageRead(
        token=token,
        slot=slot,
        file_offset=disk.file_offset,
        pool_offset=memory.offset,
        image_bytes=image_bytes(memory.footprint_bytes),
        identity=_identity(state, memory.page, disk.incarnation, disk.generation),
        foreground=foreground,
    )


def page_write(state: State, token: int, buffer: int, slot: int) -> PageWrite:
    memory, disk = buffer_place(state, buffer), slot_place(state, slot)
    return PageWrite(
        token=token,
        slot=slot,
        file_offset=disk.file_offset,
        pool_offset=memory.offset,
        image_bytes=image_bytes(memory.footprint_bytes),
        identity=_identity(state, memory.page, disk.incarnation, disk.generation),
        segment=disk.segment,
        slot_index=disk.index,
    )


def page_seal(state: State, token: int, buffer: int) -> PageSeal:
    memory = buffer_place(state, buffer)
    return PageSeal(
        token=token,
        pool_offset=memory.offset,
        footprint_bytes=memory.footprint_bytes,
        identity=_identity(state, memory.page, state.incarnation, memory.generation),
    )


def slice_copies(
    state: State, new_token: Callable[[], int], session: int, rank: int, buffer: int, staging_offset: int
) -> Iterator[SliceCopy]:
    """The copies that fill one rank's part of one page."""
    # Through the save and not the session, which may have ended in the meantime.
    save = state.saves[buffer]
    pool_offset = int(state.buffers.offset[buffer])
    for piece in state.instances[save.instance].groups[save.group].fills[rank]:
        yield SliceCopy(
            token=new_token(),
            session=session,
            staging_offset=staging_offset + piece.staging_offset,
            pool_offset=pool_offset + piece.image_offset,
            payload_bytes=piece.payload_bytes,
            padded_bytes=piece.padded_bytes,
        )


def _identity(state: State, page: int, incarnation: int, generation: int) -> PageIdentity:
    name = page_name(state, page)
    return PageIdentity(
        namespace_digest=name.namespace_digest,
        group=name.group,
        key=name.key,
        incarnation=incarnation,
        generation=generation,
    )
