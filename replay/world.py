"""The simulated world: an SSD, a pool, carriers and staging windows, all with seeded trouble.

It carries out the kernel's effects on contents that are plain identities instead of bytes, so that a
page in the wrong place, a buffer reused too early or a slot found too soon shows as a wrong identity.
It follows the facts for where things lie; it never asks the kernel, and decides nothing for it.

What it may do to the kernel: delay any completion, double it, keep it back until the drain, shorten,
fail or spoil a read, fail a write, lose a staging window. What it never does, because the ports forbid
it: report something that was not submitted, or report a doubled write, copy or seal after its slot or
buffer is in use again (the shell tells those apart by token).
"""

from collections.abc import Sequence
from random import Random

import attrs
import numpy as np

from orbitkv.events import commands, effects, facts
from orbitkv.events.commands import Command
from orbitkv.events.config import KernelConfig
from orbitkv.events.ids import ALIGNMENT_BYTES, TRAILER_BYTES
from orbitkv.events.outcomes import CopyOutcome, ReadOutcome, WriteOutcome
from orbitkv.events.record import Record


class WorldError(AssertionError):
    """The kernel made the world do something that a real one would pay for with wrong bytes."""


@attrs.frozen
class Identity:
    """What a page image says of itself in its trailer."""

    namespace_digest: bytes
    group: int
    key: bytes
    incarnation: int
    generation: int


@attrs.define
class Faults:
    """Chances, each between 0 and 1, that a chore goes wrong."""

    short_read: float = 0.02
    failed_read: float = 0.02
    rotten_slot: float = 0.03
    swapped_slots: float = 0.02
    failed_write: float = 0.02
    twice_on_disk: float = 0.3
    """Of a crash: one page is found in two slots afterwards."""
    source_gone: float = 0.01
    doubled: float = 0.05
    lost: float = 0.01
    """Kept back until the drain."""
    slow: float = 0.1
    """Takes up to 20 times as long."""


@attrs.define
class Image:
    """One slot of the page file: what stands in it, and what the directory says of it."""

    identity: Identity
    entry: Identity
    footprint_bytes: int
    rotten: bool = False


@attrs.define
class Place:
    """Where a buffer lies and whose page it is for."""

    page: int
    offset: int
    footprint_bytes: int
    generation: int


@attrs.define
class Chore:
    """Something submitted that will be reported once it is due."""

    due_step: float
    kind: str
    """read, write, copy or seal."""
    number: int
    """Read, slot or buffer."""
    buffer: int
    slot: int = -1
    session: int = -1
    rank: int = -1
    expected: Identity | None = None
    repeated: bool = False
    """A report that was made already and comes once more."""


def u32(values: Sequence[int]) -> bytes:
    return np.array(values, "<u4").tobytes()


def u64(values: Sequence[int]) -> bytes:
    return np.array(values, "<u8").tobytes()


def _numbers(column: bytes) -> list[int]:
    values: list[int] = np.frombuffer(column, "<u4").tolist()
    return values


