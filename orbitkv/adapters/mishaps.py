"""Running a whole program under trio such that a mishap is told once.

Several tasks may fail over one mishap, and trio gathers what they say; a user wants the first of it.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

import trio

from orbitkv.adapters.errors import AdapterError

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


def run_program(main: Callable[[*Arguments], Awaitable[Result]], *arguments: *Arguments) -> Result:
    """`trio.run`. If all that failed are AdapterErrors, the first one is raised alone."""
    try:
        return trio.run(main, *arguments)
    except BaseExceptionGroup as group:
        mistakes, others = group.split(AdapterError)
        if mistakes is None or others is not None:
            raise
        raise _first(mistakes) from group


def _first(group: BaseExceptionGroup[AdapterError]) -> AdapterError:
    """The first to tell is nearest to the mishap."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
