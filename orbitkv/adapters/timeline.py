"""`cache_timeline`: the engine's stages of a request's life, one JSON line each, for those who ask for it.

Written under `ORBITKV_TRACE_TRANSFERS=1`. Stages: `queued` and `first_use` (the engine says so, and they
are facts for the manager too), `restore_submit` (a rank may copy from here on), `gpu_ready` (its copies
have ended well), `query_cancel`. The manager writes its own in the same form. Monotonic times compare
within one process only, wall times are no clock between hosts. Never tokens, never keys, and never an
exception into the engine.
"""

import json
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from orbitkv.adapters.switches import trace_transfers_enabled

REMEMBERED_MAX: Final = 4096
"""Most handles whose request is remembered; the oldest are forgotten, and their stages not written."""
Extras: TypeAlias = Mapping[str, int | str | Sequence[str]]


class EngineTimeline:
    """May be used by several threads."""

    def __init__(self, engine: str, rank: int, write: Callable[[str], None] | None = None) -> None:
        """`engine`: the instance's name. `write` takes one line without its end; else it goes to stderr."""
        self.enabled = trace_transfers_enabled()
        self._engine = engine
        self._rank = rank
        self._write = write if write is not None else _to_stderr
        self._requests: OrderedDict[bytes, tuple[str, int]] = OrderedDict()
        """Handle of an operation or a lease -> (request, attempt)."""

    def say(
        self,
        stage: str,
        request: str,
        attempt: int,
        *,
        at_unix_ns: int = 0,
        monotonic_ns: int = 0,
        extras: Extras | None = None,
    ) -> None:
        """Times are now unless given. `extras` must name neither tokens nor keys."""
        if not self.enabled:
            return
        fields = {
            "event": "cache_timeline",
            "stage": stage,
            "request_id": request,
            "attempt": attempt,
            "pid": os.getpid(),
            "at_unix_ns": at_unix_ns or time.time_ns(),
            "monotonic_ns": monotonic_ns or time.monotonic_ns(),
            "engine": self._engine,
            "rank": self._rank,
        }
        try:
            self._write(json.dumps({**fields, **(extras or {})}))
        except (OSError, ValueError):
            pass  # whoever read it has gone, or the file is closed

    # --- what the client says by itself -----------------------------------------------------------------

    def asked(self, operation: bytes, request: str, attempt: int) -> None:
        """Nothing is said; but whose operation it is must be known when it is cancelled."""
        self._remember(operation, request, attempt)

    def cancelled(self, operation: bytes) -> None:
        self._say_last_of(operation, "query_cancel", {})

    def restore_begun(self, lease: bytes, request: str, attempt: int, pages: int) -> None:
        if not request:
            return  # begun a second time, and its operation has ended meanwhile
        self.say("restore_submit", request, attempt, extras={"pages": pages})
        self._remember(lease, request, attempt)

    def synced(self, lease: bytes, copied_bytes: int, elapsed_us: int) -> None:
        extras = {"copied_bytes": copied_bytes, "elapsed_us": elapsed_us}
        self._say_last_of(lease, "gpu_ready", extras)

    def _remember(self, handle: bytes, request: str, attempt: int) -> None:
        if not self.enabled or not handle:
            return
        self._requests[handle] = (request, attempt)
        if len(self._requests) > REMEMBERED_MAX:
            self._requests.popitem(last=False)

    def _say_last_of(self, handle: bytes, stage: str, extras: Extras) -> None:
        request = self._requests.pop(handle, None)
        if request is not None:
            self.say(stage, *request, extras=extras)


def _to_stderr(line: str) -> None:
    if sys.stderr is not None:  # a process without a terminal may have none
        sys.stderr.write(line + "\n")
