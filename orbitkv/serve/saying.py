"""What the manager prints: its first lines, its troubles, and why it stopped.

Nothing that happens to its output may happen to the manager: who read it may be gone.
"""

import os
import sys
import traceback
from collections.abc import Iterator
from typing import TextIO

from orbitkv import __version__
from orbitkv.config import Config, ConfigError
from orbitkv.config.units import format_size
from orbitkv.events.frame import LogError
from orbitkv.io.errors import StoreError
from orbitkv.io.http import EndpointError
from orbitkv.io.listener import ListenError
from orbitkv.manager.kernel.state import State
from orbitkv.manager.ports import StoreInfo
from orbitkv.manager.shell.loop import FailStop, LogExhausted
from orbitkv.manager.shell.status import ssd_pages

_MISTAKES = (ConfigError, EndpointError, ListenError, LogError, StoreError)


def greet(config: Config, state: State, io: StoreInfo, endpoint: str) -> None:
    """The first lines: who serves where, by which engine and why; then what it has to serve with."""
    direct = " with O_DIRECT" if io.direct else ""
    say(
        f"OrbitKV {__version__}, incarnation {state.incarnation}, at {config.socket_path}; "
        f"SSD by {io.engine}{direct}: {io.reason}"
    )
    pool = format_size(config.usable_pool_bytes)
    say(
        f"pool {pool}, {ssd_pages(state)} pages on the SSD are served again, "
        f"log in {config.log_path}, metrics {f'at {endpoint}/metrics' if endpoint else 'off'}"
    )


def say(line: str) -> None:
    _print(line, sys.stdout)


def complain(line: str) -> None:
    _print(f"orbitkv: {line}", sys.stderr)


def _print(line: str, stream: TextIO) -> None:
    try:
        print(line, file=stream, flush=True)
    except OSError:
        # Nobody reads it any more. The rest goes nowhere, or it would spoil the exit code at the end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def is_mistake(error: BaseException) -> bool:
    """Whether the user can mend it. Such an error is told without a traceback."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_mistake(part) for part in error.exceptions)
    return isinstance(error, _MISTAKES)


def tell_fault(error: Exception) -> None:
    """Why it stopped, in a sentence; before that, for a fault of its own, where in the code."""
    causes = list(_leaves(error))
    if not all(isinstance(cause, LogExhausted) for cause in causes):
        try:
            traceback.print_exception(error)
        except OSError:
            pass
    for cause in causes:
        if isinstance(cause, FailStop):
            complain(f"stopped: {cause}")
        else:
            complain(
                f"stopped by a fault of its own ({type(cause).__name__}: {cause}). The log is intact: "
                "keep it with the lines above for whoever mends this. "
                "Start again to go on with the pages on the SSD"
            )


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error
