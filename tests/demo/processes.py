"""Which processes a test has started, found by a mark in their environment: children of children too."""

import os
import time
import uuid
from collections.abc import Mapping

import psutil

MARK = "DEMO_TEST_MARK"


def marked_environment() -> dict[str, str]:
    """The tests' environment with a mark of its own that every descendant inherits."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ORBITKV_")}
    return plain | {MARK: uuid.uuid4().hex}


def marked(environment: Mapping[str, str]) -> list[psutil.Process]:
    """Living processes with this mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == environment[MARK]:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def gone(environment: Mapping[str, str], within_s: float = 0.0) -> list[psutil.Process]:
    """Waits until no marked process is left; returns those that are left all the same."""
    deadline = time.monotonic() + within_s
    while (left := marked(environment)) and time.monotonic() < deadline:
        psutil.wait_procs(left, timeout=0.1)
    return left
