"""What stands on a pretended SSD, in which order it got there, and what of it a power loss keeps.

Every change is an operation: a page's data or an entry of the directory. Operations take effect at
once for readers (the page cache) and become durable with `sync()`. A power loss keeps an arbitrary
subset of those that came after the last sync, in their order, and may tear a page that was being
written; a killed process keeps them all.
"""

from collections.abc import Collection
from typing import TypeAlias

import attrs

from orbitkv.manager.ports import PageIdentity


@attrs.frozen
class StoredPage:
    identity: PageIdentity
    image: bytes
    torn: bool = False


@attrs.frozen
class Entry:
    identity: PageIdentity
    footprint_bytes: int


@attrs.frozen
class PageData:
    file_offset: int
    page: StoredPage


@attrs.frozen
class EntrySet:
    segment: int
    slot_index: int
    entry: Entry


@attrs.frozen
class EntryCleared:
    segment: int
    slot_index: int
    quarantine: bool = False


@attrs.frozen
class SegmentFormatted:
    segment: int
    slot_bytes: int


Operation: TypeAlias = PageData | EntrySet | EntryCleared | SegmentFormatted


@attrs.define
class Contents:
    """Pages by segment and file offset; the directory by segment and slot index."""

    pages: dict[int, dict[int, StoredPage]] = attrs.Factory(dict)
    slot_bytes: dict[int, int] = attrs.Factory(dict)
    entries: dict[tuple[int, int], Entry] = attrs.Factory(dict)
    quarantined: set[tuple[int, int]] = attrs.Factory(set)

    def copy(self) -> "Contents":
        pages = {segment: dict(pages) for segment, pages in self.pages.items()}
        return Contents(pages, dict(self.slot_bytes), dict(self.entries), set(self.quarantined))


class Medium:
    def __init__(self, segment_bytes: int, contents: Contents | None = None) -> None:
        self.segment_bytes = segment_bytes
        self.unsynced: list[Operation] = []
        """Operations since the last sync, oldest first."""
        self.syncs = 0
        self._durable = contents or Contents()
        self.current = self._durable.copy()
        """What a reader sees while the power is on."""

    def write(self, operation: Operation) -> None:
        self.unsynced.append(operation)
        self._apply(self.current, operation)

    def sync(self) -> None:
        for operation in self.unsynced:
            self._apply(self._durable, operation)
        self.unsynced.clear()
        self.syncs += 1

    def page_at(self, file_offset: int) -> StoredPage | None:
        return self.current.pages.get(file_offset // self.segment_bytes, {}).get(file_offset)

    def flip_bit(self, file_offset: int) -> None:
        """Rot: one bit of the stored page changes, its identity stays readable."""
        pages = self.current.pages[file_offset // self.segment_bytes]
        page = pages[file_offset]
        pages[file_offset] = attrs.evolve(page, image=bytes([page.image[0] ^ 1]) + page.image[1:], torn=True)

    def after_kill(self) -> "Medium":
        """The process died, the machine did not."""
        return Medium(self.segment_bytes, self.current.copy())

    def after_power_loss(self, kept: Collection[int] = (), torn: Collection[int] = ()) -> "Medium":
        """A new medium with `unsynced[i]` for every i in `kept`; pages at i in `torn` only in part."""
        contents = self._durable.copy()
        for index, operation in enumerate(self.unsynced):
            if index in torn and isinstance(operation, PageData):
                page = attrs.evolve(operation.page, torn=True)
                self._apply(contents, PageData(operation.file_offset, page))
            elif index in kept:
                self._apply(contents, operation)
        return Medium(self.segment_bytes, contents)

    def _apply(self, contents: Contents, operation: Operation) -> None:
        match operation:
            case PageData(file_offset, page):
                self._lay(contents.pages.setdefault(file_offset // self.segment_bytes, {}), file_offset, page)
            case EntrySet(segment, slot_index, entry):
                contents.entries[segment, slot_index] = entry
            case EntryCleared(segment, slot_index, quarantine):
                contents.entries.pop((segment, slot_index), None)
                if quarantine:
                    contents.quarantined.add((segment, slot_index))
            case SegmentFormatted(segment, slot_bytes):
                contents.slot_bytes[segment] = slot_bytes
                void = [key for key in contents.entries if key[0] == segment]
                for key in void:
                    del contents.entries[key]
                contents.quarantined -= {key for key in contents.quarantined if key[0] == segment}

    def _lay(self, pages: dict[int, StoredPage], file_offset: int, page: StoredPage) -> None:
        """What the new page overlaps in part is no page any more."""
        end = file_offset + len(page.image)
        for offset, old in list(pages.items()):
            if offset < end and file_offset < offset + len(old.image):
                del pages[offset]
        pages[file_offset] = page
