"""What the tests of the SSD side share: an aligned pool, page identities, sealed images."""

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orbitkv.events.ids import TRAILER_BYTES
from orbitkv.io.image import seal
from orbitkv.manager.ports import PageIdentity

BLOCK = 4096
HUGE_PAGE = 2 << 20


@contextmanager
def aligned_pool(size_bytes: int) -> Iterator[memoryview]:
    """A shared mapping of a memfd whose first byte is 2 MiB-aligned."""
    descriptor = os.memfd_create("test-pool")
    os.ftruncate(descriptor, size_bytes)
    reserve = mmap.mmap(-1, size_bytes + HUGE_PAGE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(reserve))
    address = -(-base // HUGE_PAGE) * HUGE_PAGE
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    shared_fixed = mmap.MAP_SHARED | 0x10
    mapped = libc.mmap(address, size_bytes, mmap.PROT_READ | mmap.PROT_WRITE, shared_fixed, descriptor, 0)
    assert mapped == address, os.strerror(ctypes.get_errno())
    try:
        yield memoryview((ctypes.c_ubyte * size_bytes).from_address(address)).cast("B")
    finally:
        # The reservation's own unmapping takes the shared pages laid over it along.
        os.close(descriptor)


def identity_of(number: int, *, generation: int = 1, incarnation: int = 1, group: int = 0) -> PageIdentity:
    return PageIdentity(
        namespace_digest=b"n" * 16,
        group=group,
        key=number.to_bytes(32, "little"),
        incarnation=incarnation,
        generation=generation,
    )


def fill_page(image: memoryview, identity: PageIdentity) -> None:
    """Payload bytes that depend on the key and the place, then the trailer."""
    footprint_bytes = image.nbytes - TRAILER_BYTES
    stamp = identity.key + identity.generation.to_bytes(8, "little")
    for at in range(0, footprint_bytes, BLOCK):
        block = stamp + at.to_bytes(8, "little")
        image[at : at + len(block)] = block
    seal(image, identity)


def disk_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512
