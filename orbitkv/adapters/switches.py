"""The environment's switches of the engine's side, read when asked and never at import.

`ORBITKV_QUEUE_WARMUP` is about an engine's automatic hook only: `CacheManagerClient.warm_prefix` sends
whatever it says. An engine may ask once, when it is built, and spare its queue callback even that.
"""

import os
from typing import Final

QUEUE_WARMUP: Final = "ORBITKV_QUEUE_WARMUP"
TRACE_TRANSFERS: Final = "ORBITKV_TRACE_TRANSFERS"
_ON: Final = frozenset({"1", "true", "on", "yes"})


def queue_warmup_enabled() -> bool:
    """Whether an engine hints by itself when its queue accepts a request. Experimental: off unless set."""
    return _is_on(QUEUE_WARMUP)


def trace_transfers_enabled() -> bool:
    """Whether the stages of requests are written as JSON lines."""
    return _is_on(TRACE_TRANSFERS)


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in _ON
