"""What the commands of `replay` share: errors in words, a bar for long logs, remarks on stderr.

Prints and exits; must not read a log itself.
"""

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from orbitkv.events.frame import LogError
from replay.log import Log, Progress

PROGRESS_FROM_BYTES = 16 << 20
"""Logs from this size show a bar: at some 10 MB a second anything smaller is done before it helps."""

_NAME_SHOWN_MAX = 300


class Unreadable(click.ClickException):
    """The log cannot be read as asked, or its answer not be written."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(shown(message))


class Interrupted(click.ClickException):
    """The user had enough. The code is a shell's for SIGINT."""

    exit_code = 130


class Commands(click.Group):
    """All commands of `replay`: none of them ends in a traceback because of what it was given."""

    def invoke(self, ctx: click.Context) -> Any:
        if sys.stderr is None:
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - as long as the process
        _take_any_text(sys.stdout, sys.stderr)
        with errors_in_words(), _ended_like_ctrl_c():
            return super().invoke(ctx)


@contextmanager
def errors_in_words() -> Iterator[None]:
    """A LogError and a failing file become a message and exit code 2; Ctrl-C a word and 130."""
    try:
        yield
    except LogError as error:
        raise Unreadable(str(error)) from None
    except UnicodeEncodeError as error:
        raise Unreadable(f"a name is no text in UTF-8, rename it: {error.object[:_NAME_SHOWN_MAX]}") from None
    except BrokenPipeError:
        raise  # Who reads has had enough; click ends without a word.
    except OSError as error:
        forget_stdout()
        where = f"{error.filename} cannot be used" if error.filename else "the answer cannot be written"
        raise Unreadable(f"{where}: {error.strerror or error}; free room, or name another place") from None
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the log is as it was") from None


@contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """Who is told to end takes its unfinished files along, as with Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    for each in taken:
        signal.signal(each, signal.default_int_handler)
    try:
        yield
    finally:
        for each in taken:
            signal.signal(each, signal.SIG_DFL)


def forget_stdout() -> None:
    """What is still buffered must not fail once more when the process ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, AttributeError, io.UnsupportedOperation):
        pass


def shown(text: str) -> str:
    """Text with names from outside, for a terminal: what is not printable is written as an escape."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else repr(each)[1:-1] for each in text)


def in_a_line(text: str) -> str:
    """The same, where one line must stay one."""
    return shown(text).replace("\n", "\\n")


def _take_any_text(*streams: Any) -> None:
    """Names of files may be no text; they are then written with escapes."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def progress_bar(name: str, path: Path, *, passes: int = 1) -> Iterator[Progress | None]:
    """A bar for long logs on a terminal; otherwise nothing, and no clock is read.

    `passes`: how often the whole log is gone through.
    """
    size_bytes = Log.open(path).size_bytes * passes
    if not sys.stderr.isatty() or size_bytes < PROGRESS_FROM_BYTES:
        yield None
        return
    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=size_bytes)
        yield lambda done_bytes: bar.update(task, completed=done_bytes)


def print_remarks(log: Log) -> None:
    """Notes and damage, on stderr."""
    for note in log.notes:
        click.echo(in_a_line(f"note: {note}"), err=True)
    for trouble in log.troubles:
        click.echo(in_a_line(f"damage: {trouble}"), err=True)
