"""The manager of one arm: `orbitkv serve` in a process of its own, with the arm's sizes."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from benches.common import give_up
from benches.single_node.plan import Arm
from orbitkv.adapters.switches import TRACE_TRANSFERS
from orbitkv.events.geometry import image_bytes

START_S: Final = 120.0
END_S: Final = 60.0
LOOK_S: Final = 0.02
SEGMENTS: Final = 64
SEGMENT_STEP_BYTES: Final = 2 << 20
SEGMENT_BYTES_MAX: Final = 256 << 20
_ENDPOINT: Final = re.compile(r"metrics at (\S+)/metrics")


@attrs.frozen
class Serving:
    socket: Path
    metrics_url: str
    log: Path


@contextmanager
def running_manager(arm: Arm, folder: Path) -> Iterator[Serving]:
    """Log and output stay in `folder`; the socket and the page file go. It has stopped well afterwards."""
    sockets = Path(tempfile.mkdtemp(prefix="orbitkv-bench-"))  # a socket's path must be short
    ssd = folder / "ssd"
    try:
        with (folder / "manager.out").open("w") as output:
            process = subprocess.Popen(
                _command(arm, sockets / "manager.sock", folder),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {TRACE_TRANSFERS: "1" if arm.trace_transfers else "0"},
                start_new_session=True,  # Ctrl-C is for the bench, which then stops it
            )
            try:
                yield _ready(process, sockets / "manager.sock", folder)
                _stop(process, folder)
            finally:
                process.kill()
                process.wait()
    finally:
        shutil.rmtree(sockets, ignore_errors=True)
        shutil.rmtree(ssd, ignore_errors=True)


def _command(arm: Arm, socket: Path, folder: Path) -> list[str]:
    segment = max(arm.ssd_bytes // SEGMENTS, 2 * image_bytes(arm.page_tokens * arm.kv_bytes_per_token))
    segment = min(-(-segment // SEGMENT_STEP_BYTES) * SEGMENT_STEP_BYTES, SEGMENT_BYTES_MAX)
    settings: dict[str, object] = {
        "socket-path": socket,
        "log-path": folder / "log",
        "ssd-path": folder / "ssd",
        "http-listen": "127.0.0.1:0",
        "pool-bytes": arm.pool_bytes,
        "query-budget-bytes": arm.query_budget_bytes,
        "ssd-bytes": arm.ssd_bytes,
        "ssd-segment-bytes": segment,
    }
    flags = [f"--{name}={value}" for name, value in settings.items()]
    return [sys.executable, "-m", "orbitkv", "serve", *flags]


def _ready(process: "subprocess.Popen[bytes]", socket: Path, folder: Path) -> Serving:
    said = folder / "manager.out"
    deadline = time.monotonic() + START_S
    while (endpoint := _ENDPOINT.search(said.read_text())) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            give_up("The manager did not start", _last_words(folder), "Mend what it names")
        time.sleep(LOOK_S)
    return Serving(socket, endpoint[1], folder / "log")


def _stop(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    process.terminate()
    try:
        code = process.wait(END_S)
    except subprocess.TimeoutExpired:
        give_up("The manager does not stop", f"{END_S:.0f} s have passed", "Keep its log and report it")
    if code:
        give_up(f"The manager ended with code {code}", _last_words(folder), "Mend what it names")


def _last_words(folder: Path) -> str:
    lines = (folder / "manager.out").read_text().splitlines()
    said = [line for line in lines if not line.startswith("{")]
    return said[-1].rstrip(".") if said else "It said nothing"
