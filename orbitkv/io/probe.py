"""Finds out once, at start, how this host lets the store do its I/O, and says why in words.

Two questions, each asked by doing the thing and not by reading versions: does io_uring complete a read,
and does the store's file system take an aligned O_DIRECT write and give it back. A setting that forces
what the host refuses is an error; `auto` falls back and says so.
"""

import errno
import mmap
import os
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import attrs

from orbitkv.events.ids import ALIGNMENT_BYTES
from orbitkv.io.errors import StoreError
from orbitkv.io.store_path import path_trouble

PROBE_NAME = "probe"
"""Always the same file, so that a killed probe leaves nothing that the next does not take along."""


class IoEngineSetting(StrEnum):
    """Values of `io_engine`."""

    AUTO = "auto"
    IO_URING = "io_uring"
    THREADS = "threads"


class IoDirectSetting(StrEnum):
    """Values of `io_direct`."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


@attrs.frozen(slots=True)
class IoChoice:
    engine: str
    """`io_uring` or `threads`."""
    direct: bool
    reason: str
    """One clause for each of the two, naming the setting that forced it or what the host said."""


def choose_io(path: Path, io_engine: str, io_direct: str) -> IoChoice:
    """Decide for the store's directory `path`, which must exist. Raises StoreError."""
    engine, engine_reason = _choose_engine(_setting(IoEngineSetting, "io_engine", io_engine))
    direct, direct_reason = _choose_direct(path, _setting(IoDirectSetting, "io_direct", io_direct))
    return IoChoice(engine=engine, direct=direct, reason=f"{engine_reason}; {direct_reason}")


def _choose_engine(setting: IoEngineSetting) -> tuple[str, str]:
    if setting is IoEngineSetting.THREADS:
        return "threads", 'threads because io_engine = "threads"'
    refusal = why_no_io_uring()
    if not refusal:
        because = "this host allows it" if setting is IoEngineSetting.AUTO else 'io_engine = "io_uring"'
        return "io_uring", f"io_uring because {because}"
    if setting is IoEngineSetting.IO_URING:
        raise StoreError(
            f'io_engine = "io_uring" but this host refuses it: {refusal}; allow it there, '
            f'or set io_engine = "auto" or "threads"'
        )
    return "threads", f"threads because io_uring was refused: {refusal}"


def _choose_direct(path: Path, setting: IoDirectSetting) -> tuple[bool, str]:
    if setting is IoDirectSetting.OFF:
        return False, 'through the page cache because io_direct = "off"'
    refusal = why_no_direct(path)
    if not refusal:
        because = "the file system takes it" if setting is IoDirectSetting.AUTO else 'io_direct = "on"'
        return True, f"O_DIRECT because {because}"
    if setting is IoDirectSetting.ON:
        raise StoreError(
            f'io_direct = "on" but the file system of {path} refuses O_DIRECT: {refusal}; '
            f'set ssd_path to a local disk, or io_direct = "auto" or "off"'
        )
    return False, f"through the page cache because O_DIRECT was refused: {refusal}"


def why_no_io_uring() -> str:
    """What the host says against io_uring, in words; empty if a read through a ring came back."""
    try:
        from orbitkv.io.ring import why_refused
    except ImportError as missing:
        return f"the liburing package cannot be loaded ({missing})"
    return why_refused()


def why_no_direct(path: Path) -> str:
    """What the file system of the directory `path` says against O_DIRECT, in words; empty if it works.

    Raises StoreError when the directory cannot be written at all.
    """
    probe = path / PROBE_NAME
    try:
        probe.touch(mode=0o600)
    except OSError as refused:
        raise StoreError(f"the SSD path {path} {path_trouble(refused)}") from None
    try:
        return _try_direct(probe)
    except OSError as refused:
        if refused.errno in (errno.ENOSPC, errno.EDQUOT):
            return ""  # a full disk says nothing against O_DIRECT, and may hold a store that is complete
        return refused.strerror or "it gave no reason"
    finally:
        probe.unlink()


def _try_direct(probe: Path) -> str:
    descriptor = os.open(probe, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
    try:
        with mmap.mmap(-1, 2 * ALIGNMENT_BYTES) as memory, memoryview(memory) as view:
            out, back = view[:ALIGNMENT_BYTES], view[ALIGNMENT_BYTES:]
            out[:] = os.urandom(ALIGNMENT_BYTES)
            os.pwritev(descriptor, [out], 0)
            os.preadv(descriptor, [back], 0)
            same = out == back
            out.release()
            back.release()
        return "" if same else "what was written did not come back"
    finally:
        os.close(descriptor)


_Setting = TypeVar("_Setting", bound=StrEnum)


def _setting(kind: type[_Setting], name: str, value: str) -> _Setting:
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(f'"{each.value}"' for each in kind)
        raise StoreError(f'{name} = "{value}" is not known: set it to one of {allowed}') from None
