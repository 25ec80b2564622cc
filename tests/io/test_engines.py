"""The contract that both I/O engines keep, and what each adds of its own."""

import errno
import os
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import liburing
import pytest

from orbitkv.io.engine import TRANSFERS_MAX, Finished, IoEngine
from orbitkv.io.ring import RETRY_S, RingEngine
from orbitkv.io.threads import THREADS_MAX, ThreadEngine
from tests.io.ssd_support import HUGE_PAGE, IMAGE, identity_of, make_pool, place, read_of, write_of

NOBODY = identity_of(0)
MakeEngine = Callable[[int, memoryview], IoEngine]


def ring(descriptor: int, pool: memoryview) -> IoEngine:
    return RingEngine(descriptor, pool, direct=True)


def buffered_ring(descriptor: int, pool: memoryview) -> IoEngine:
    return RingEngine(descriptor, pool, direct=False)


@pytest.fixture(params=[ring, buffered_ring, ThreadEngine], ids=["ring", "buffered ring", "threads"])
def make_engine(request: pytest.FixtureRequest) -> MakeEngine:
    chosen: MakeEngine = request.param
    return chosen


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    """A file of 64 images, each filled with its number."""
    opened = os.open(tmp_path / "pages", os.O_RDWR | os.O_CREAT, 0o600)
    for number in range(64):
        os.pwrite(opened, bytes([number]) * IMAGE, number * IMAGE)
    yield opened
    os.close(opened)


def drain(engine: IoEngine) -> list[Finished]:
    finished: list[Finished] = []
    waiting = select.poll()
    waiting.register(engine.fileno(), select.POLLIN)
    while engine.in_flight:
        assert waiting.poll(5000), "the descriptor says nothing"
        finished += engine.reap()
    return finished


def test_a_batch_of_reads_lands_each_in_its_place(make_engine: MakeEngine, descriptor: int) -> None:
    pool = make_pool()
    engine = make_engine(descriptor, pool)
    reads = [read_of(n, slot=63 - n, identity=NOBODY, into=n) for n in range(64)]
    engine.submit(reads, [])
    assert engine.in_flight == 64
    finished = drain(engine)
    assert {id(each.transfer) for each in finished} == {id(read) for read in reads}
    assert {each.result for each in finished} == {IMAGE}
    assert all(bytes(place(pool, n)) == bytes([63 - n]) * IMAGE for n in range(64))
    engine.close()


def test_what_is_written_is_read_back(make_engine: MakeEngine, descriptor: int) -> None:
    pool = make_pool()
    engine = make_engine(descriptor, pool)
    place(pool, 0)[:] = os.urandom(IMAGE)
    engine.submit([], [write_of(1, slot=5, identity=NOBODY, out_of=0)])
    assert [each.result for each in drain(engine)] == [IMAGE]
    engine.submit([read_of(2, slot=5, identity=NOBODY, into=1)], [])
    drain(engine)
    assert place(pool, 0) == place(pool, 1)
    engine.close()


def test_reads_at_and_beyond_the_end_are_short(make_engine: MakeEngine, descriptor: int) -> None:
    os.ftruncate(descriptor, 10 * IMAGE + 4096)
    engine = make_engine(descriptor, make_pool())
    engine.submit([read_of(n, slot=9 + n, identity=NOBODY, into=n) for n in range(3)], [])
    results = {each.transfer.token: each.result for each in drain(engine)}
    assert results == {0: IMAGE, 1: 4096, 2: 0}
    engine.close()


def test_one_refused_transfer_does_not_spoil_the_batch(make_engine: MakeEngine, tmp_path: Path) -> None:
    path = tmp_path / "read-only"
    path.write_bytes(bytes(4 * IMAGE))
    read_only = os.open(path, os.O_RDONLY)
    engine = make_engine(read_only, make_pool())
    reads = [read_of(n, slot=n, identity=NOBODY, into=n) for n in range(4)]
    engine.submit(reads, [write_of(9, slot=0, identity=NOBODY, out_of=9)])
    results = {each.transfer.token: each.result for each in drain(engine)}
    assert results == {0: IMAGE, 1: IMAGE, 2: IMAGE, 3: IMAGE, 9: -errno.EBADF}
    engine.close()
    os.close(read_only)


