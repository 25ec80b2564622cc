"""What the tests of the SSD side share: a pool, page identities, sealed images, transfers, a small store."""

from pathlib import Path

from orbitkv.events.ids import TRAILER_BYTES
from orbitkv.io.image import seal
from orbitkv.io.memory import MemoryPool
from orbitkv.io.store import SsdStore, open_store
from orbitkv.manager.ports import PageIdentity, PageRead, PageWrite

BLOCK = 4096
HUGE_PAGE = 2 << 20
IMAGE = 3 * BLOCK + TRAILER_BYTES
"""Bytes of the test pages' images, and of their slots."""
SEGMENT = 16 * IMAGE
SLOTS_MAX = 64


def make_pool(size_bytes: int = HUGE_PAGE) -> memoryview:
    """Writable and 2 MiB-aligned; lives as long as a view of it."""
    return MemoryPool(size_bytes, HUGE_PAGE).view


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


def place(pool: memoryview, number: int) -> memoryview:
    return pool[number * IMAGE : (number + 1) * IMAGE]


def read_of(token: int, slot: int, identity: PageIdentity, *, into: int, foreground: bool = True) -> PageRead:
    """Slots are numbered through here: segment slot // 16, index slot % 16."""
    return PageRead(
        token=token,
        slot=slot,
        file_offset=slot * IMAGE,
        pool_offset=into * IMAGE,
        image_bytes=IMAGE,
        identity=identity,
        foreground=foreground,
    )


def write_of(token: int, slot: int, identity: PageIdentity, *, out_of: int) -> PageWrite:
    return PageWrite(
        token=token,
        slot=slot,
        file_offset=slot * IMAGE,
        pool_offset=out_of * IMAGE,
        image_bytes=IMAGE,
        identity=identity,
        segment=slot // (SEGMENT // IMAGE),
        slot_index=slot % (SEGMENT // IMAGE),
    )


def small_store(
    path: Path, pool: memoryview, *, io_engine: str = "auto", io_direct: str = "auto", segments: int = 4
) -> SsdStore:
    return open_store(
        path,
        pool_view=pool,
        capacity_bytes=segments * SEGMENT,
        segment_bytes=SEGMENT,
        slots_per_segment_max=SLOTS_MAX,
        io_engine=io_engine,
        io_direct=io_direct,
    )


def disk_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512
