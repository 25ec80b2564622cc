"""What the shell needs of the board, where clients see that a waiting operation has moved on.

A glance at it replaces a poll over the channel. It never says what happened, so it cannot be wrong.
"""

from typing import Protocol


class OperationBoard(Protocol):
    def watch(self, operation: int) -> tuple[int, int]:
        """(cell, word) for the answer that says "loading"."""

    def moved(self, operation: int) -> None:
        """The operation no longer waits, however that came. Idempotent."""
