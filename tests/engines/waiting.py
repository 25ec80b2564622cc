"""Waiting for what must come about, however slow the machine is."""

import time
from collections.abc import Callable

PATIENCE_S = 400.0
"""Only a hang takes so long: an engine's first step has taken half a minute on two busy processors."""
LOOK_S = 0.002


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(LOOK_S)
