"""Names for what a log numbers, so that a part of its commands can be told again where the numbers differ.

Page numbers, buffers, reads, slots and leases are given out in order: leave one command out and all later
ones move. A page's key stays, so things are named by it: `KEY@SPACE#2` is the second read of that page (or
its second buffer, or its second write), and a lease is named by its operation. Sessions, processes and
tickets are their openers' choice and stay as they are.

`Names` learns from facts. One of them follows the log and gives names, another follows the telling and
gives numbers; a name that means nothing there becomes a number that means nothing.
"""

import re
import struct

from orbitkv.events import facts
from orbitkv.events.record import Record

UNKNOWN = 0x7FFF_FFFF
"""Stands for a name that the telling does not know: no such buffer, read, slot or lease."""

_PLAIN = re.compile(rb"[A-Za-z0-9_./:-]{1,64}")


def numbers(column: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(column) // 4}I", column)


def key_name(key: bytes) -> str:
    """A page key, readable if it is plain text, else in hexadecimal; always to be had back."""
    if _PLAIN.fullmatch(key) and not key.startswith(b"0x"):
        return key.decode("ascii")
    return f"0x{key.hex()}"


def key_of(name: str) -> bytes:
    return bytes.fromhex(name[2:]) if name.startswith("0x") else name.encode("ascii")


def operation_name(operation: int) -> str:
    """Opener and ticket, as `5.12`."""
    opener, ticket = divmod(operation, 1 << 32)
    return f"{opener}.{ticket}"


def operation_of(name: str) -> int:
    opener, _, ticket = name.partition(".")
    return int(opener) << 32 | int(ticket)


class _Things:
    """Buffers, reads or slots: several for one page, one after another."""

    def __init__(self) -> None:
        self._of_page: dict[str, list[int]] = {}
        self._names: dict[int, str] = {}

    def add(self, page: str, number: int) -> None:
        known = self._of_page.setdefault(page, [])
        known.append(number)
        self._names[number] = f"{page}#{len(known)}"

    def name(self, number: int) -> str:
        return self._names.get(number, f"?{number}")

    def number(self, name: str) -> int:
        """The one of that name; if the page had fewer here, its last one."""
        if name.startswith("?"):
            return int(name[1:])
        page, _, place = name.rpartition("#")
        known = self._of_page.get(page)
        return known[min(int(place), len(known)) - 1] if known else UNKNOWN


class Names:
    """Give it every record of an incarnation, in order."""

    def __init__(self) -> None:
        self.reads, self.slots = _Things(), _Things()
        self._generations = _Things()
        """Buffers are used again, so their names are those of their generations."""
        self._generation_of: dict[int, int] = {}
        self._buffer_of: dict[int, int] = {}
        """Generation to buffer."""
        self._spaces: dict[int, str] = {}
        self._pages: dict[int, tuple[int, bytes]] = {}
        self._page_of_buffer: dict[int, int] = {}
        self._leases: dict[int, int] = {}
        self._leased: dict[int, int] = {}
        """Operation to its lease."""

    def learn(self, record: Record) -> None:
        for event in record.events:
            match event:
                case facts.SpaceOpened():
                    self._spaces[event.space] = f"{event.namespace_digest[:3].hex()}.{event.group}"
                case facts.PagesBound():
                    for page, key in zip(numbers(event.pages), event.keys, strict=True):
                        self._pages[page] = (event.space, key)
                case facts.BuffersAllocated():
                    self._allocated(event)
                case facts.ReadsQueued():
                    for index, page in enumerate(numbers(event.pages)):
                        self.reads.add(self.page(page), event.read + index)
                case facts.WritesSubmitted():
                    for slot, buffer in zip(numbers(event.slots), numbers(event.buffers), strict=True):
                        self.slots.add(self.page(self._page_of_buffer[buffer]), slot)
                case facts.LeaseGranted():
                    self._leases[event.lease] = event.operation
                    self._leased[event.operation] = event.lease
                case _:
                    pass

    def _allocated(self, event: facts.BuffersAllocated) -> None:
        columns = zip(numbers(event.buffers), numbers(event.pages), strict=True)
        for index, (buffer, page) in enumerate(columns):
            self._page_of_buffer[buffer] = page
            self._generation_of[buffer] = event.generation + index
            self._buffer_of[event.generation + index] = buffer
            self._generations.add(self.page(page), event.generation + index)

    def key(self, page: int) -> bytes:
        """Of a page number that was bound."""
        return self._pages[page][1]

    def page(self, page: int) -> str:
        """`KEY@SPACE`; the space by the first digits of its digest and its group."""
        space, key = self._pages[page]
        return f"{key_name(key)}@{self._spaces[space]}"

    def buffer(self, buffer: int) -> str:
        """Of what the buffer holds now."""
        return self.generation(self._generation_of.get(buffer, -1), buffer)

    def generation(self, generation: int, buffer: int) -> str:
        known = generation in self._buffer_of
        return self._generations.name(generation) if known else f"?{buffer}"

    def buffer_of(self, name: str) -> tuple[int, int]:
        """(buffer, generation)"""
        if name.startswith("?"):
            return int(name[1:]), 0
        generation = self._generations.number(name)
        return self._buffer_of.get(generation, UNKNOWN), generation

    def lease(self, lease: int) -> str:
        return operation_name(self._leases[lease]) if lease in self._leases else f"?{lease}"

    def lease_of(self, name: str) -> int:
        return int(name[1:]) if name.startswith("?") else self._leased.get(operation_of(name), UNKNOWN)
