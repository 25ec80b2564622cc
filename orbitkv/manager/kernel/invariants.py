"""Invariants in full: every total recomputed from the tables. AssertionError names the first that fails.

`apply` asserts what it can see of one fact; this looks at everything, so it costs O(state). The manager
runs it once in some thousand records, tests after every one.
"""

import numpy as np

from orbitkv.events.geometry import image_bytes
from orbitkv.events.outcomes import Phase
from orbitkv.manager.kernel.answering import draining_bytes
from orbitkv.manager.kernel.apply_hints import all_pending
from orbitkv.manager.kernel.buffers import Busy
from orbitkv.manager.kernel.columns import NONE
from orbitkv.manager.kernel.sharing import paid_bytes
from orbitkv.manager.kernel.slots import SlotState
from orbitkv.manager.kernel.state import State


def check(state: State) -> None:
    if not state.started:
        return
    _check_reservations(state)
    _check_holds(state)
    _check_memory(state)
    _check_reads(state)
    _check_slots(state)
    _check_pages(state)
    _check_cohort(state)
    totals = state.totals
    asked = totals.dram_pages + totals.ssd_pages + totals.miss_pages
    assert asked == totals.asked_pages, "dram + peer + ssd + miss = asked"


def _check_cohort(state: State) -> None:
    table, totals = state.buffers, state.totals
    pending = int(table.footprint[all_pending(state)].sum())
    assert pending == state.pending_bytes, "pending bytes add up"
    resolved = totals.restored_bytes + sum(totals.unused_bytes.values())
    assert totals.prepared_bytes == resolved + pending, "prepared = restored + unused + pending"


def _check_reservations(state: State) -> None:
    charges = [r.charge_bytes for r in state.reservations.values()]
    assert state.reserved_bytes == sum(charges) == sum(state.reserved_by_phase), "reserved bytes add up"
    assert state.reserved_bytes <= state.config.query_budget_bytes, "the global budget holds"
    warming = state.reserved_by_phase[Phase.WARMING]
    assert warming <= state.config.query_budget_bytes // state.config.speculative_divisor, "the hints' share"
    for number, instance in state.instances.items():
        mine = sum(r.charge_bytes for r in state.reservations.values() if r.instance == number)
        assert instance.reserved_bytes == mine, f"instance {number}'s reserved bytes add up"
        hints = (r for r in state.reservations.values() if r.phase == Phase.WARMING)
        speculative = sum(r.charge_bytes for r in hints if r.instance == number)
        assert instance.warming_bytes == speculative, f"instance {number}'s warming bytes add up"
        assert mine <= state.config.instance_query_budget_bytes, f"instance {number}'s budget holds"
    for number, reservation in state.reservations.items():
        operation = state.operations.get(number)
        if state.config.charge_shared:
            assert reservation.charge_bytes == paid_bytes(state, number), f"operation {number} pays its pages"
        elif operation is None or operation.lease >= 0:
            needed = reservation.lease_bytes + draining_bytes(state, number)
            assert reservation.charge_bytes == needed > 0, f"operation {number} reserves what it needs"


def _check_holds(state: State) -> None:
    table = state.buffers
    holds = np.zeros(len(table.holds), np.int64)
    for operation in state.operations.values():
        if operation.granted and operation.lease < 0 and not operation.hint:
            holds[operation.buffers[operation.buffers >= 0]] += 1
    for lease in state.leases.values():
        copies = sum(consumer.holds for consumer in lease.shares.values())
        assert copies or not lease.ended, "a lease that ended without copies is released"
        holds[lease.buffers] += copies + (not lease.ended)
    assert (holds == table.holds).all(), "every hold has an owner"


def _check_memory(state: State) -> None:
    table = state.buffers
    live = table.live()
    assert len(live) == table.live_count(), "every row is live or free"
    assert int(table.slot_bytes[live].sum()) == state.superblocks.used_bytes, "used bytes add up"
    ends = np.sort(table.offset[live]) + table.slot_bytes[live][np.argsort(table.offset[live])]
    assert (ends[:-1] <= np.sort(table.offset[live])[1:]).all(), "buffers do not overlap"
    indexed = live[table.queue[live] >= 0]
    assert (state.pages.buffer[table.page[indexed]] == indexed).all(), (
        "an indexed buffer is found by its page"
    )
    unowned = (table.queue[live] < 0) & (table.holds[live] == 0) & (table.busy[live] == 0)
    assert not unowned.any(), "a buffer that is nobody's is freed"
    queued = sum(len(queue.entries(table)) for queue in table.queues)
    assert queued == len(indexed), "every indexed buffer is in one queue, once"


def _check_reads(state: State) -> None:
    in_flight = {True: 0, False: 0}
    for number, read in state.reads.items():
        queued = (number in state.read_queue) + (number in state.warm_queue)
        assert read.submitted + queued == 1, "a read is queued or submitted"
        demanded = any(not state.operations[waiter].hint for waiter in read.waiters)
        assert read.submitted or demanded == (number in state.read_queue), "hints' reads yield to demand's"
        assert state.pages.read[read.page] == number, "a page knows its read"
        assert read.waiters or read.submitted, "nobody wants a queued read: it left the queue"
        for operation, position in read.waiters.items():
            assert state.operations[operation].awaited[number] == position, "waiter and read agree"
        if read.submitted:
            in_flight[read.foreground] += image_bytes(read.footprint_bytes)
            assert state.buffers.busy[read.buffer] & Busy.READING, "a read owns its memory"
    writing = sum(state.slots.segment_of(slot).slot_bytes for slot in state.writing)
    assert in_flight[True] == state.foreground_bytes_in_flight, "foreground bytes in flight add up"
    background = in_flight[False] + writing
    assert background == state.background_bytes_in_flight, "background bytes in flight add up"


def _check_slots(state: State) -> None:
    table = state.slots
    assert len(table.segments) <= table.segments_max, "the SSD's cap holds"
    for number, segment in table.segments.items():
        written = np.flatnonzero(segment.state == SlotState.WRITTEN)
        assert (state.pages.slot[segment.page[written]] == number * table.slots_max + written).all(), (
            "a written slot is found by its page"
        )
        mine = [slot for slot in state.writing if slot // table.slots_max == number]
        reading = sum(segment.readers)
        assert segment.in_flight == len(mine) + reading, f"segment {number}'s work in flight adds up"
        assert len(set(segment.free)) == len(segment.free), "a free place is free once"
        assert (segment.state[segment.free] == SlotState.FREE).all(), "free places are free"


def _check_pages(state: State) -> None:
    table = state.pages
    count = len(table.keys)
    references = np.zeros(len(table.references), np.int64)
    np.add.at(references, state.buffers.page[state.buffers.live()], 1)
    for segment in state.slots.segments.values():
        np.add.at(references, segment.page[segment.page >= 0], 1)
    np.add.at(references, [read.page for read in state.reads.values()], 1)
    for reservation in state.reservations.values():
        for page in reservation.claimed:
            references[page] += 1
    for number in state.waiting:
        for part in state.operations[number].parts:
            references[part.pages[part.pages != NONE]] += 1
    assert (references[:count] == table.references[:count]).all(), "references add up"
    bound = table.space[:count] >= 0
    assert (table.references[:count][bound] > 0).all(), "an unreferenced page is unbound"
    assert sum(len(space.index) for space in table.spaces) == int(bound.sum()), "every bound page has a key"
