"""What the store needs of an I/O engine. Two exist: `ring` (io_uring) and `threads`.

An engine moves whole page images between the pool and the page file, in batches: no checksums, no
directory, no retries. It belongs to one thread, which submits and reaps; nothing submitted is ever
taken back, because a disk read cannot be. Offsets and lengths are multiples of 4 KiB.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from orbitkv.manager.ports import PageRead, PageWrite

TRANSFERS_MAX = 256
"""Most transfers that an engine takes at once; the store keeps the rest. Bytes bind before, as a rule."""

Transfer: TypeAlias = PageRead | PageWrite


class Finished(NamedTuple):
    """A transfer that the device is done with."""

    transfer: Transfer
    result: int
    """Bytes moved, or a negative errno."""
    submitted_ns: int
    """Monotonic clock at submission."""


class IoEngine(Protocol):
    @property
    def in_flight(self) -> int:
        """Submitted and not yet returned by `reap`."""

    def submit(self, reads: Sequence[PageRead], writes: Sequence[PageWrite]) -> None:
        """Hand a batch to the device, no more than TRANSFERS_MAX with what is there already.

        Never blocks, and never raises for what the device thinks of it: that comes from `reap`.
        """

    def reap(self) -> list[Finished]:
        """Everything that has ended since the last call, possibly nothing. Never blocks."""

    def fileno(self) -> int:
        """A descriptor that is readable while `reap` has something to return."""

    @property
    def patience_s(self) -> float | None:
        """How long at most to wait for the descriptor before calling `reap` anyway; None: for ever."""

    def close(self) -> None:
        """Give everything back. Asserts that nothing is in flight."""
