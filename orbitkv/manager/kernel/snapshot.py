"""The state as bytes and back, and its digest. Equal states give equal bytes.

Tables are dumped column by column; what can be derived (indexes by key, the recency queues' stale
entries) is left out. The digest is a hash over the dump: computed at segment starts and by replay,
not kept up to date on every record.
"""

import hashlib
from collections import OrderedDict
from typing import Any

import attrs
import msgspec
import numpy as np

from orbitkv.events.config import KernelConfig
from orbitkv.events.outcomes import PageClass
from orbitkv.manager.kernel.apply_sharing import stand_in_line
from orbitkv.manager.kernel.buffers import BufferTable
from orbitkv.manager.kernel.columns import Ints
from orbitkv.manager.kernel.pages import PageTable, Space
from orbitkv.manager.kernel.slots import Segment
from orbitkv.manager.kernel.state import (
    Decision,
    Instance,
    Lease,
    Operation,
    Process,
    Read,
    Reservation,
    Save,
    Session,
    State,
    Totals,
)
from orbitkv.manager.kernel.superblocks import Superblocks, SuperblocksSnapshot

_PAGE_COLUMNS = ("space", "buffer", "slot", "read", "saving", "references")
_BUFFER_COLUMNS = (
    "page",
    "offset",
    "slot_bytes",
    "footprint",
    "generation",
    "holds",
    "busy",
    "queue",
    "last",
    "landed_ns",
    "origin",
    "cohort",
)
_SEGMENT_COLUMNS = ("state", "page", "generation", "incarnation", "failures")
_SCALARS = (
    "incarnation",
    "seq",
    "at_ns",
    "started",
    "shutting_down",
    "closed",
    "host",
    "store_writable",
    "store_reason",
    "generation_next",
    "lease_next",
    "read_next",
    "instance_next",
    "session_high",
    "reserved_bytes",
    "foreground_bytes_in_flight",
    "background_bytes_in_flight",
    "pending_bytes",
)
_ORDERED = ("unanswered", "waiting", "promised", "read_queue", "warm_queue", "write_queue", "hints")


class _Image(msgspec.Struct, array_like=True):
    kernel_revision: int
    config: KernelConfig
    scalars: dict[str, Any]
    ordered: dict[str, list[int]]
    reserved_by_phase: list[int]
    sessions: dict[int, Session]
    processes: dict[int, Process]
    instances: dict[int, Instance]
    instance_names: dict[str, int]
    spaces: list[tuple[bytes, int]]
    keys: list[bytes]
    page_columns: dict[str, bytes]
    page_free: list[int]
    buffer_rows: int
    buffer_free: list[int]
    buffer_columns: dict[str, bytes]
    queues: list[tuple[int, int, bytes]]
    superblocks: SuperblocksSnapshot
    segments: list[tuple[int, int, int, bool, int, dict[str, bytes], list[int], list[int]]]
    operations: list[tuple[int, Operation]]
    by_request: list[tuple[int, str, int, int]]
    decisions: list[tuple[int, str, int, Decision]]
    hint_requests: list[tuple[int, str, int, int]]
    leases: list[tuple[int, Lease]]
    reservations: list[tuple[int, Reservation]]
    reads: list[tuple[int, Read]]
    saves: list[tuple[int, Save]]
    writing: list[tuple[int, int]]
    totals: Totals


def _to_plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.astype("<i8").tobytes()
    raise TypeError(f"a {type(value).__name__} does not belong in the state")


def _from_plain(kind: Any, value: Any) -> Any:
    return np.frombuffer(value, "<i8").astype(np.int64)


_encoder = msgspec.msgpack.Encoder(enc_hook=_to_plain)
_decoder = msgspec.msgpack.Decoder(_Image, dec_hook=_from_plain)


def snapshot(state: State) -> bytes:
    """Everything that `restore` needs; about 120 bytes per resident page and the keys."""
    pages, table = state.pages, state.buffers
    used = len(pages.keys)
    return _encoder.encode(
        _Image(
            state.kernel_revision,
            state.config,
            {name: getattr(state, name) for name in _SCALARS},
            {name: list(getattr(state, name)) for name in _ORDERED},
            state.reserved_by_phase,
            state.sessions,
            state.processes,
            state.instances,
            state.instance_names,
            [(space.namespace_digest, space.group) for space in pages.spaces],
            pages.keys,
            {name: getattr(pages, name)[:used].tobytes() for name in _PAGE_COLUMNS},
            pages.free,
            table.rows,
            table.free,
            {name: getattr(table, name)[: table.rows].tobytes() for name in _BUFFER_COLUMNS},
            [
                (page_class, slot_bytes, table.queues[number].entries(table).tobytes())
                for (page_class, slot_bytes), number in table.queue_numbers.items()
            ],
            state.superblocks.snapshot(),
            [_dump_segment(number, segment) for number, segment in state.slots.segments.items()],
            list(state.operations.items()),
            [(*key, operation) for key, operation in state.by_request.items()],
            [(*key, decision) for key, decision in state.decisions.items()],
            [(*key, operation) for key, operation in state.hint_requests.items()],
            list(state.leases.items()),
            list(state.reservations.items()),
            list(state.reads.items()),
            list(state.saves.items()),
            list(state.writing.items()),
            state.totals,
        )
    )


