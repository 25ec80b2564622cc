"""The telling half of the golden stories: steps wishes, writes down what came of them, knows names by number.

`storyteller` says what the wishes are and how a story's file looks. Beside each story an observer keeps
its own books and the kernel's full check runs after every record.
"""

import re
from collections.abc import Callable

import msgspec

from orbitkv.events import facts
from orbitkv.events.codec import encode_records
from orbitkv.events.commands import Command
from orbitkv.events.config import SECOND_NS, KernelConfig
from orbitkv.events.record import Record
from orbitkv.manager.kernel import Answer, Refused, check, digest, new_state, step
from replay.wording.lines import struct_text
from tests.models.columns import numbers
from tests.models.observer import HANDLERS, Observer

HIDDEN = {"config", "groups", "namespace_digest", "host", "kernel_revision", "body", "staging_bytes"}
"""Fields that would bury the story: they say nothing that the wish above them does not say."""


_OPERATION = re.compile(r"\boperation=(\d+)")
_NOTHING = re.compile(r" \w+=0(?:\+0)?(?=[ >])")
"""Fields of the state line that say that there is none of something."""


class StoryError(Exception):
    """A wish that the teller does not understand."""


class Teller:
    """Tells one story. Keeps by name what the facts number: sessions, operations, pages, buffers, slots."""

    def __init__(self) -> None:
        self.clock_ns = 0
        self.config = KernelConfig(
            pool_bytes=0, superblock_bytes=1, query_budget_bytes=0, instance_query_budget_bytes=0
        )
        self.told: list[str] = []
        self.broken = False
        """A record broke a rule: there is no going on from it."""
        self.written: dict[int, tuple[bytes, int]] = {}
        """What stands in the SSD's slots: key and generation."""
        self.forget()

    def forget(self) -> None:
        """A new process: all that it knew of the old one is what the SSD holds."""
        self.state = new_state()
        self.observer = Observer()
        self.observed = True
        """Until a fact comes of which the observer's rules do not speak."""
        self.records: list[bytes] = []
        self.sessions: dict[str, int] = {}
        self.operations: dict[str, int] = {}
        self.leases: dict[str, int] = {}
        self.tickets: dict[int, int] = {}
        self.ranks: dict[int, int] = {}
        """Session to rank."""
        self.hints: dict[tuple[str, str], int] = {}
        """(who, request) to the ticket of the last hint."""
        self.pages: dict[int, bytes] = {}
        self.buffers: dict[bytes, int] = {}
        self.keys: dict[int, bytes] = {}
        """Buffer to the key it was last allocated for; `buffers` is the other way round."""
        self.generations: dict[int, int] = {}
        self.footprints: dict[bytes, int] = {}
        """Bytes of each key's page, without its trailer."""
        self.plans: dict[tuple[str, bytes], tuple[int, int]] = {}
        """(who, key) to the buffer and generation that a save was given."""
        self.reads: dict[bytes, int] = {}
        self.slots: dict[bytes, int] = {}
        self.writing: set[bytes] = set()
        self.last_report: Command | None = None

    # --- telling --------------------------------------------------------------------------------------

    def tell(self, story: str) -> str:
        """The story with everything beneath its wishes told anew."""
        lines: list[str] = []
        for line in story.splitlines():
            if line.startswith("#"):
                if lines and not lines[-1].startswith("#"):
                    lines.append("")
                lines.append(line)
            elif line.startswith("> "):
                if lines and not lines[-1].startswith("#"):
                    lines.append("")
                lines += [line, *self.wish(line[2:])]
        return "\n".join(lines) + "\n"

    def wish(self, wish: str) -> list[str]:
        words = wish.split()
        quietly = words[0] == "quietly"
        if quietly:
            words = words[1:]
        self.told = []
        act: Callable[..., None] | None = getattr(self, "wish_" + words[0].replace("-", "_"), None)
        if act is None:
            raise StoryError(f"no such wish: {wish!r}")
        act(*words[1:])
        return [*([] if quietly else self.told), f"= {_NOTHING.sub('', repr(self.state))}"]

    def send(self, command: Command) -> Record | Answer | Refused:
        self.clock_ns += SECOND_NS // 1000
        before = digest(self.state)
        result = step(self.state, self.clock_ns, command)
        match result:
            case Record():
                self._recorded(result)
            case Refused():
                assert digest(self.state) == before, "a refused command changes nothing"
                self.told.append(f"refused: {result.reason.name.lower()}: {result.detail}")
            case Answer():
                assert digest(self.state) == before, "an answer changes nothing"
                self.told.append("answer: nothing changed")
        return result

    def _recorded(self, record: Record) -> None:
        self.broken = True
        self.records.append(encode_records([record]))
        self.told += [_fact_text(event) for event in record.events]
        self.observed &= all(type(event) in HANDLERS for event in record.events)
        if self.observed:
            self.observer.observe(record)
            self.observer.check()
        check(self.state)
        for event in record.events:
            self._learn(event)
        self.broken = False

    def _learn(self, event: facts.Event) -> None:
        match event:
            case facts.PagesBound():
                self.pages.update(zip(numbers(event.pages), event.keys, strict=True))
            case facts.BuffersAllocated():
                for index, buffer in enumerate(numbers(event.buffers)):
                    self.keys[buffer] = self.pages[numbers(event.pages)[index]]
                    self.buffers[self.keys[buffer]] = buffer
                    self.footprints[self.keys[buffer]] = event.footprint_bytes
                    self.generations[buffer] = event.generation + index
            case facts.ReadsQueued():
                for index, page in enumerate(numbers(event.pages)):
                    self.reads[self.pages[page]] = event.read + index
            case facts.WritesSubmitted():
                self._writes_submitted(event)
            case facts.SlotsRecovered():
                for slot, page in zip(numbers(event.slots), numbers(event.pages), strict=True):
                    self.slots[self.pages[page]] = slot
            case _:
                pass

    def _writes_submitted(self, event: facts.WritesSubmitted) -> None:
        for slot, buffer in zip(numbers(event.slots), numbers(event.buffers), strict=True):
            key = self.keys[buffer]
            self.slots[key] = slot
            self.writing.add(key)
            self.written[slot] = (key, self.generations[buffer])


def _fact_text(event: facts.Event) -> str:
    shown = [field.name for field in msgspec.structs.fields(type(event)) if field.name in HIDDEN]
    words = struct_text(event)
    for name in shown:
        words = _without(words, name, event)
    return _OPERATION.sub(_short_operation, words)


def _short_operation(found: re.Match[str]) -> str:
    """Opener and ticket, as `1.7`, instead of one long number."""
    opener, ticket = divmod(int(found[1]), 1 << 32)
    return f"operation={opener}.{ticket}"


def _without(words: str, name: str, event: facts.Event) -> str:
    """The text without one field: from its name to the next field's, or to the end."""
    names = [field.name for field in msgspec.structs.fields(type(event))]
    start = words.index(f" {name}=")
    later = names[names.index(name) + 1 :]
    ends = [words.index(f" {other}=", start + 1) for other in later if f" {other}=" in words[start + 1 :]]
    return words[:start] + (words[min(ends) :] if ends else "")
