"""Run a function in a forked child and get its answer: for what only another process can do."""

import os
import signal
from collections.abc import Callable

import msgspec


class Child:
    """A forked child that runs `function` and then waits to be released, unless it is killed before."""

    def __init__(self, function: Callable[[], object], *, linger: bool = False) -> None:
        answer_read, answer_write = os.pipe()
        release_read, release_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(answer_read)
            os.close(release_write)
            self._run(function, answer_write, release_read if linger else -1)
        os.close(answer_write)
        os.close(release_read)
        self._answer_fd = answer_read
        self._release_fd = release_write

    @staticmethod
    def _run(function: Callable[[], object], answer_fd: int, release_fd: int) -> None:
        try:
            answer = {"value": function()}
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        try:
            os.write(answer_fd, msgspec.json.encode(answer))
            os.close(answer_fd)
            if release_fd >= 0:
                os.read(release_fd, 1)
        finally:
            os._exit(0)

    def answer(self) -> object:
        """What the function returned. Raises RuntimeError with what it raised."""
        data = b""
        while chunk := os.read(self._answer_fd, 1 << 16):
            data += chunk
        answer = msgspec.json.decode(data)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.join()

    def join(self) -> None:
        os.close(self._release_fd)
        os.close(self._answer_fd)
        os.waitpid(self.pid, 0)


def in_child(function: Callable[[], object]) -> object:
    child = Child(function)
    try:
        return child.answer()
    finally:
        child.join()
