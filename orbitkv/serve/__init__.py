"""`orbitkv serve`: the manager as a process.

The composition root, the only place that knows both the shell and the implementations of its ports:

    running    the life of the process, from the settings to its exit code
    opening    what the settings name, opened; the old chain closed; the new incarnation begun
    wiring     ports, shell and endpoint put together
    saying     what is printed, and what a fault leaves behind
    stopping   signals, and the promise that a stop ends
"""

from orbitkv.serve.running import serve

__all__ = ["serve"]
