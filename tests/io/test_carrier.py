"""Copies and seals off the loop: right bytes, zero padding, bad windows, departures in the middle."""

import fcntl
import gc
import mmap
import os
import threading

import numpy as np
import pytest
import trio
import trio.testing

import orbitkv.io.carrier as carrier_module
from orbitkv.events.outcomes import CopyOutcome, ReadOutcome
from orbitkv.io.carrier import Carrier
from orbitkv.io.image import verify
from orbitkv.manager.ports import CopyDone, PageIdentity, PageSeal, SealDone, SliceCopy

KIB = 1024
IDENTITY = PageIdentity(bytes(16), 0, b"key", 1, 7)


def window_fd(size_bytes, *, content=b"", sealed=True):
    fd = os.memfd_create("test-staging", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size_bytes)
    os.pwrite(fd, content, 0)
    if sealed:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return fd


def copy_of(token, *, session=1, staging_offset=0, pool_offset=0, payload_bytes=5000, padded_bytes=8192):
    return SliceCopy(token, session, staging_offset, pool_offset, payload_bytes, padded_bytes)


async def collect(carrier, count):
    done = []
    while len(done) < count:
        done += await carrier.completions()
    return sorted(done, key=lambda one: one.token)


def run(scenario, pool_bytes=64 * KIB, workers=2):
    """Runs `scenario(carrier, pool)`; the pool starts full of 0xff so that missing zeros show."""

    async def main():
        pool = bytearray(b"\xff" * pool_bytes)
        carrier = Carrier(memoryview(pool), workers=workers)
        try:
            with trio.fail_after(10):
                await scenario(carrier, pool)
        finally:
            await carrier.aclose()

    trio.run(main)


def test_a_slice_is_copied_and_padded_with_zeros():
    content = bytes(range(250)) * 20

    async def scenario(carrier, pool):
        carrier.attach_staging(1, window_fd(16 * KIB, content=b"xx" + content), 16 * KIB)
        carrier.submit_copies([copy_of(3, staging_offset=2, pool_offset=4096)])
        (done,) = await collect(carrier, 1)
        assert (done.token, done.outcome) == (3, CopyOutcome.COPIED)
        assert pool[4096:9096] == content
        assert pool[9096:12288] == bytes(3192)
        assert set(pool[:4096] + pool[12288:]) == {0xFF}
        assert carrier.in_flight == 0

    run(scenario)


def test_a_sealed_page_verifies():
    async def scenario(carrier, pool):
        carrier.submit_seals([PageSeal(1, 4096, 8192, IDENTITY), PageSeal(2, 20480, 4096, IDENTITY)])
        done = await collect(carrier, 2)
        assert [type(one) for one in done] == [SealDone, SealDone]
        view = memoryview(pool)
        assert verify(view[4096:16384], IDENTITY) == ReadOutcome.WHOLE
        assert verify(view[20480:28672], IDENTITY) == ReadOutcome.WHOLE
        assert set(pool[:4096] + pool[16384:20480] + pool[28672:]) == {0xFF}

    run(scenario)


def test_many_jobs_all_end_and_results_come_in_batches():
    async def scenario(carrier, pool):
        carrier.attach_staging(1, window_fd(64 * KIB), 64 * KIB)
        carrier.submit_copies([copy_of(token, pool_offset=8192 * (token % 8)) for token in range(200)])
        assert carrier.in_flight == 200
        done = await collect(carrier, 200)
        assert [one.token for one in done] == list(range(200))
        assert {one.outcome for one in done} == {CopyOutcome.COPIED}
        assert set(pool) == {0}

    run(scenario)


@pytest.mark.parametrize(
    ("staging_offset", "payload_bytes"), [(16 * KIB - 4999, 5000), (1 << 62, 1), (-1, 1), (0, 8 * KIB)]
)
def test_a_slice_outside_its_window_is_refused_and_the_pool_untouched(staging_offset, payload_bytes):
    size_bytes = 16 * KIB if payload_bytes != 8 * KIB else 4 * KIB

    async def scenario(carrier, pool):
        carrier.attach_staging(1, window_fd(size_bytes), size_bytes)
        carrier.submit_copies([copy_of(1, staging_offset=staging_offset, payload_bytes=payload_bytes)])
        (done,) = await collect(carrier, 1)
        assert done.outcome == CopyOutcome.SOURCE_GONE
        assert set(pool) == {0xFF}

    run(scenario)


def test_a_session_without_a_window_has_no_source():
    async def scenario(carrier, pool):
        carrier.submit_copies([copy_of(1, session=8)])
        carrier.attach_staging(8, window_fd(8 * KIB), 8 * KIB)
        carrier.detach_staging(8)
        carrier.detach_staging(8)
        carrier.submit_copies([copy_of(2, session=8)])
        done = await collect(carrier, 2)
        assert [one.outcome for one in done] == [CopyOutcome.SOURCE_GONE] * 2

    run(scenario)


class Gate:
    """Holds np.copyto in the worker until opened."""

    def __init__(self, monkeypatch):
        self.entered, self.opened = threading.Event(), threading.Event()
        copyto = np.copyto

        def held(target, source):
            self.entered.set()
            assert self.opened.wait(10)
            copyto(target, source)

        monkeypatch.setattr(carrier_module.np, "copyto", held)


def mapping_modes():
    """Like `r--s`, one for each mapping that this process has of any window."""
    gc.collect()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sorted(line.split()[1] for line in maps if "test-staging" in line)


