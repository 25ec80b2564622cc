"""A manager to show: `orbitkv serve` in a process of its own, and other processes that judge its log."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from orbitkv.adapters.demo.places import Places
from orbitkv.adapters.embedded.child import Child, Family
from orbitkv.adapters.errors import AdapterError

START_TIMEOUT_S = 60.0
LOOK_INTERVAL_S = 0.02
SHUTDOWN_TIMEOUT_S = 15
"""Told to the manager: how long it may wait for I/O to end."""
END_GRACE_S = SHUTDOWN_TIMEOUT_S + 10.0
JUDGE_TIMEOUT_S = 600.0
JUDGE_GRACE_S = 5.0
SAID_LINES_MAX = 12
"""Of a manager that failed, so much of its output is repeated; all of it stays in its file."""


@asynccontextmanager
async def running_manager(settings: Mapping[str, object], places: Places) -> AsyncGenerator[Child, None]:
    """Start it, wait until it listens; at the end have it drain and stop. Raises AdapterError.

    `settings`: flags of `orbitkv serve` by name, beside those of its places.
    """
    with places.manager_output.open("wb") as output:
        async with Family(END_GRACE_S) as family:
            child = Child("manager", _arguments(settings, places), output=output, leashed=True)
            family.add(child)
            await _listening(child, places)
            yield child
        if child.status != 0:
            raise _ended(child, places)


async def expect_no_end(manager: Child, places: Places) -> None:
    """Raises AdapterError when the manager ends by itself."""
    await manager.wait()
    raise _ended(manager, places)


def _arguments(settings: Mapping[str, object], places: Places) -> list[str]:
    flags = {
        "socket-path": places.socket_path,
        "log-path": places.log_path,
        "ssd-path": places.ssd_path,
        "http-listen": "",
        "shutdown-timeout": SHUTDOWN_TIMEOUT_S,
        **settings,
    }
    return ["-m", "orbitkv", "serve", *(f"--{name}={value}" for name, value in flags.items())]


async def _listening(child: Child, places: Places) -> None:
    with trio.move_on_after(START_TIMEOUT_S):
        while child.status is None:
            if _connects(places.socket_path):
                return
            await trio.sleep(LOOK_INTERVAL_S)
        raise _ended(child, places)
    raise AdapterError(
        f"The manager does not listen after {START_TIMEOUT_S:.0f} s.",
        "It is still starting.",
        f"see {places.manager_output}, or try a smaller --pool",
    )


def _connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def _ended(child: Child, places: Places) -> AdapterError:
    said = "\n".join(places.manager_output.read_text(errors="replace").splitlines()[-SAID_LINES_MAX:])
    return AdapterError(
        f"The manager did not end as it should (status {child.status}).",
        said.replace("\n", "\n  ") or "It said nothing.",
        f"mend what it names; its words stay in {places.manager_output}",
    )


async def verify_log(log_path: Path) -> str:
    """ "ok", or the first difference, as another process says that sees only the files."""
    done = await replay("verify", log_path)
    return "ok" if done.returncode == 0 else (done.stdout + done.stderr).decode(errors="replace").strip()


async def fold_log(log_path: Path) -> dict[str, Any]:
    """What the log alone adds up to, as `replay fold --json` says. Raises AdapterError."""
    done = await replay("fold", log_path, "--json")
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise AdapterError(f"The log in {log_path} cannot be read.", said, "keep it and report it")
    folded: dict[str, Any] = json.loads(done.stdout)
    return folded


async def replay(what: str, log_path: Path, *options: str) -> "subprocess.CompletedProcess[bytes]":
    """Ask the log as a user would, in another process."""
    arguments: Sequence[str] = [sys.executable, "-m", "orbitkv", "replay", what, str(log_path), *options]
    with trio.fail_after(JUDGE_TIMEOUT_S):
        return await trio.run_process(
            arguments,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            start_new_session=True,
            deliver_cancel=_interrupt,
        )


async def _interrupt(process: trio.Process) -> None:
    """As Ctrl-C would: it then removes what it had not finished. Called off when it has ended."""
    process.send_signal(signal.SIGINT)
    await trio.sleep(JUDGE_GRACE_S)
    process.kill()
