"""What a rank may read of the pool: the pages of a lease that it has begun to restore.

The pool is mapped for reading only; a write through these views raises in Python and would fault
anywhere else. The bytes are valid from `begin_restore` until the rank reports its sync: the manager
keeps them in place exactly that long, whatever happens to the lease meanwhile.
"""

import os
from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from orbitkv.adapters.client_errors import LimitExceeded
from orbitkv.io.mapping import AlignedMapping
from orbitkv.io.wire import GroupLayout, SlicePlace


class PoolMapping:
    """The manager's pool in this process, for reading. Lives until the last view of it has gone."""

    def __init__(self, fd: int, pool_bytes: int, incarnation: int) -> None:
        """Does not keep the descriptor. Raises OSError."""
        size_bytes = os.fstat(fd).st_size
        if size_bytes < pool_bytes:
            raise OSError(f"the pool has {size_bytes} bytes and was announced with {pool_bytes}")
        mapping = AlignedMapping(fd, pool_bytes, writable=False)
        self.incarnation = incarnation
        self.file = _identity(fd)
        """Of the memory itself: a manager whose log was removed begins to count its incarnations anew."""
        self.pool_bytes = pool_bytes
        self.address = mapping.address
        """For registering the whole pool with a device."""
        self.view = mapping.view

    def shows(self, fd: int) -> bool:
        """Whether this is a mapping of that very file, which lives as long as it is mapped."""
        return self.file == _identity(fd)

    def __repr__(self) -> str:
        return f"PoolMapping({self.pool_bytes} bytes of incarnation {self.incarnation})"


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


@attrs.frozen(slots=True, eq=False)
class RestoreView:
    """One rank's view of the pages of one lease, in the order of the query: part after part."""

    lease: bytes
    pool: PoolMapping = attrs.field(repr=False)
    parts: tuple[tuple[int, int], ...]
    """(group, pages) of each part."""
    offsets: npt.NDArray[np.uint64] = attrs.field(repr=False)
    """Pool offset of each page image."""
    layouts: dict[int, GroupLayout] = attrs.field(repr=False)

    def __len__(self) -> int:
        """Pages, over all parts."""
        return len(self.offsets)

    def group_of(self, page: int) -> int:
        """The group of a position in the page list. Raises IndexError."""
        first = 0
        for group, pages in self.parts:
            if first <= page < first + pages:
                return group
            first += pages
        raise IndexError(f"page {page} of a lease with {len(self)} pages")

    def page(self, page: int, slice: int = 0) -> memoryview:
        """The bytes of one of this rank's slices of a page, without padding, for reading only.

        `slice`: index in the order in which the rank registered its slices. Raises IndexError.
        """
        place = self._places(self.group_of(page))[slice]
        start = int(self.offsets[page]) + place.offset_bytes
        return self.pool.view[start : start + place.payload_bytes]

    def array(self, page: int, slice: int = 0) -> npt.NDArray[np.uint8]:
        """Like `page`, as a read-only numpy array of bytes."""
        return np.frombuffer(self.page(page, slice), np.uint8)

    def slice_offsets(self, part: int, slice: int = 0) -> tuple[npt.NDArray[np.uint64], int]:
        """(pool offset of this slice in each page of the part, bytes of the slice), for copying in bulk."""
        group, pages = self.parts[part]
        place = self._places(group)[slice]
        first = sum(count for _, count in self.parts[:part])
        return self.offsets[first : first + pages] + np.uint64(place.offset_bytes), place.payload_bytes

    def reaches_beyond_pool(self) -> bool:
        """Whether a page's bytes would lie outside the mapping: then nothing of it must be read."""
        first = 0
        for group, pages in self.parts:
            layout = self.layouts.get(group)
            footprint = 0 if layout is None else layout.footprint_bytes
            ours = self.offsets[first : first + pages]
            if pages and int(ours.max()) + footprint > self.pool.pool_bytes:
                return True
            first += pages
        return False

    def _places(self, group: int) -> Sequence[SlicePlace]:
        layout = self.layouts.get(group)
        if layout is None or not layout.slices:
            raise LimitExceeded(
                f"This rank holds no slice of group {group}. Register the group's geometry with its client, "
                "and restore with the rank that holds the slice."
            )
        return layout.slices