def test_a_client_that_leaves_in_the_middle_of_a_copy_harms_nothing(monkeypatch):
    gate = Gate(monkeypatch)

    async def scenario(carrier, pool):
        carrier.attach_staging(1, window_fd(8 * KIB, content=b"abc" * 2000), 8 * KIB)
        carrier.submit_copies([copy_of(1), copy_of(2, pool_offset=16 * KIB)])
        await trio.to_thread.run_sync(gate.entered.wait)
        carrier.detach_staging(1)
        assert len(mapping_modes()) == 1
        gate.opened.set()
        done = await collect(carrier, 2)
        assert [one.outcome for one in done] == [CopyOutcome.COPIED] * 2
        assert pool[: 8 * KIB] == pool[16 * KIB : 24 * KIB]
        assert pool[:3] == b"abc"
        await carrier.aclose()
        assert mapping_modes() == [], "the window is unmapped when its last copy has ended"

    run(scenario, workers=1)


def test_the_loop_goes_on_while_a_copy_runs(monkeypatch):
    gate = Gate(monkeypatch)

    async def scenario(carrier, pool):
        carrier.attach_staging(1, window_fd(8 * KIB), 8 * KIB)
        carrier.submit_copies([copy_of(1)])
        received = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: record(received, carrier))
            await trio.to_thread.run_sync(gate.entered.wait)
            await trio.testing.wait_all_tasks_blocked()
            assert received == []
            gate.opened.set()
        assert [type(one) for one in received] == [CopyDone]

    async def record(received, carrier):
        received += await carrier.completions()

    run(scenario)


def test_closing_waits_for_what_was_submitted_even_when_cancelled(monkeypatch):
    gate = Gate(monkeypatch)

    async def scenario(carrier, pool):
        carrier.attach_staging(1, window_fd(8 * KIB), 8 * KIB)
        carrier.submit_copies([copy_of(1), copy_of(2, pool_offset=8 * KIB)])
        await trio.to_thread.run_sync(gate.entered.wait)
        with trio.CancelScope() as scope:
            scope.cancel()
            trio.lowlevel.current_trio_token().run_sync_soon(gate.opened.set)
            await carrier.aclose()
        assert set(pool[: 16 * KIB]) == {0}
        assert mapping_modes() == []
        with pytest.raises(AssertionError, match="closed"):
            carrier.submit_copies([copy_of(3)])

    run(scenario, workers=1)


def test_a_cancelled_wait_loses_no_result():
    async def scenario(carrier, pool):
        with trio.CancelScope() as scope:
            scope.cancel()
            await carrier.completions()
        carrier.submit_copies([copy_of(1)])
        with trio.CancelScope() as scope:
            scope.cancel()
            await carrier.completions()
        assert [one.token for one in await collect(carrier, 1)] == [1]

    run(scenario)


def test_a_broken_job_is_not_swallowed(monkeypatch):
    def broken(view, identity):
        raise ZeroDivisionError

    monkeypatch.setattr(carrier_module, "seal", broken)

    async def scenario(carrier, pool):
        carrier.submit_seals([PageSeal(1, 0, 4096, IDENTITY)])
        with pytest.raises(ZeroDivisionError):
            await carrier.completions()

    run(scenario)


@pytest.mark.parametrize(
    "wrong",
    [
        copy_of(1, pool_offset=60 * KIB),
        copy_of(1, pool_offset=-4096),
        copy_of(1, payload_bytes=9000),
        copy_of(1, payload_bytes=0),
        PageSeal(1, 60 * KIB, 4096, IDENTITY),
        PageSeal(1, -4096, 4096, IDENTITY),
    ],
)
def test_a_place_outside_the_pool_is_a_broken_invariant(wrong):
    async def scenario(carrier, pool):
        with pytest.raises(AssertionError):
            carrier.submit_copies([wrong]) if isinstance(wrong, SliceCopy) else carrier.submit_seals([wrong])
        assert carrier.in_flight == 0

    run(scenario)


def test_windows_that_could_hurt_are_refused_with_the_remedy_and_their_descriptor_closed(tmp_path):
    plain = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(plain, 8 * KIB)
    reading_end, writing_end = os.pipe()
    os.close(writing_end)
    refused = [
        (plain, 8 * KIB, "no memory file"),
        (reading_end, 8 * KIB, "no memory file"),
        (window_fd(8 * KIB, sealed=False), 8 * KIB, "add F_SEAL_SHRINK"),
        (window_fd(4 * KIB), 8 * KIB, "has 4096 bytes and was announced with 8192"),
        (window_fd(4 * KIB), 0, "set staging_bytes above 0"),
        (window_fd(4 * KIB), -5, "set staging_bytes above 0"),
    ]

    async def scenario(carrier, pool):
        for fd, staging_bytes, words in refused:
            with pytest.raises(ValueError, match=words):
                carrier.attach_staging(1, fd, staging_bytes)
            with pytest.raises(OSError):
                os.fstat(fd)

    run(scenario)


def test_the_manager_maps_the_window_for_reading_only():
    async def scenario(carrier, pool):
        fd = window_fd(8 * KIB)
        with mmap.mmap(fd, 8 * KIB) as client:
            carrier.attach_staging(1, fd, 8 * KIB)
            assert mapping_modes() == ["r--s", "rw-s"]
            client[:3] = b"new"
            carrier.submit_copies([copy_of(1)])
            await collect(carrier, 1)
            assert pool[:3] == b"new"

    run(scenario)
