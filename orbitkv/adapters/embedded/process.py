"""How a process of an engine begins and ends.

It is started with one descriptor, the link to its superior, and ends when that link is closed, however
that came about: nothing of an engine outlives whoever started it.
"""

import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

from orbitkv.adapters.embedded.link import Link, LinkClosed
from orbitkv.adapters.embedded.messages import Failed
from orbitkv.adapters.errors import AdapterError


def run_process(incoming: object, serve: Callable[[Link[Any]], None]) -> int:
    """Run `serve` on the link named by the only argument; returns the exit status."""
    link: Link[Any] = Link(socket.socket(fileno=int(sys.argv[1])), incoming)
    try:
        serve(link)
    except LinkClosed:
        return 0
    except Exception as error:
        tell_failure(link, error)
        return 1
    return 0


def tell_failure(link: Link[Any], error: BaseException) -> None:
    """Say why this process cannot go on: a sentence to the superior; the traceback of a bug to stderr."""
    if not isinstance(error, AdapterError):
        traceback.print_exception(error)
    try:
        link.send(
            Failed(str(error) if isinstance(error, AdapterError) else f"{type(error).__name__}: {error}")
        )
    except LinkClosed:
        pass
