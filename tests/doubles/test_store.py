"""The pretended SSD: honest by default, and each way of going wrong does what it says."""

from array import array

import pytest
import trio
import trio.testing

from orbitkv.events.outcomes import ReadOutcome, WriteOutcome
from orbitkv.manager.ports import PageIdentity, PageRead, PageStore, PageWrite
from tests.doubles import Medium, MemoryStore, StoreFaults
from tests.doubles.medium import EntryCleared, EntrySet, PageData, SegmentFormatted

SEGMENT_BYTES = 1 << 20
SLOT_BYTES = 16384
SLOTS_PER_SEGMENT_MAX = 64


def identity(number):
    return PageIdentity(bytes(16), 0, bytes([number]), 1, number)


def write_of(token, index, *, page=None, pool_offset=0):
    return PageWrite(
        token, index, index * SLOT_BYTES, pool_offset, SLOT_BYTES, identity(page or token), 0, index
    )


def read_of(token, index, *, page, pool_offset=SLOT_BYTES):
    return PageRead(token, index, index * SLOT_BYTES, pool_offset, SLOT_BYTES, identity(page), True)


def open_store(medium=None, **options):
    pool = memoryview(bytearray(16 * SLOT_BYTES))
    pool[:SLOT_BYTES] = bytes(range(256)) * (SLOT_BYTES // 256)
    fresh = medium is None
    store: PageStore = MemoryStore(
        pool,
        medium or Medium(SEGMENT_BYTES),
        capacity_bytes=SEGMENT_BYTES,
        slots_per_segment_max=SLOTS_PER_SEGMENT_MAX,
        **options,
    )
    if fresh:
        store.format_segment(0, SLOT_BYTES)
    return store, pool


def with_page(index=2, page=7, **options):
    store, pool = open_store(**options)
    store.submit_writes([write_of(100, index, page=page)])
    (done,) = store.completions_nowait()
    assert done.outcome == WriteOutcome.WRITTEN
    return store, pool


def read(store, index=2, page=7, token=1):
    store.submit_reads([read_of(token, index, page=page)])
    (done,) = store.completions_nowait()
    return done


def test_what_was_written_is_read():
    store, pool = with_page()
    done = read(store)
    assert (done.outcome, done.read_bytes, done.detail) == (ReadOutcome.WHOLE, SLOT_BYTES, "")
    assert pool[SLOT_BYTES : 2 * SLOT_BYTES] == pool[:SLOT_BYTES]
    assert store.in_flight == 0


def test_another_page_in_the_slot_is_told_from_rot_and_from_nothing():
    store, _ = with_page()
    assert read(store, page=8).outcome == ReadOutcome.OTHER_PAGE
    assert read(store, index=3).outcome == ReadOutcome.CORRUPT
    store.medium.flip_bit(2 * SLOT_BYTES)
    assert read(store).outcome == ReadOutcome.CORRUPT


@pytest.mark.parametrize(
    ("outcome", "read_bytes", "intact_bytes"),
    [
        (ReadOutcome.SHORT, SLOT_BYTES // 2, SLOT_BYTES // 2),
        (ReadOutcome.FAILED, 0, 0),
        (ReadOutcome.CORRUPT, SLOT_BYTES, 0),
    ],
)
def test_a_scripted_read_fails_once_and_leaves_garbage(outcome, read_bytes, intact_bytes):
    store, pool = with_page()
    store.faults.script_read(2, outcome)
    done = read(store)
    assert (done.outcome, done.read_bytes) == (outcome, read_bytes)
    assert done.detail
    got = pool[SLOT_BYTES : 2 * SLOT_BYTES]
    assert got[:intact_bytes] == pool[:intact_bytes]
    assert got != pool[:SLOT_BYTES]
    assert read(store).outcome == ReadOutcome.WHOLE


@pytest.mark.parametrize("outcome", [WriteOutcome.SHORT, WriteOutcome.FAILED, WriteOutcome.NO_SPACE])
def test_a_scripted_write_leaves_no_entry(outcome):
    store, _ = with_page()
    store.faults.script_write(2, outcome)
    store.submit_writes([write_of(1, 2, page=9)])
    assert store.completions_nowait()[0].outcome == outcome
    assert store.medium.current.entries == {}
    assert read(store, page=9).outcome != ReadOutcome.WHOLE


def test_a_seed_draws_the_same_faults_again():
    def outcomes(seed):
        store, _ = with_page(
            faults=StoreFaults(seed, reads={ReadOutcome.SHORT: 0.2, ReadOutcome.FAILED: 0.2})
        )
        return [read(store).outcome for _ in range(200)]

    assert outcomes(1) == outcomes(1)
    assert outcomes(1) != outcomes(2)
    assert set(outcomes(1)) == {ReadOutcome.WHOLE, ReadOutcome.SHORT, ReadOutcome.FAILED}


def test_a_stalled_transfer_ends_when_released_and_not_before():
    store, _ = with_page()
    store.stall(2)
    store.submit_reads([read_of(1, 2, page=7), read_of(2, 3, page=7, pool_offset=2 * SLOT_BYTES)])

    async def main():
        assert [done.token for done in await store.completions()] == [2]
        assert store.in_flight == 1
        got = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: collect(got))
            await trio.testing.wait_all_tasks_blocked()
            assert got == []
            store.release(2)
        assert [done.token for done in got] == [1]

    async def collect(got):
        got += await store.completions()

    trio.run(main)
    assert read(store).outcome == ReadOutcome.WHOLE


def test_held_transfers_end_in_any_order():
    store, _ = with_page()
    store.stall()
    for token in (1, 2, 3):
        store.submit_reads([read_of(token, 2, page=7, pool_offset=token * SLOT_BYTES)])
    store.end(store.held[2])
    store.end(store.held[0])
    store.release()
    assert [done.token for done in store.completions_nowait()] == [3, 1, 2]
    assert read(store, token=4).outcome == ReadOutcome.WHOLE


def test_trouble_is_raised_until_it_is_over():
    store, _ = open_store()
    store.refusal = OSError(30, "read-only file system")
    for trouble in (
        lambda: store.format_segment(0, SLOT_BYTES),
        lambda: store.clear_slots(0, [1], quarantine=False),
        lambda: trio.run(store.sync),
    ):
        with pytest.raises(OSError, match="read-only"):
            trouble()
    store.refusal = None
    trio.run(store.sync)


def test_what_the_user_owes_is_asserted():
    store, _ = with_page()
    store.stall()
    store.submit_reads([read_of(1, 2, page=7)])
    for wrong, words in (
        (lambda: store.submit_reads([read_of(1, 3, page=7)]), "in flight already"),
        (lambda: store.submit_reads([read_of(2, 3, page=7)]), "share memory"),
        (lambda: store.submit_writes([write_of(2, 2)]), "written while"),
        (lambda: store.submit_reads([read_of(2, 3, page=7, pool_offset=1 << 30)]), "outside the pool"),
        (lambda: store.submit_reads([read_of(2, 500, page=7, pool_offset=0)]), "beyond the cap"),
        (lambda: store.format_segment(0, 4096), "is formatted under"),
        (lambda: store.format_segment(1, 4096), "beyond the capacity"),
    ):
        with pytest.raises(AssertionError, match=words):
            wrong()


def test_every_step_of_a_write_is_recorded_in_order():
    store, _ = with_page()
    store.clear_slots(0, [2], quarantine=True)
    assert [type(one) for one in store.medium.unsynced] == [
        SegmentFormatted,
        EntryCleared,
        PageData,
        EntrySet,
        EntryCleared,
    ]
    trio.run(store.sync)
    assert store.medium.unsynced == []


def recovered_slots(medium):
    segments = open_store(medium)[0].recovered()
    return [slot for segment in segments for slot in array("I", segment.slots)]


def test_a_killed_process_leaves_everything_that_was_written():
    store, _ = with_page()
    store.stall()
    store.submit_writes([write_of(1, 5)])
    assert recovered_slots(store.medium.after_kill()) == [2]
    store.release()
    assert recovered_slots(store.medium.after_kill()) == [2, 5]


def test_a_power_loss_keeps_any_part_of_what_was_not_synced():
    store, _ = with_page()
    trio.run(store.sync)
    store.submit_writes([write_of(1, 5), write_of(2, 6)])
    assert recovered_slots(store.medium.after_power_loss()) == [2]
    assert recovered_slots(store.medium.after_power_loss(kept=[2])) == [2, 5]
    assert recovered_slots(store.medium.after_power_loss(kept=range(6))) == [2, 5, 6]


def test_an_entry_without_its_data_does_not_verify():
    store, _ = with_page()
    trio.run(store.sync)
    store.submit_writes([write_of(1, 2, page=9)])
    store.completions_nowait()
    entry_only = open_store(store.medium.after_power_loss(kept=[2]))[0]
    assert read(entry_only, page=9).outcome == ReadOutcome.OTHER_PAGE
    torn = open_store(store.medium.after_power_loss(kept=[0, 2], torn=[1]))[0]
    assert read(torn, page=9).outcome == ReadOutcome.CORRUPT
    data_only = open_store(store.medium.after_power_loss(kept=[1]))[0]
    assert read(data_only, page=7).outcome == ReadOutcome.OTHER_PAGE


def test_recovery_names_pages_and_rotten_slots():
    store, _ = open_store()
    store.submit_writes([write_of(3, 4, pool_offset=0), write_of(9, 1, pool_offset=0)])
    store.clear_slots(0, [6], quarantine=True)
    (segment,) = open_store(store.medium.after_kill())[0].recovered()
    assert (segment.segment, segment.slot_bytes) == (0, SLOT_BYTES)
    assert list(array("I", segment.slots)) == [1, 4]
    assert segment.keys == (b"\x09", b"\x03")
    assert segment.scopes == ((bytes(16), 0),)
    assert list(array("I", segment.spaces)) == [0, 0]
    assert list(array("Q", segment.generations)) == [9, 3]
    assert list(array("I", segment.footprints)) == [3, 3]
    assert list(array("I", segment.quarantined)) == [6]
    store.completions_nowait()
    store.format_segment(0, 4096)
    assert store.recovered()[0].slots == b""


def test_closing_ends_and_syncs_everything():
    store, _ = open_store()
    store.stall()
    store.submit_writes([write_of(3, 4)])
    trio.run(store.aclose)
    assert len(store.completions_nowait()) == 1
    assert recovered_slots(store.medium.after_power_loss()) == [4]
