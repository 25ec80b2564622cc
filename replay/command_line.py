"""What the commands of `python -m replay` share: errors in words, a bar for long logs, remarks on stderr.

Prints and exits; must not read a log itself.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from orbitkv.events.frame import LogError
from replay.log import Log

PROGRESS_FROM_BYTES = 16 << 20
"""Logs from this size show a bar: at some 10 MB a second anything smaller is done before it helps."""

Told: TypeAlias = Callable[[int], None]
"""Is told how many of the log's bytes on disk have been dealt with."""


class Unreadable(click.ClickException):
    """The log cannot be read as asked, or its answer not be written."""

    exit_code = 2


class Interrupted(click.ClickException):
    """The user had enough. The code is a shell's for SIGINT."""

    exit_code = 130


@contextmanager
def errors_in_words() -> Iterator[None]:
    """A LogError becomes its message and exit code 2; Ctrl-C a word and 130."""
    try:
        yield
    except LogError as error:
        raise Unreadable(str(error)) from None
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the log is as it was") from None


@contextmanager
def progress_bar(name: str, path: Path, *, passes: int = 1) -> Iterator[Told | None]:
    """A bar for long logs on a terminal; otherwise nothing, and no clock is read.

    `passes`: how often the whole log is gone through.
    """
    size_bytes = Log.open(path).size_bytes * passes
    if not sys.stderr.isatty() or size_bytes < PROGRESS_FROM_BYTES:
        yield None
        return
    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=size_bytes)
        yield lambda done_bytes: bar.update(task, completed=done_bytes)


def print_remarks(log: Log) -> None:
    """Notes and damage, on stderr."""
    for note in log.notes:
        click.echo(f"note: {note}", err=True)
    for trouble in log.troubles:
        click.echo(f"damage: {trouble}", err=True)