class World:
    """One machine: its memory goes with a crash, its page file stays. All randomness is the caller's."""

    def __init__(self, random: Random, config: KernelConfig, faults: Faults) -> None:
        self.random = random
        self.config = config
        self.faults = faults
        self.incarnation = 0
        self.disk: dict[int, Image] = {}
        self.condemned: set[int] = set()
        self.segments: dict[int, int] = {}
        self.step = 0
        self.forget()

    def forget(self) -> None:
        """The process ends: memory, and what was under way, is gone."""
        self.memory: dict[int, Identity | None] = {}
        self.chores: list[Chore] = []
        self.spaces: dict[int, tuple[bytes, int]] = {}
        self.pages: dict[int, tuple[int, bytes]] = {}
        self.places: dict[int, Place] = {}
        self.slot_identities: dict[int, Identity] = {}
        self.gone_sessions: set[int] = set()
        self.closing: list[int] = []

    # --- facts: where things lie ----------------------------------------------------------------------

    def follow(self, record: Record) -> None:
        """Learn places from the facts of a record, before its effects are carried out."""
        for event in record.events:
            match event:
                case facts.IncarnationStarted():
                    self.incarnation = event.incarnation
                case facts.SpaceOpened():
                    self.spaces[event.space] = (event.namespace_digest, event.group)
                case facts.PagesBound():
                    for page, key in zip(_numbers(event.pages), event.keys, strict=True):
                        self.pages[page] = (event.space, key)
                case facts.BuffersAllocated():
                    self._allocated(event)
                case facts.BuffersFreed():
                    for buffer in _numbers(event.buffers):
                        self.memory.pop(self.places.pop(buffer).offset, None)
                case facts.WritesSubmitted():
                    for slot, buffer in zip(_numbers(event.slots), _numbers(event.buffers), strict=True):
                        self.slot_identities[slot] = self.identity_of(buffer)
                case facts.SessionClosed():
                    self.gone_sessions.add(event.session)
                case facts.SlotsRecovered():
                    self._recovered(event)
                case _:
                    pass

    def _allocated(self, event: facts.BuffersAllocated) -> None:
        offsets: list[int] = np.frombuffer(event.offsets, "<u8").tolist()
        for index, (buffer, page) in enumerate(
            zip(_numbers(event.buffers), _numbers(event.pages), strict=True)
        ):
            self.places[buffer] = Place(page, offsets[index], event.footprint_bytes, event.generation + index)

    def _recovered(self, event: facts.SlotsRecovered) -> None:
        for slot in _numbers(event.slots):
            self.slot_identities[slot] = self.disk[slot].entry

    def identity_of(self, buffer: int) -> Identity:
        place = self.places[buffer]
        space, key = self.pages[place.page]
        digest, group = self.spaces[space]
        return Identity(digest, group, key, self.incarnation, place.generation)

    # --- effects --------------------------------------------------------------------------------------

    def carry(self, chores: Sequence[effects.Effect]) -> None:
        """Begin what the kernel asks for."""
        for effect in chores:
            match effect:
                case effects.ReadPages():
                    self._begin_reads(effect)
                case effects.WritePages():
                    self._begin_writes(effect)
                case effects.CopySlices():
                    for buffer in _numbers(effect.buffers):
                        self._add("copy", buffer, buffer, session=effect.session, rank=effect.rank)
                case effects.SealPages():
                    for buffer in _numbers(effect.buffers):
                        self._add("seal", buffer, buffer)
                case effects.FormatSegment():
                    self._format(effect)
                case effects.ClearSlots():
                    for slot in _numbers(effect.slots):
                        self.disk.pop(slot, None)
                        if effect.quarantine:
                            self.condemned.add(slot)
                case effects.CloseConnection():
                    self.closing.append(effect.session)
                case effects.PrepareSuperblock():
                    pass

    def _add(
        self, kind: str, number: int, buffer: int, *, slot: int = -1, session: int = -1, rank: int = -1
    ) -> Chore:
        delay = 1.0 + self.random.random() * 5
        if self.random.random() < self.faults.slow:
            delay *= 20
        if self.random.random() < self.faults.lost:
            delay = float("inf")
        chore = Chore(self.step + delay, kind, number, buffer, slot, session, rank)
        self.chores.append(chore)
        return chore

    def _begin_reads(self, effect: effects.ReadPages) -> None:
        columns = zip(_numbers(effect.reads), _numbers(effect.buffers), _numbers(effect.slots), strict=True)
        for read, buffer, slot in columns:
            self.memory[self.places[buffer].offset] = None
            chore = self._add("read", read, buffer, slot=slot)
            chore.expected = self.slot_identities[slot]

    def _begin_writes(self, effect: effects.WritePages) -> None:
        for slot, buffer in zip(_numbers(effect.slots), _numbers(effect.buffers), strict=True):
            self.disk.pop(slot, None)
            chore = self._add("write", slot, buffer, slot=slot)
            chore.expected = self.memory.get(self.places[buffer].offset)
            right = chore.expected is not None and chore.expected.key == self.identity_of(buffer).key
            if not right:
                raise WorldError(
                    f"slot {slot} would be written from buffer {buffer}, which holds no such page"
                )

    def _format(self, effect: effects.FormatSegment) -> None:
        self.segments[effect.segment] = effect.slot_bytes
        for slot in [slot for slot in self.disk if self._segment(slot) == effect.segment]:
            del self.disk[slot]
        self.condemned = {slot for slot in self.condemned if self._segment(slot) != effect.segment}

    def _segment(self, slot: int) -> int:
        return slot // self.config.ssd_slots_per_segment_max

    # --- completions ----------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Nothing submitted is still to be reported for the first time."""
        return all(chore.repeated for chore in self.chores)

    def drain(self) -> None:
        """From now on everything is due at once, also what was kept back."""
        for chore in self.chores:
            chore.due_step = 0

    def deliver(self) -> Command | None:
        """One report of things that are due, of one kind, as one wake of a ring would bring it."""
        due = [chore for chore in self.chores if chore.due_step <= self.step]
        if not due:
            return None
        first = self.random.choice(due)
        alike = [chore for chore in due if chore.kind == first.kind and chore.session == first.session][
            : self.random.randint(1, 16)
        ]
        taken = [chore for chore in alike if not self._spent(chore)]
        self.chores = [chore for chore in self.chores if chore not in alike]
        if not taken:
            return None
        match first.kind:
            case "read":
                command: Command = self._end_reads(taken)
            case "write":
                command = self._end_writes(taken)
            case "copy":
                command = self._end_copies(taken)
            case _:
                command = self._end_seals(taken)
        self._double(taken)
        return command

    def _spent(self, chore: Chore) -> bool:
        """A repeated report that the shell's tokens would keep from a later use of the same number."""
        again = [other for other in self.chores if not other.repeated and other.kind == chore.kind]
        return (
            chore.repeated and chore.kind != "read" and any(other.number == chore.number for other in again)
        )

    def _double(self, taken: Sequence[Chore]) -> None:
        for chore in taken:
            if not chore.repeated and self.random.random() < self.faults.doubled:
                due = self.step + self.random.randint(0, 20)
                self.chores.append(attrs.evolve(chore, repeated=True, due_step=due))

    def _end_reads(self, taken: Sequence[Chore]) -> commands.CompleteReads:
        outcomes = [ReadOutcome.WHOLE if chore.repeated else self._read(chore) for chore in taken]
        sizes = [
            self.places[chore.buffer].footprint_bytes + TRAILER_BYTES
            if outcome == ReadOutcome.WHOLE and chore.buffer in self.places
            else 0
            for chore, outcome in zip(taken, outcomes, strict=True)
        ]
        return commands.CompleteReads(
            u32([chore.number for chore in taken]),
            bytes(outcomes),
            u32(sizes),
            u32([self.random.randint(100, 9000) for _ in taken]),
        )

    def _read(self, chore: Chore) -> ReadOutcome:
        roll = self.random.random()
        if roll < self.faults.short_read:
            return ReadOutcome.SHORT
        if roll < self.faults.short_read + self.faults.failed_read:
            return ReadOutcome.FAILED
        image = self.disk.get(chore.slot)
        if image is None or image.rotten:
            return ReadOutcome.CORRUPT
        if image.identity != chore.expected:
            return ReadOutcome.OTHER_PAGE
        self.memory[self._place(chore).offset] = image.identity
        return ReadOutcome.WHOLE

    def _place(self, chore: Chore) -> Place:
        place = self.places.get(chore.buffer)
        if place is None:
            raise WorldError(f"buffer {chore.buffer} was freed before its {chore.kind} ended")
        return place

    def _end_writes(self, taken: Sequence[Chore]) -> commands.CompleteWrites:
        outcomes = [WriteOutcome.WRITTEN if chore.repeated else self._write(chore) for chore in taken]
        return commands.CompleteWrites(
            u32([chore.number for chore in taken]),
            bytes(outcomes),
            u32([self.random.randint(100, 9000) for _ in taken]),
        )

    def _write(self, chore: Chore) -> WriteOutcome:
        place = self._place(chore)
        now = self.memory.get(place.offset)
        if now is None or now != chore.expected:
            raise WorldError(
                f"the memory of buffer {chore.buffer} changed while slot {chore.slot} was written"
            )
        if self.random.random() < self.faults.failed_write:
            return self.random.choice((WriteOutcome.SHORT, WriteOutcome.FAILED, WriteOutcome.NO_SPACE))
        self._store(chore, place)
        self._spoil(chore.slot)
        return WriteOutcome.WRITTEN

    def _store(self, chore: Chore, place: Place) -> None:
        identity = self.slot_identities[chore.slot]
        self.disk[chore.slot] = Image(identity, identity, place.footprint_bytes)

    def _spoil(self, slot: int) -> None:
        """Bits rot, and now and then two slots change places."""
        if self.random.random() < self.faults.rotten_slot:
            self.disk[slot].rotten = True
        if self.random.random() < self.faults.swapped_slots:
            other = self.random.choice(list(self.disk))
            one, two = self.disk[slot], self.disk[other]
            if one.footprint_bytes == two.footprint_bytes:
                one.identity, two.identity = two.identity, one.identity

    def _end_copies(self, taken: Sequence[Chore]) -> commands.CompleteCopies:
        gone = taken[0].session in self.gone_sessions
        outcomes = [
            CopyOutcome.SOURCE_GONE
            if gone or self.random.random() < self.faults.source_gone
            else CopyOutcome.COPIED
            for _ in taken
        ]
        return commands.CompleteCopies(
            session=taken[0].session,
            rank=taken[0].rank,
            buffers=u32([chore.number for chore in taken]),
            outcomes=bytes(outcomes),
            elapsed_us=self.random.randint(10, 900),
        )

    def _end_seals(self, taken: Sequence[Chore]) -> commands.CompleteSeals:
        for chore in taken:
            if not chore.repeated:
                self.memory[self._place(chore).offset] = self.identity_of(chore.buffer)
        return commands.CompleteSeals(u32([chore.number for chore in taken]))

    # --- what engines and a restart find ---------------------------------------------------------------

    def check_pages(self, keys: Sequence[bytes], offsets: bytes) -> None:
        """An engine copies these keys from these pool offsets (a u64 column). Raises WorldError."""
        for key, offset in zip(keys, np.frombuffer(offsets, "<u8").tolist(), strict=True):
            held = self.memory.get(offset)
            if held is None or held.key != key:
                raise WorldError(f"a lease names offset {offset} for {key!r}, which holds {held}")

    def crash(self) -> None:
        """Power stays, the process dies: each write under way has happened, is torn, or has not begun."""
        for chore in self.chores:
            if chore.kind == "write" and not chore.repeated and self.random.random() < 0.5:
                self._store(chore, self._place(chore))
        if self.disk and self.random.random() < self.faults.twice_on_disk:
            self._copy_one_slot()
        self.forget()

    def _copy_one_slot(self) -> None:
        """As two writers of one key would leave it: a second image of a page in a free slot."""
        slot = self.random.choice(list(self.disk))
        segment = self._segment(slot)
        first = segment * self.config.ssd_slots_per_segment_max
        count = min(
            self.config.ssd_slots_per_segment_max, self.config.ssd_segment_bytes // self.segments[segment]
        )
        free = [
            other
            for other in range(first, first + count)
            if other not in self.disk and other not in self.condemned
        ]
        if free:
            self.disk[self.random.choice(free)] = attrs.evolve(self.disk[slot])

    def directory(self) -> list[commands.RecoverSegment]:
        """What a successor reads at its start, a command per segment."""
        return [self._segment_found(segment) for segment in sorted(self.segments)]

    def _segment_found(self, segment: int) -> commands.RecoverSegment:
        slots = sorted(slot for slot in self.disk if self._segment(slot) == segment)
        images = [self.disk[slot] for slot in slots]
        scopes = sorted({(image.entry.namespace_digest, image.entry.group) for image in images})
        generations = np.array([image.entry.generation for image in images], "<u8")
        return commands.RecoverSegment(
            segment=segment,
            slot_bytes=self.segments[segment],
            slots=u32(slots),
            spaces=u32([scopes.index((image.entry.namespace_digest, image.entry.group)) for image in images]),
            scopes=tuple(scopes),
            keys=tuple(image.entry.key for image in images),
            generations=generations.tobytes(),
            incarnations=u32([image.entry.incarnation for image in images]),
            footprints=u32([image.footprint_bytes // ALIGNMENT_BYTES for image in images]),
            quarantined=u32(sorted(slot for slot in self.condemned if self._segment(slot) == segment)),
        )
