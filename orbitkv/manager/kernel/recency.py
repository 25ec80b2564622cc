"""Least-recent-first order without moving anything: a touch queue whose stale entries are skipped.

An entry is (buffer, seq of the record that touched it). It counts only while the buffer's own
`last` is still that seq and the buffer is still in this queue; a later touch or a move to another
queue makes it stale. Recency is the log's sequence number, never a clock. Inside one record the
deepest page of a prefix is the oldest, because evicting a prefix from its end keeps the rest useful.

Reading never changes the queue, so planning is pure; `append` and `trim` are called by `apply` alone.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from orbitkv.events.outcomes import PageClass
from orbitkv.manager.kernel.columns import EMPTY, Ints, grown

if TYPE_CHECKING:
    from orbitkv.manager.kernel.buffers import BufferTable

_SCAN = 1024
_FIRST = 4
"""Entries looked at one by one before a whole block: mostly as few are stale, and a block costs as ten."""


class TouchQueue:
    """One queue for each (page class, slot size)."""

    __slots__ = ("_buffers", "_head", "_seqs", "_tail", "number", "page_class")

    def __init__(self, number: int, page_class: PageClass) -> None:
        self.number = number
        self.page_class = page_class
        self._buffers: Ints = np.empty(64, np.int64)
        self._seqs: Ints = np.empty(64, np.int64)
        self._head = 0
        self._tail = 0

    def append(self, buffers: Ints, seq: int, table: "BufferTable") -> None:
        """Add `buffers`, oldest first, as touched by record `seq`."""
        if self._tail + len(buffers) > len(self._buffers):
            self._make_room(len(buffers), table)
        end = self._tail + len(buffers)
        self._buffers[self._tail : end] = buffers
        self._seqs[self._tail : end] = seq
        self._tail = end

    def withdraw(self, buffers: Ints, seq: int) -> None:
        """Take out the entries that record `seq` itself has added for `buffers`: it touches them again."""
        start = self._head + int(np.searchsorted(self._seqs[self._head : self._tail], seq))
        newest = slice(start, self._tail)
        kept = np.flatnonzero(~np.isin(self._buffers[newest], buffers))
        end = start + len(kept)
        self._buffers[start:end] = self._buffers[newest][kept]
        self._seqs[start:end] = seq
        self._tail = end

    def trim(self, table: "BufferTable") -> None:
        """Drop stale entries at the old end."""
        head = self._first_live(table)
        if head is not None:
            self._head = head
            return
        while self._head < self._tail:
            end = min(self._head + _SCAN, self._tail)
            live = self._live(self._head, end, table)
            if len(live):
                self._head += int(live[0])
                return
            self._head = end

    def scan(self, table: "BufferTable") -> Iterator[Ints]:
        """Live buffers, oldest first, in blocks."""
        for start in range(self._head, self._tail, _SCAN):
            end = min(start + _SCAN, self._tail)
            live = self._live(start, end, table)
            if len(live):
                yield self._buffers[start + live]

    def entries(self, table: "BufferTable") -> Ints:
        """All live buffers, oldest first."""
        blocks = list(self.scan(table))
        return np.concatenate(blocks) if blocks else EMPTY

    def oldest_seq(self, table: "BufferTable") -> int | None:
        head = self._first_live(table)
        if head is not None:
            return int(self._seqs[head])
        for block in self.scan(table):
            return int(table.last[block[0]])
        return None

    def _first_live(self, table: "BufferTable") -> int | None:
        """Place of the oldest live entry, if it is one of the first few."""
        for place in range(self._head, min(self._head + _FIRST, self._tail)):
            buffer = self._buffers[place]
            if table.last[buffer] == self._seqs[place] and table.queue[buffer] == self.number:
                return place
        return None

    def _live(self, start: int, end: int, table: "BufferTable") -> Ints:
        buffers = self._buffers[start:end]
        live = (table.last[buffers] == self._seqs[start:end]) & (table.queue[buffers] == self.number)
        found: Ints = live.nonzero()[0]
        return found

    def _make_room(self, count: int, table: "BufferTable") -> None:
        live = self._head + self._live(self._head, self._tail, table)
        kept = len(live)
        buffers, seqs = self._buffers[live], self._seqs[live]
        if 2 * (kept + count) > len(self._buffers):
            self._buffers = grown(self._buffers, 2 * (kept + count), 0)
            self._seqs = grown(self._seqs, 2 * (kept + count), 0)
        self._buffers[:kept] = buffers
        self._seqs[:kept] = seqs
        self._head, self._tail = 0, kept