def _dump_segment(
    number: int, segment: Segment
) -> tuple[int, int, int, bool, int, dict[str, bytes], list[int], list[int]]:
    columns = {name: getattr(segment, name).tobytes() for name in _SEGMENT_COLUMNS}
    return (
        number,
        segment.slot_bytes,
        segment.touched,
        segment.draining,
        segment.in_flight,
        columns,
        segment.free,
        segment.readers,
    )


def digest(state: State) -> int:
    """64 bits that differ when the states do."""
    return int.from_bytes(hashlib.blake2b(snapshot(state), digest_size=8).digest(), "little")


def restore(data: bytes) -> State:
    """The state that `snapshot` dumped. Raises msgspec.DecodeError on anything else."""
    image = _decoder.decode(data)
    state = State(image.config, image.kernel_revision)
    for name, value in image.scalars.items():
        setattr(state, name, value)
    for name, numbers in image.ordered.items():
        setattr(state, name, OrderedDict.fromkeys(numbers))
    for name in ("reserved_by_phase", "sessions", "processes", "instances", "instance_names", "totals"):
        setattr(state, name, getattr(image, name))
    for name in ("operations", "leases", "reservations", "reads", "writing"):
        setattr(state, name, dict(getattr(image, name)))
    state.saves = OrderedDict(image.saves)
    state.by_request = {(a, b, c): operation for a, b, c, operation in image.by_request}
    state.decisions = OrderedDict(((a, b, c), decision) for a, b, c, decision in image.decisions)
    state.hint_requests = {(a, b, c): operation for a, b, c, operation in image.hint_requests}
    state.decided = {decision.operation: key for key, decision in state.decisions.items()}
    for operation, reservation in state.reservations.items():
        for page in reservation.claimed:
            stand_in_line(state, operation, page)
    _restore_pages(state, image)
    _restore_buffers(state.buffers, image)
    state.superblocks = Superblocks.restore(image.superblocks)
    for number, slot_bytes, touched, draining, in_flight, columns, free, readers in image.segments:
        arrays = {
            name: np.frombuffer(columns[name], dtype).copy()
            for name, dtype in zip(
                _SEGMENT_COLUMNS, (np.int8, np.int64, np.int64, np.int64, np.int8), strict=True
            )
        }
        state.slots.segments[number] = Segment(
            slot_bytes=slot_bytes,
            touched=touched,
            draining=draining,
            in_flight=in_flight,
            free=free,
            readers=readers,
            **arrays,
        )
    return state


def _restore_pages(state: State, image: _Image) -> None:
    table: PageTable = state.pages
    table.spaces = [Space(namespace_digest, group) for namespace_digest, group in image.spaces]
    table.keys = image.keys
    table.free = image.page_free
    _load_columns(table, image.page_columns, len(image.keys), {"references": 0})
    for page, key in enumerate(table.keys):
        space = int(table.space[page])
        if space >= 0:
            table.spaces[space].index[key] = page
    state.space_numbers = {(s.namespace_digest, s.group): n for n, s in enumerate(table.spaces)}


def _restore_buffers(table: BufferTable, image: _Image) -> None:
    table.rows = image.buffer_rows
    table.free = image.buffer_free
    fills = dict.fromkeys(_BUFFER_COLUMNS, 0) | {"page": -1, "queue": -1}
    _load_columns(table, image.buffer_columns, image.buffer_rows, fills)
    for page_class, slot_bytes, entries in image.queues:
        queue = table.queue_for(PageClass(page_class), slot_bytes)
        buffers: Ints = np.frombuffer(entries, np.int64)
        for buffer in buffers:
            queue.append(buffer[None], int(table.last[buffer]), table)


def _load_columns(
    table: PageTable | BufferTable, columns: dict[str, bytes], rows: int, fills: dict[str, int]
) -> None:
    for name, data in columns.items():
        old = getattr(table, name)
        array = np.full(max(64, rows), fills.get(name, -1), old.dtype)
        array[:rows] = np.frombuffer(data, old.dtype)
        setattr(table, name, array)


def _check_complete() -> None:
    """Every field of the state is dumped or derived; a new one must be placed in one of the two."""
    placed = {*_SCALARS, *_ORDERED, *_Image.__struct_fields__}
    derived = {"pages", "buffers", "slots", "space_numbers", "decided", "claims"}
    missing = {field.name for field in attrs.fields(State)} - placed - derived
    assert not missing, f"the snapshot forgets {sorted(missing)}"


_check_complete()
