"""The staging window: memory of the engine's rank that saved pages are put into for the manager to fetch.

The client makes it, so the manager never writes into an engine and the engine never into the pool.
It is cut into fixed slots, one page of one group each; a free slot is a credit. Without a credit a page
is not saved: nobody here ever waits for the manager.

A window lives as long as one connection. The manager may still be copying out of the window of a
connection that broke, so a new connection gets new memory instead of the old.
"""

import fcntl
import os
from collections.abc import Sequence

from orbitkv.adapters.client_errors import LimitExceeded
from orbitkv.events.geometry import GroupGeometry, padded_bytes
from orbitkv.events.ids import ALIGNMENT_BYTES
from orbitkv.io.mapping import AlignedMapping


def slot_bytes(group: GroupGeometry) -> int:
    """Bytes of one page's slices of this rank, each padded: they follow each other in registered order."""
    return sum(padded_bytes(piece.payload_bytes) for piece in group.slices)


class StagingWindow:
    """Not thread-safe: its client's lock protects it."""

    def __init__(self, groups: Sequence[GroupGeometry], staging_bytes: int) -> None:
        """Each group with slices gets an equal share, so that none can starve another.

        Raises LimitExceeded when a share holds no page, OSError when there is no memory for it.
        """
        saving = [group for group in groups if group.slices]
        share = staging_bytes // max(len(saving), 1) // ALIGNMENT_BYTES * ALIGNMENT_BYTES
        self._slot_bytes = {group.group: slot_bytes(group) for group in saving}
        for group, needed in self._slot_bytes.items():
            if needed > share:
                raise LimitExceeded(
                    f"The staging window cannot hold one page of group {group}: that takes {needed} bytes, "
                    f"and its share of staging_bytes={staging_bytes} is {share}. "
                    f"Set staging_bytes to {needed * len(saving)} at least, better to a few dozen pages."
                )
        self.staging_bytes = share * len(saving)
        self.slots = {group: share // size for group, size in self._slot_bytes.items()}
        self._untouched = {
            group: iter(
                range(index * share, index * share + slots * self._slot_bytes[group], self._slot_bytes[group])
            )
            for index, (group, slots) in enumerate(self.slots.items())
        }
        """Offsets that were never taken: a window of any size costs nothing before it is used."""
        self._returned: dict[int, list[int]] = {group: [] for group in self.slots}
        self._credits = dict(self.slots)
        self.fd = os.memfd_create("orbitkv-staging", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, self.staging_bytes)
            # The manager maps it too, and would die of SIGBUS if it shrank under its hands.
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
            self._view = AlignedMapping(self.fd, self.staging_bytes).view
        except BaseException:
            os.close(self.fd)
            raise

    def credits(self, group: int) -> int:
        """Pages of this group that can be put in now."""
        return self._credits.get(group, 0)

    def take(self, group: int) -> int:
        """The offset of a free slot. Raises IndexError when there is none."""
        returned = self._returned[group]
        offset = returned.pop() if returned else next(self._untouched[group], -1)
        if offset < 0:
            raise IndexError(f"no slot of group {group} is free")
        self._credits[group] -= 1
        return offset

    def give_back(self, group: int, offset: int) -> None:
        self._returned[group].append(offset)
        self._credits[group] += 1

    def slot(self, group: int, offset: int) -> memoryview:
        """The slot's bytes, to be written into."""
        return self._view[offset : offset + self._slot_bytes[group]]

    def close(self) -> None:
        """Slots that are still being written keep the memory; nobody reads it any more."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __repr__(self) -> str:
        free = ", ".join(
            f"group {group}: {self.credits(group)} of {n} free" for group, n in self.slots.items()
        )
        return f"StagingWindow({free})"