def test_reaping_an_idle_engine_gives_nothing(make_engine: MakeEngine, descriptor: int) -> None:
    engine = make_engine(descriptor, make_pool())
    assert engine.reap() == []
    assert not select.select([engine.fileno()], [], [], 0)[0]
    engine.submit([read_of(1, slot=0, identity=NOBODY, into=0)], [])
    drain(engine)
    # A thread may put its result down, have it collected, and only then ring: once, for nothing.
    for _ in range(2):
        while select.select([engine.fileno()], [], [], 0.01)[0]:
            assert engine.reap() == []
    engine.close()


def test_a_full_engine_takes_its_maximum_and_no_more(make_engine: MakeEngine, descriptor: int) -> None:
    engine = make_engine(descriptor, make_pool(4 * HUGE_PAGE))
    reads = [read_of(n, slot=n % 64, identity=NOBODY, into=n) for n in range(TRANSFERS_MAX)]
    engine.submit(reads, [])
    with pytest.raises(AssertionError, match=f"more than {TRANSFERS_MAX}"):
        engine.submit(reads[:1], [])
    assert len(drain(engine)) == TRANSFERS_MAX
    engine.close()


def test_closing_with_transfers_in_flight_is_an_error(make_engine: MakeEngine, descriptor: int) -> None:
    engine = make_engine(descriptor, make_pool())
    engine.submit([read_of(1, slot=0, identity=NOBODY, into=0)], [])
    with pytest.raises(AssertionError, match="still own their buffers"):
        engine.close()
    drain(engine)
    engine.close()


def test_submission_time_is_on_the_monotonic_clock(make_engine: MakeEngine, descriptor: int) -> None:
    engine = make_engine(descriptor, make_pool())
    engine.submit([read_of(1, slot=0, identity=NOBODY, into=0)], [])
    first = drain(engine)[0].submitted_ns
    engine.submit([read_of(2, slot=0, identity=NOBODY, into=0)], [])
    assert first < drain(engine)[0].submitted_ns
    engine.close()


def test_threads_start_with_work_and_end_with_the_engine(descriptor: int) -> None:
    def own_threads() -> int:
        return sum(thread.name.startswith("orbitkv-io") for thread in threading.enumerate())

    engine = ThreadEngine(descriptor, make_pool())
    assert own_threads() == 0
    engine.submit([read_of(n, slot=n, identity=NOBODY, into=n) for n in range(32)], [])
    assert own_threads() == THREADS_MAX
    drain(engine)
    engine.close()
    assert own_threads() == 0


def test_the_ring_builds_one_vector_per_place(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each vector leaks inside liburing, so their number must follow the pool and not the traffic."""
    built = []
    make = liburing.Iovec
    monkeypatch.setattr(liburing, "Iovec", lambda views: built.append(1) or make(views))
    engine = ring(descriptor, make_pool())
    for n in range(100):
        engine.submit([read_of(n, slot=n % 64, identity=NOBODY, into=n % 5)], [])
        drain(engine)
    assert len(built) == 5
    engine.close()


@pytest.mark.parametrize("refusal", [BlockingIOError(errno.EAGAIN, ""), OSError(errno.EBUSY, "")])
def test_a_batch_the_kernel_is_too_busy_for_is_offered_again(
    descriptor: int, monkeypatch: pytest.MonkeyPatch, refusal: OSError
) -> None:
    pool = make_pool()
    engine = ring(descriptor, pool)

    def refuse(_: object) -> int:
        raise refusal

    with monkeypatch.context() as patched:
        patched.setattr(liburing, "io_uring_submit", refuse)
        engine.submit([read_of(1, slot=7, identity=NOBODY, into=0)], [])
        assert engine.in_flight == 1
        assert engine.patience_s == RETRY_S
        assert engine.reap() == []
    engine.reap()
    assert engine.patience_s is None
    drain(engine)
    assert bytes(place(pool, 0)) == bytes([7]) * IMAGE
    engine.close()
