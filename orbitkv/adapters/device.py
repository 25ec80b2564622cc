"""Moving whole pages between an engine's KV memory and host memory: one interface, whatever the device.

An engine's KV memory is described by *planes*: one tensor of bytes per layer, a row per block. A block's
*image* is its rows of all planes, plane after plane, without gaps; that is what the pool and the staging
window hold. Nothing here knows of leases, keys or managers, and nothing decides what is copied.

`HostCopier` serves KV memory that the CPU computes on. `device_cuda` has the one for a GPU.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from orbitkv.adapters.errors import AdapterError
from orbitkv.adapters.restore import PoolMapping

Bytes = npt.NDArray[np.uint8]


class BlockCopy(NamedTuple):
    """One block's image in host memory, and the block it belongs to."""

    block: int
    image: memoryview


class Fence(Protocol):
    """A moment on the device: everything that was launched before it has been done."""

    def wait(self) -> None:
        """Block this thread until then."""


class Copier(Protocol):
    """Copies between planes and host memory. Each call is of one thread at a time."""

    @property
    def how(self) -> str:
        """For people: which way the bytes go."""

    def source(self, pool: PoolMapping) -> None:
        """Pages are loaded out of this mapping from here on. Costs nothing when it is the same as before."""

    def fence(self) -> Fence:
        """To be called by the thread that launches the engine's computing."""

    def load(self, copies: Sequence[BlockCopy]) -> None:
        """From host memory into blocks; returns when the device can compute on them."""

    def store(self, copies: Sequence[BlockCopy], after: Fence) -> None:
        """From blocks, as they are at `after`, into host memory; returns when it is there."""

    def close(self) -> None:
        """Let go of what was registered with the device. Idempotent."""


class _Passed:
    """What the CPU was told to compute has been computed when the call returns."""

    def wait(self) -> None:
        return


class HostCopier:
    """Plain copies. numpy drops the GIL for large ones, so an engine's thread goes on beside them."""

    def __init__(self, planes: Sequence[Any]) -> None:
        """`planes`: tensors of bytes on the CPU, [blocks, bytes of a row] each."""
        self._planes: list[Bytes] = [plane.numpy().view(np.uint8) for plane in planes]

    @property
    def how(self) -> str:
        return "plain copies on the CPU"

    def source(self, pool: PoolMapping) -> None:
        return

    def fence(self) -> Fence:
        return _Passed()

    def load(self, copies: Sequence[BlockCopy]) -> None:
        for block, image in copies:
            source = np.frombuffer(image, np.uint8)
            first = 0
            for plane in self._planes:
                row = plane[block]
                np.copyto(row, source[first : first + len(row)])
                first += len(row)

    def store(self, copies: Sequence[BlockCopy], after: Fence) -> None:
        after.wait()
        for block, image in copies:
            target = np.frombuffer(image, np.uint8)
            first = 0
            for plane in self._planes:
                row = plane[block]
                np.copyto(target[first : first + len(row)], row)
                first += len(row)

    def close(self) -> None:
        self._planes = []


def copiers_for(groups: Sequence[Sequence[Any]]) -> list[Copier]:
    """A copier for the planes of each KV group, all on one device; a group may have none here.

    Raises AdapterError for a device that cannot be copied from.
    """
    kinds = {plane.device.type for planes in groups for plane in planes}
    if kinds <= {"cpu"}:
        return [HostCopier(planes) for planes in groups]
    if kinds == {"cuda"}:
        from orbitkv.adapters.device_cuda import CudaCopier, PinnedPool

        pool = PinnedPool()
        return [CudaCopier(planes, pool) if planes else HostCopier(planes) for planes in groups]
    raise AdapterError(
        "The engine's KV memory cannot be copied.",
        f"It is on {', '.join(sorted(kinds))}; OrbitKV copies from and to cpu and cuda.",
        "run the engine on one of these, or without OrbitKV",
    )
