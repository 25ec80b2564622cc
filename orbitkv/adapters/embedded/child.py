"""Processes that must not outlive whoever started them.

A child is in a session of its own, so that the terminal's Ctrl-C reaches its parent only and the
parent ends it in order: asked first, then made to, by its pid and nothing else. A *leashed* child is
also asked to end by the kernel if its parent dies without a word.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Self

import trio

_LEASH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""1 is PR_SET_PDEATHSIG, which survives the exec. Set in the child, because between fork and exec of
a parent with threads nothing may run. The parent's death before that is seen by its pid."""


class Child:
    """Start it from the main thread: the leash is tied to the thread that forked."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        output: IO[bytes],
        pass_fds: Sequence[int] = (),
        leashed: bool = False,
    ) -> None:
        """`arguments` follow the Python interpreter. stdout and stderr go to `output`. Raises OSError."""
        command = [sys.executable, *arguments]
        if leashed:
            command = [sys.executable, "-I", "-S", "-c", _LEASH, str(os.getpid()), *command]
        self.name = name
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=pass_fds,
            start_new_session=True,
        )
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except OSError:
            self._process.kill()
            self._process.wait()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit status (negative: the signal that ended it), None while it runs."""
        return self._process.poll()

    async def wait(self) -> int:
        """Wait for its end; returns the status."""
        while self._process.poll() is None:
            await trio.lowlevel.wait_readable(self._pidfd)
        assert self._process.returncode is not None
        return self._process.returncode

    async def end(self, grace_s: float) -> int:
        """Ask, wait, then make it end. Not cancelled by anyone: what was started is ended."""
        with trio.CancelScope(shield=True):
            self._signal(signal.SIGTERM)
            with trio.move_on_after(grace_s):
                await self.wait()
            self._signal(signal.SIGKILL)
            await self.wait()
        assert self._process.returncode is not None
        return self._process.returncode

    def close(self) -> None:
        """After its end."""
        assert self._process.returncode is not None
        os.close(self._pidfd)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            signal.pidfd_send_signal(self._pidfd, number)


class Family:
    """Children that are ended together, the last started first, when the block is left."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._children: list[Child] = []

    def add(self, child: Child) -> Child:
        self._children.append(child)
        return child

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                for child in reversed(self._children):
                    nursery.start_soon(child.end, self._grace_s)
        for child in self._children:
            child.close()
