"""Results that gather until a task asks for them: the waiting half of every port with completions."""

from typing import Generic, TypeVar

import trio

Result = TypeVar("Result")


class Outbox(Generic[Result]):
    def __init__(self) -> None:
        self._results: list[Result] = []
        self._filled = trio.Event()

    def __len__(self) -> int:
        return len(self._results)

    def put(self, result: Result) -> None:
        self._results.append(result)
        self._filled.set()

    async def take_all(self) -> list[Result]:
        """At least one. A cancelled wait loses nothing."""
        await trio.lowlevel.checkpoint()
        while not self._results:
            self._filled = trio.Event()
            await self._filled.wait()
        return self.take_nowait()

    def take_nowait(self) -> list[Result]:
        """All that are there, perhaps none; for tests without an event loop."""
        results, self._results = self._results, []
        return results
