"""Moving pages to and from a GPU: one large copy a page, scattered and gathered on the device.

A stream of its own for each direction, events between them and the engine's stream, and pinned host
memory where the driver allows it: the manager's pool is registered as it is (read-only), and what cannot
be registered goes through a pinned bounce buffer. `how` says which. This file is thin on purpose: there
is no GPU where most of the tests run.
"""

import logging
import warnings
from collections.abc import Sequence
from typing import Any, Final

import torch

from orbitkv.adapters.device import BlockCopy, Fence
from orbitkv.adapters.restore import PoolMapping

BATCH_BYTES: Final = 64 << 20
"""Device memory for each direction, in which images are gathered and from which they are scattered."""
_REGISTER_PORTABLE: Final = 0x01
_REGISTER_READ_ONLY: Final = 0x08
"""cudaHostRegisterPortable, cudaHostRegisterReadOnly (CUDA runtime API, driver_types.h)."""

_log = logging.getLogger(__name__)


class _Event:
    def __init__(self, stream: Any) -> None:
        self.event = torch.cuda.Event()
        self.event.record(stream)

    def wait(self) -> None:
        self.event.synchronize()


class PinnedPool:
    """The manager's pool, registered with the device as it is, where the driver takes a read-only mapping."""

    def __init__(self) -> None:
        self._pool: PoolMapping | None = None
        self.registered = False

    def pin(self, pool: PoolMapping) -> None:
        """Let go of the one before, if it is another: a manager that was restarted has a pool of its own.

        The driver takes in the whole of it, which costs seconds for a large pool.
        """
        if pool is self._pool:
            return
        self.release()
        self._pool = pool
        flags = _REGISTER_PORTABLE | _REGISTER_READ_ONLY
        error = int(torch.cuda.cudart().cudaHostRegister(pool.address, pool.pool_bytes, flags))
        self.registered = not error
        if error:
            _log.info("OrbitKV: the pool cannot be registered with the GPU (CUDA error %d).", error)

    def release(self) -> None:
        """Idempotent."""
        pool, self._pool = self._pool, None
        if pool is not None and self.registered:
            torch.cuda.cudart().cudaHostUnregister(pool.address)
        self.registered = False


class _Lane:
    """One direction: a stream, images on the device, and a pinned twin of them, made when first needed."""

    def __init__(self, device: Any, image_bytes: int, images: int) -> None:
        self.stream = torch.cuda.Stream(device)
        self.images = torch.empty((images, image_bytes), dtype=torch.uint8, device=device)
        self._bounce: Any = None

    @property
    def bounce(self) -> Any:
        if self._bounce is None:
            self._bounce = torch.empty(self.images.shape, dtype=torch.uint8, pin_memory=True)
        return self._bounce


class CudaCopier:
    def __init__(self, planes: Sequence[Any], pool: PinnedPool) -> None:
        """`planes`: tensors of bytes on one GPU."""
        self._planes = list(planes)
        self._device = planes[0].device
        self._pool = pool
        image_bytes = sum(plane.shape[1] for plane in self._planes)
        self._images = max(1, BATCH_BYTES // image_bytes)
        with torch.cuda.device(self._device):
            self._loads = _Lane(self._device, image_bytes, self._images)
            self._stores = _Lane(self._device, image_bytes, self._images)

    @property
    def how(self) -> str:
        if self._pool.registered:
            return "one copy a block out of the registered pool, scattered on the GPU"
        return "through a pinned bounce buffer, as the pool is not registered, scattered on the GPU"

    def source(self, pool: PoolMapping) -> None:
        with torch.cuda.device(self._device):
            self._pool.pin(pool)

    def fence(self) -> Fence:
        return _Event(torch.cuda.current_stream(self._device))

    def load(self, copies: Sequence[BlockCopy]) -> None:
        with torch.cuda.device(self._device), torch.cuda.stream(self._loads.stream):
            for first in range(0, len(copies), self._images):
                self._load_batch(copies[first : first + self._images])

    def _load_batch(self, copies: Sequence[BlockCopy]) -> None:
        lane = self._loads
        for index, (_, image) in enumerate(copies):
            source = _tensor(image)
            if not self._pool.registered:
                source = lane.bounce[index].copy_(source)
            lane.images[index].copy_(source, non_blocking=True)
        blocks = torch.tensor([copy.block for copy in copies], device=self._device)
        first = 0
        for plane in self._planes:
            width = plane.shape[1]
            plane.index_copy_(0, blocks, lane.images[: len(copies), first : first + width])
            first += width
        _Event(lane.stream).wait()  # the device has its pages, and the buffers are free again

    def store(self, copies: Sequence[BlockCopy], after: Fence) -> None:
        lane = self._stores
        assert isinstance(after, _Event)
        with torch.cuda.device(self._device), torch.cuda.stream(lane.stream):
            lane.stream.wait_event(after.event)
            for first in range(0, len(copies), self._images):
                self._store_batch(copies[first : first + self._images])

    def _store_batch(self, copies: Sequence[BlockCopy]) -> None:
        lane = self._stores
        blocks = torch.tensor([copy.block for copy in copies], device=self._device)
        first = 0
        for plane in self._planes:
            width = plane.shape[1]
            lane.images[: len(copies), first : first + width] = plane.index_select(0, blocks)
            first += width
        lane.bounce[: len(copies)].copy_(lane.images[: len(copies)], non_blocking=True)
        _Event(lane.stream).wait()
        for index, (_, image) in enumerate(copies):
            _tensor(image).copy_(lane.bounce[index])

    def close(self) -> None:
        self._pool.release()


def _tensor(image: memoryview) -> Any:
    """The bytes as a tensor that shares them. torch warns of read-only ones, which are only read here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.frombuffer(image, dtype=torch.uint8)
