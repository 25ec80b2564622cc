"""The GPU's copier with the device played by the CPU: which bytes go where, and when a pool is registered.

Ordering on real streams is not tested here; there is no GPU where these tests run.
"""

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from orbitkv.adapters.device import BlockCopy

torch = pytest.importorskip("torch", reason="torch comes with an engine")


class Event:
    def record(self, stream: Any) -> None:
        self.stream = stream

    def synchronize(self) -> None:
        self.stream.waited = True


class Stream:
    waits: list[Any]

    def __init__(self, device: Any = None) -> None:
        self.waits, self.waited = [], False

    def wait_event(self, event: Any) -> None:
        self.waits.append(event)


class Driver:
    """cudart as far as pools are registered with it."""

    def __init__(self) -> None:
        self.registered: dict[int, int] = {}
        self.error = 0

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # the driver's name
        assert flags == 0x01 | 0x08
        if not self.error:
            self.registered[address] = size
        return self.error

    def cudaHostUnregister(self, address: int) -> int:
        del self.registered[address]
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    real_empty = torch.empty
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: Stream())
    monkeypatch.setattr(torch.cuda, "cudart", lambda: made)
    monkeypatch.setattr(torch, "empty", lambda *a, pin_memory=False, **k: real_empty(*a, **k))
    return made


def planes(blocks: int = 6) -> list[Any]:
    """Two layers of other widths, every byte another."""
    first = torch.arange(blocks * 3, dtype=torch.uint8).reshape(blocks, 3)
    return [first, torch.arange(100, 100 + blocks * 5, dtype=torch.uint8).reshape(blocks, 5)]


def image(rows: list[Any], block: int) -> bytes:
    return b"".join(bytes(row[block].tolist()) for row in rows)


@pytest.mark.parametrize("error", [0, 801], ids=["registered", "bounced"])
@pytest.mark.parametrize("batch_bytes", [8, 1 << 20], ids=["one image a batch", "all at once"])
def test_images_are_scattered_and_gathered(driver, monkeypatch, error, batch_bytes):
    from orbitkv.adapters import device_cuda

    monkeypatch.setattr(device_cuda, "BATCH_BYTES", batch_bytes)
    driver.error = error
    source, rows = planes(), [torch.zeros_like(row) for row in planes()]
    copier = device_cuda.CudaCopier(rows, device_cuda.PinnedPool())
    copier.source(SimpleNamespace(address=4096, pool_bytes=100))
    assert ("registered pool" in copier.how) is (error == 0)
    wanted = {4: 1, 0: 5, 3: 2}
    copier.load([BlockCopy(to, memoryview(image(source, block))) for to, block in wanted.items()])
    for to, block in wanted.items():
        assert image(rows, to) == image(source, block)
    assert image(rows, 1) == bytes(8)
    slots = {block: bytearray(10) for block in (3, 4)}
    fence = copier.fence()
    copier.store([BlockCopy(block, memoryview(slot)[:8]) for block, slot in slots.items()], fence)
    assert {block: bytes(slot) for block, slot in slots.items()} == {
        3: image(source, 2) + bytes(2),
        4: image(source, 1) + bytes(2),
    }
    assert copier._stores.stream.waits == [fence.event]


def test_a_pool_is_registered_once_and_its_successor_takes_its_place(driver):
    from orbitkv.adapters.device_cuda import CudaCopier, PinnedPool

    shared = PinnedPool()
    copiers = [CudaCopier(planes(), shared), CudaCopier(planes(), shared)]
    first = SimpleNamespace(address=1 << 20, pool_bytes=100)
    for copier in copiers:
        copier.source(first)
    assert driver.registered == {1 << 20: 100}
    copiers[0].source(SimpleNamespace(address=1 << 30, pool_bytes=200))
    assert driver.registered == {1 << 30: 200}
    for copier in copiers:
        copier.close()
    assert driver.registered == {}
