"""What facts about hints and the cohort of prepared pages do to the state."""

import numpy as np

from orbitkv.events import facts
from orbitkv.events.outcomes import Phase
from orbitkv.manager.kernel.apply_queries import retire_ticket, set_charge
from orbitkv.manager.kernel.apply_reads import let_go
from orbitkv.manager.kernel.columns import EMPTY, Ints, unpack
from orbitkv.manager.kernel.state import Operation, Part, Reservation, State

_PENDING, _RESOLVED = 1, 2
_NS_PER_US, _BYTES_PER_KIB = 1000, 1024


def hint_admitted(state: State, event: facts.HintAdmitted) -> None:
    parts = tuple(
        Part(group, page_tokens, trailing, unpack(pages), (), asked, len(pages) // 4)
        for (group, page_tokens, trailing, asked), pages in zip(event.parts, event.pages, strict=True)
    )
    needed = sum(part.needed for part in parts)
    state.operations[event.operation] = Operation(
        event.instance,
        event.session,
        event.request,
        event.attempt,
        event.revision,
        event.body,
        parts,
        event.asked_pages,
        event.charge_bytes,
        event.deadline_ns,
        state.seq,
        granted=True,
        hint=True,
        buffers=np.full(needed, -1, np.int64),
        from_ssd=np.zeros(needed, np.int64),
    )
    retire_ticket(state, event.session, event.operation & 0xFFFF_FFFF)
    state.sessions[event.session].operations[event.operation] = None
    state.hints[event.operation] = None
    state.hint_requests[event.instance, event.request, event.attempt] = event.operation
    state.reservations[event.operation] = Reservation(event.instance, 0, Phase.WARMING)
    set_charge(state, event.operation, event.charge_bytes, Phase.WARMING)
    state.totals.hints_admitted += 1


def hint_skipped(state: State, event: facts.HintSkipped) -> None:
    retire_ticket(state, event.session, event.ticket)
    skips = state.totals.hint_skips
    skips[event.reason] = skips.get(event.reason, 0) + 1


def hint_not_needed(state: State, event: facts.HintNotNeeded) -> None:
    retire_ticket(state, event.session, event.ticket)
    state.totals.hints_not_needed += 1


def hint_ended(state: State, event: facts.HintEnded) -> None:
    operation = state.operations.pop(event.operation)
    del state.hints[event.operation]
    del state.sessions[operation.session].operations[event.operation]
    key = (operation.instance, operation.request, operation.attempt)
    if state.hint_requests.get(key) == event.operation:
        del state.hint_requests[key]
    for read in operation.awaited:
        let_go(state, read, event.operation)
    ends = state.totals.hint_ends
    ends[event.end] = ends.get(event.end, 0) + 1


def warm_probed(state: State, event: facts.WarmProbed) -> None:
    assert event.dram + event.peer + event.ssd + event.miss == event.asked, "every probed page has one tier"
    totals = state.totals
    totals.probed_pages += event.asked
    totals.probed_dram_pages += event.dram
    totals.probed_ssd_pages += event.ssd
    totals.probed_miss_pages += event.miss


def pages_prepared(state: State, event: facts.PagesPrepared) -> None:
    buffers, table = unpack(event.buffers), state.buffers
    assert not table.cohort[buffers].any(), "a generation joins the cohort once"
    table.cohort[buffers] = _PENDING
    table.landed_ns[buffers] = state.at_ns
    footprint = int(table.footprint[buffers].sum())
    state.totals.prepared_bytes += footprint
    state.pending_bytes += footprint


def pages_restored(state: State, event: facts.PagesRestored) -> None:
    footprint, wait = _resolve(state, unpack(event.buffers))
    state.totals.restored_bytes += footprint
    state.totals.restored_wait_kib_us += wait


def pages_unused(state: State, event: facts.PagesUnused) -> None:
    footprint, wait = _resolve(state, unpack(event.buffers))
    unused = state.totals.unused_bytes
    unused[event.cause] = unused.get(event.cause, 0) + footprint
    state.totals.unused_wait_kib_us += wait


def _resolve(state: State, buffers: Ints) -> tuple[int, int]:
    """Close the books of prepared pages: (footprint bytes, KiB x microseconds since they landed)."""
    table = state.buffers
    assert (table.cohort[buffers] == _PENDING).all(), "an outcome is credited once"
    table.cohort[buffers] = _RESOLVED
    footprints = table.footprint[buffers]
    waited_us = (state.at_ns - table.landed_ns[buffers]) // _NS_PER_US
    state.pending_bytes -= int(footprints.sum())
    assert state.pending_bytes >= 0, "prepared = restored + unused + pending"
    return int(footprints.sum()), int((footprints // _BYTES_PER_KIB * waited_us).sum())


def pending_among(state: State, buffers: Ints) -> Ints:
    """Those of `buffers` that were prepared and whose outcome is open."""
    if not state.pending_bytes:
        return EMPTY
    pending: Ints = buffers[state.buffers.cohort[buffers] == _PENDING]
    return pending


def all_pending(state: State) -> Ints:
    return np.flatnonzero(state.buffers.cohort[: state.buffers.rows] == _PENDING)
