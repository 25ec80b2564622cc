"""A file that a command of `replay` leaves behind: whole or not at all, and never over something else.

Knows nothing of what is written. The file belongs to its user alone, as logs do.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from orbitkv.events.frame import LogError, parse_segment_name


class OutputError(LogError):
    """The output cannot be written; the log may be as it should. The message says what mends that."""


@contextmanager
def output_file(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """A file that stands at `path` once the block has ended well. Raises OutputError, also in the block."""
    check_output(path, force=force)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
        unfinished = Path(name)
        try:
            with open(handle, "wb", buffering=1 << 20) as file:
                yield file
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror}; free room or name another file with -o"
        ) from error


def check_output(path: Path, *, force: bool) -> None:
    """Before any work is done for it. Raises OutputError."""
    if parse_segment_name(path.name) is not None:
        raise OutputError(
            f"{path} has the name of a log segment, and a log is never written over; name another with -o"
        )
    if path.is_dir():
        raise OutputError(f"{path} is a folder; name a file with -o")
    if path.exists() and not force:
        raise OutputError(f"{path} exists already; name another file with -o, or replace it with --force")
    if not path.parent.is_dir():
        raise OutputError(f"{path} cannot be written: there is no folder {path.parent}; make it first")
