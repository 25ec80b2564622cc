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


class _Lane:
    """One direction: a stream, images on the device, and a pinned twin of them."""

    def __init__(self, device: Any, image_bytes: int, images: int, pinned: bool) -> None:
        self.stream = torch.cuda.Stream(device)
        self.images = torch.empty((images, image_bytes), dtype=torch.uint8, device=device)
        self.bounce = (
            torch.empty((images, image_bytes), dtype=torch.uint8, pin_memory=True) if pinned else None
        )


class CudaCopier:
    def __init__(self, planes: Sequence[Any], pool_address: int, pool_bytes: int) -> None:
        """`planes`: tensors of bytes on one GPU. The pool's mapping must outlive this object."""
        self._planes = [plane.view(torch.uint8) for plane in planes]
        self._device = planes[0].device
        image_bytes = sum(plane.shape[1] for plane in self._planes)
        self._images = max(1, BATCH_BYTES // image_bytes)
        self._registered = pool_address if _register(pool_address, pool_bytes) else 0
        with torch.cuda.device(self._device):
            self._loads = _Lane(self._device, image_bytes, self._images, pinned=not self._registered)
            self._stores = _Lane(self._device, image_bytes, self._images, pinned=True)

    @property
    def how(self) -> str:
        if self._registered:
            return "one copy a page out of the registered pool, scattered on the GPU"
        return "through a pinned bounce buffer (the pool cannot be registered), scattered on the GPU"

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
            if lane.bounce is not None:
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
        assert lane.bounce is not None
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
        if self._registered:
            torch.cuda.cudart().cudaHostUnregister(self._registered)
            self._registered = 0


def _tensor(image: memoryview) -> Any:
    """The bytes as a tensor that shares them. torch warns of read-only ones, which are only read here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.frombuffer(image, dtype=torch.uint8)


def _register(address: int, size_bytes: int) -> bool:
    """Pin foreign memory for the device. False where the driver does not take a read-only mapping."""
    if not address:
        return False
    flags = _REGISTER_PORTABLE | _REGISTER_READ_ONLY
    error = int(torch.cuda.cudart().cudaHostRegister(address, size_bytes, flags))
    if error:
        _log.info("The pool cannot be registered with the GPU (CUDA error %d): pages are bounced.", error)
    return not error
