"""Shared mappings at 2 MiB-aligned addresses, which the standard library's `mmap` cannot make.

The kernel collapses a shared mapping into 2 MiB pages only where address and file offset are both
aligned to them. A mapping made here is unmapped when the last view of it (memoryview, numpy array,
ring vector) is gone and not a moment earlier, so a view can never point at memory that is another's.
This module knows addresses and advice only, nothing of pools or superblocks.
"""

import ctypes
import os
import weakref
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE

HUGE_PAGE_BYTES = 2 << 20
F_SEAL_FUTURE_WRITE = 0x10
"""Linux 5.1; the standard library does not name it."""

_PROT_NONE = 0
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_MAP_FAILED = ctypes.c_void_p(-1).value
MADV_HUGEPAGE = 14
MADV_DONTDUMP = 16
MADV_POPULATE_WRITE = 23
"""Linux 5.14. Not in the standard library before Python 3.13, nor the next."""
MADV_COLLAPSE = 25
"""Linux 6.1. The process sleeps until the range is made of 2 MiB pages or cannot be."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class AlignedMapping:
    """`size_bytes` of `fd`, shared, readable and writable, at an address that is a multiple of 2 MiB.

    `writable=False`: for reading only, and so are its views. Raises OSError when the kernel refuses.
    """

    __slots__ = ("__weakref__", "address", "size_bytes", "view")

    def __init__(self, fd: int, size_bytes: int, *, writable: bool = True) -> None:
        self.size_bytes = size_bytes
        self.address = _map_aligned(fd, size_bytes, PROT_READ | (PROT_WRITE if writable else 0))
        owner = (ctypes.c_ubyte * size_bytes).from_address(self.address)
        unmap = weakref.finalize(owner, _libc.munmap, self.address, size_bytes)
        unmap.atexit = False  # at the interpreter's end threads may still copy, and the kernel unmaps anyway
        view = memoryview(owner).cast("B")
        self.view = view if writable else view.toreadonly()
        """Bytes of the whole mapping. Whatever is derived from it keeps the mapping alive."""

    def advise(self, advice: int, offset: int, length: int) -> None:
        """madvise(2) on part of the mapping, without the GIL. Raises OSError."""
        if _libc.madvise(self.address + offset, length, advice):
            raise _os_error()

    def huge_bytes(self) -> int:
        """How much of the mapping this process reaches through 2 MiB pages. Costs milliseconds."""
        total, inside = 0, False
        with open("/proc/self/smaps", encoding="ascii", errors="replace") as lines:
            for line in lines:
                name, _, rest = line.partition(" ")
                if not name.endswith(":"):
                    start, end = (int(part, 16) for part in name.split("-"))
                    inside = self.address <= start and end <= self.address + self.size_bytes
                elif inside and name == "ShmemPmdMapped:":
                    total += int(rest.split()[0]) * 1024
        return total


def _map_aligned(fd: int, size_bytes: int, protection: int) -> int:
    """Reserves addresses generously, maps the file over the aligned part, gives the rest back."""
    reserved = size_bytes + HUGE_PAGE_BYTES
    base = _libc.mmap(None, reserved, _PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | _MAP_NORESERVE, -1, 0)
    if base == _MAP_FAILED:
        raise _os_error()
    address: int = -(-base // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    mapped = _libc.mmap(address, size_bytes, protection, MAP_SHARED | _MAP_FIXED, fd, 0)
    if mapped == _MAP_FAILED:
        error = _os_error()
        _libc.munmap(base, reserved)
        raise error
    if address > base:
        _libc.munmap(base, address - base)
    page = os.sysconf("SC_PAGE_SIZE")
    end = -(-(address + size_bytes) // page) * page
    if base + reserved > end:
        _libc.munmap(end, base + reserved - end)
    return address


def _os_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
