"""How the manager is told to stop, and the promise that it does.

The first SIGTERM or SIGINT asks for a drain. A second one leaves at once, as a kill would, but takes
the socket along. A close that a device holds up is left the same way after a while.
"""

import os
import signal
import sys
from collections.abc import Callable

import attrs
import trio

CLOSE_SECONDS_MAX = 15.0
"""How long closing may take once draining is over. The journal alone may use 5 of them."""
EXIT_UNFINISHED = 75
"""EX_TEMPFAIL of sysexits.h: closed without the device's answer; the next start recovers."""


@attrs.define(slots=True)
class Stopping:
    """Make it inside trio, and start both watchers before anything is opened."""

    asked: trio.Event = attrs.field(factory=trio.Event)
    closing: trio.Event = attrs.field(factory=trio.Event)
    """To be set when nothing is waited for any more but the end."""
    last_act: Callable[[], None] = attrs.field(default=lambda: None)
    """What even a hasty end does."""

    async def watch_signals(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()
            async for number in signals:
                if self.asked.is_set():
                    self._leave(
                        128 + number, f"second signal ({signal.Signals(number).name}): leaving at once"
                    )
                self.asked.set()

    async def watch_closing(self) -> None:
        await self.closing.wait()
        await trio.sleep(CLOSE_SECONDS_MAX)
        self._leave(
            EXIT_UNFINISHED, f"closing took longer than {CLOSE_SECONDS_MAX} s: leaving; a device hangs"
        )

    def _leave(self, code: int, why: str) -> None:
        try:
            print(f"orbitkv: {why}", file=sys.stderr, flush=True)
            self.last_act()
        finally:
            os._exit(code)
