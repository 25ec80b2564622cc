"""Makes this process's host refuse io_uring or O_DIRECT for real, with a seccomp filter.

A filter cannot be taken off again, so this is for child processes:

    python -m tests.io.refusing_host IO_URING_ERRNO|- direct|- PATH IO_ENGINE IO_DIRECT

opens a store under the filter, writes and reads a page, and prints what is in force as JSON, or
the StoreError's text with exit status 3.
"""

import ctypes
import errno
import json
import os
import platform
import struct
import sys
from pathlib import Path

import trio

from orbitkv.events.outcomes import ReadOutcome, WriteOutcome
from orbitkv.io.errors import StoreError
from tests.io.ssd_support import (
    IMAGE,
    fill_page,
    identity_of,
    make_pool,
    place,
    read_of,
    small_store,
    write_of,
)

IO_URING_SETUP = 425
OPENAT = {"x86_64": 257, "aarch64": 56}[platform.machine()]
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _THIRD_ARGUMENT_AT = 0, 32


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def refuse(*, io_uring_errno: int, direct: bool) -> None:
    """From now on io_uring_setup fails with this errno (0: it works), and O_DIRECT in openat with EINVAL."""
    steps: list[tuple[int, int, int, int]] = []
    if io_uring_errno:
        steps += [
            (_LOAD, 0, 0, _NUMBER_AT),
            (_EQUAL, 0, 1, IO_URING_SETUP),
            (_RETURN, 0, 0, _ERRNO | io_uring_errno),
        ]
    if direct:
        steps += [
            (_LOAD, 0, 0, _NUMBER_AT),
            (_EQUAL, 0, 3, OPENAT),
            (_LOAD, 0, 0, _THIRD_ARGUMENT_AT),
            (_ANY_BIT, 0, 1, os.O_DIRECT),
            (_RETURN, 0, 0, _ERRNO | errno.EINVAL),
        ]
    steps.append((_RETURN, 0, 0, _ALLOW))
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(steps), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_seccomp, filter_mode = 38, 22, 2
    for arguments in ((no_new_privileges, 1, 0, 0, 0), (set_seccomp, filter_mode, ctypes.byref(program))):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "seccomp is not available")


async def write_and_read(path: Path, io_engine: str, io_direct: str) -> dict[str, object]:
    pool = make_pool()
    store = small_store(path, pool, io_engine=io_engine, io_direct=io_direct)
    fill_page(place(pool, 0), identity_of(1))
    store.format_segment(0, IMAGE)
    store.submit_writes([write_of(1, slot=0, identity=identity_of(1), out_of=0)])
    assert [done.outcome for done in await store.completions()] == [WriteOutcome.WRITTEN]
    store.submit_reads([read_of(2, slot=0, identity=identity_of(1), into=1)])
    assert [done.outcome for done in await store.completions()] == [ReadOutcome.WHOLE]
    info = store.info
    await store.aclose()
    return {"engine": info.engine, "direct": info.direct, "reason": info.reason}


def main() -> None:
    io_uring, direct, path, io_engine, io_direct = sys.argv[1:]
    number = 0 if io_uring == "-" else int(getattr(errno, io_uring))
    refuse(io_uring_errno=number, direct=direct == "direct")
    try:
        print(json.dumps(trio.run(write_and_read, Path(path), io_engine, io_direct)))
    except StoreError as error:
        print(error)
        sys.exit(3)


if __name__ == "__main__":
    main()
