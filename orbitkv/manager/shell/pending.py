"""Numbers for work that was handed to a port, and what each stands for.

A number is used once. So a completion that comes twice, or late, can never be taken for one of newer
work on the same memory: it is known to be stale, and is reported as a completion of nothing.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

Work = TypeVar("Work")


class Pending(Generic[Work]):
    def __init__(self, numbers: Iterator[int]) -> None:
        """`numbers` may be shared, so that no number stands for two things of different kinds either."""
        self._numbers = numbers
        self._works: dict[int, Work] = {}

    def __len__(self) -> int:
        return len(self._works)

    def add(self, work: Work) -> int:
        """The token under which it will be reported."""
        token = next(self._numbers)
        self._works[token] = work
        return token

    def take(self, token: int) -> Work | None:
        """None: nothing waits for this completion."""
        return self._works.pop(token, None)
