"""File systems of a test's own that nothing can leave behind, however the test ends.

They are mounted nowhere: only a descriptor leads to them, and they are gone when it is closed, be it by
SIGKILL. Needs the right to mount, as root has it; skips the test otherwise.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# Linux gives these system calls one number on all of its newer architectures (asm-generic/unistd.h).
_FSOPEN, _FSCONFIG, _FSMOUNT, _MOUNT_SETATTR = 430, 431, 432, 442
_FSOPEN_CLOEXEC = _FSMOUNT_CLOEXEC = _MOUNT_ATTR_RDONLY = 1
_FSCONFIG_SET_STRING, _FSCONFIG_CMD_CREATE = 1, 6
_AT_EMPTY_PATH = 0x1000

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns_fd")]


@contextmanager
def small_disk(size_bytes: int) -> Iterator[Path]:
    """A tmpfs with so much room, until the end of the block."""
    descriptor = _tmpfs(size_bytes)
    try:
        yield _path_of(descriptor)
    finally:
        os.close(descriptor)


def make_read_only(disk: Path) -> None:
    attributes = _MountAttributes(set=_MOUNT_ATTR_RDONLY)
    size = ctypes.sizeof(attributes)
    _call(_MOUNT_SETATTR, int(disk.name), b"", _AT_EMPTY_PATH, ctypes.byref(attributes), size)


def _path_of(descriptor: int) -> Path:
    return Path("/proc/self/fd", str(descriptor))


def _tmpfs(size_bytes: int) -> int:
    try:
        context = _call(_FSOPEN, b"tmpfs", _FSOPEN_CLOEXEC)
    except OSError as refused:
        pytest.skip(f"needs the right to mount: {refused}")
    try:
        _call(_FSCONFIG, context, _FSCONFIG_SET_STRING, b"size", str(size_bytes).encode(), 0)
        _call(_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0)
        return _call(_FSMOUNT, context, _FSMOUNT_CLOEXEC, 0)
    finally:
        os.close(context)


def _call(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
