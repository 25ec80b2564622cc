"""The simulated world: an SSD, a pool, carriers and staging windows, all with seeded trouble.

It carries out the kernel's effects on contents that are plain identities instead of bytes, so that a
page in the wrong place, a buffer reused too early or a slot found too soon shows as a wrong identity.
It follows the facts for where things lie; it never asks the kernel, and decides nothing for it.

What it may do to the kernel: delay any completion, double it, keep it back until the drain, shorten,
fail or spoil a read, fail a write, lose a staging window. What it never does, because the ports forbid
it: report something that was not submitted, or report a doubled write, copy or seal after its slot or
buffer is in use again (the shell tells those apart by token).
"""

import struct
from collections.abc import Sequence
from random import Random

import attrs

from orbitkv.events import commands, effects
from orbitkv.events.commands import Command
from orbitkv.events.config import KernelConfig
from orbitkv.events.ids import TRAILER_BYTES
from orbitkv.events.outcomes import CopyOutcome, ReadOutcome, WriteOutcome
from orbitkv.events.record import Record
from replay.simulate.faults import Faults
from replay.simulate.world_places import Place, Places, numbers
from replay.simulate.world_ssd import Identity, SimulatedSsd, u32


class WorldError(AssertionError):
    """The kernel made the world do something that a real one would pay for with wrong bytes."""


@attrs.define(eq=False)
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


class World:
    """One machine: its memory goes with a crash, its page file stays. All randomness is the caller's."""

    def __init__(self, random: Random, config: KernelConfig, faults: Faults) -> None:
        self.random = random
        self.config = config
        self.faults = faults
        self.ssd = SimulatedSsd(random, config, faults)
        self.step = 0
        self.stalled_until = 0
        """The SSD reports nothing before this step."""
        self.forget()

    def forget(self) -> None:
        """The process ends: memory, and what was under way, is gone."""
        self.chores: list[Chore] = []
        self.lying = Places(self.ssd)

    # --- facts ----------------------------------------------------------------------------------------

    def follow(self, record: Record) -> None:
        """Learn places from the facts of a record, before its effects are carried out."""
        self.lying.follow(record)

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
                    for buffer in numbers(effect.buffers):
                        self._add("copy", buffer, buffer, session=effect.session, rank=effect.rank)
                case effects.SealPages():
                    for buffer in numbers(effect.buffers):
                        self._add("seal", buffer, buffer)
                case effects.FormatSegment():
                    self.ssd.format(effect.segment, effect.slot_bytes)
                case effects.ClearSlots():
                    for slot in numbers(effect.slots):
                        self.ssd.clear(slot)
                        if effect.quarantine:
                            self.ssd.condemned.add(slot)
                case effects.CloseConnection() | effects.PrepareSuperblock():
                    pass

    def _add(
        self, kind: str, number: int, buffer: int, *, slot: int = -1, session: int = -1, rank: int = -1
    ) -> Chore:
        delay = 1.0 + self.random.random() * 5
        if self.faults.strikes("slow", self.random):
            delay *= 20
        if self.faults.strikes("lost", self.random):
            delay = float("inf")
        chore = Chore(self.step + delay, kind, number, buffer, slot, session, rank)
        self.chores.append(chore)
        return chore

    def _begin_reads(self, effect: effects.ReadPages) -> None:
        columns = zip(numbers(effect.reads), numbers(effect.buffers), numbers(effect.slots), strict=True)
        for read, buffer, slot in columns:
            self.lying.memory[self.lying.places[buffer].offset] = None
            chore = self._add("read", read, buffer, slot=slot)
            chore.expected = self.lying.slot_identities[slot]

    def _begin_writes(self, effect: effects.WritePages) -> None:
        for slot, buffer in zip(numbers(effect.slots), numbers(effect.buffers), strict=True):
            self.ssd.clear(slot)
            chore = self._add("write", slot, buffer, slot=slot)
            chore.expected = self.lying.memory.get(self.lying.places[buffer].offset)
            right = chore.expected is not None and chore.expected.key == self.lying.identity_of(buffer).key
            if not right:
                raise WorldError(
                    f"slot {slot} would be written from buffer {buffer}, which holds no such page"
                )

    # --- completions ----------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Nothing submitted is still to be reported for the first time."""
        return all(chore.repeated for chore in self.chores)

    def stall(self, steps: int) -> None:
        """The SSD hangs for so many steps."""
        self.stalled_until = self.step + steps

    def drain(self) -> None:
        """From now on everything is due at once, also what was kept back."""
        self.stalled_until = 0
        for chore in self.chores:
            chore.due_step = 0

    def deliver(self) -> Command | None:
        """One report of things that are due, of one kind, as one wake of a ring would bring it."""
        step = self.step
        due = [chore for chore in self.chores if chore.due_step <= step]
        if step < self.stalled_until:
            due = [chore for chore in due if chore.kind not in ("read", "write")]
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
        if not chore.repeated or chore.kind == "read":
            return False
        return any(
            not other.repeated and other.kind == chore.kind and other.number == chore.number
            for other in self.chores
        )

    def _double(self, taken: Sequence[Chore]) -> None:
        for chore in taken:
            if not chore.repeated and self.faults.strikes("doubled", self.random):
                due = self.step + self.random.randint(0, 20)
                self.chores.append(attrs.evolve(chore, repeated=True, due_step=due))

    def _end_reads(self, taken: Sequence[Chore]) -> commands.CompleteReads:
        outcomes = [ReadOutcome.WHOLE if chore.repeated else self._read(chore) for chore in taken]
        sizes = [
            self.lying.places[chore.buffer].footprint_bytes + TRAILER_BYTES
            if outcome == ReadOutcome.WHOLE and chore.buffer in self.lying.places
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
        if self.faults.strikes("short_read", self.random):
            return ReadOutcome.SHORT
        if self.faults.strikes("failed_read", self.random):
            return ReadOutcome.FAILED
        image = self.ssd.disk.get(chore.slot)
        if image is None or image.rotten:
            return ReadOutcome.CORRUPT
        if image.identity != chore.expected:
            return ReadOutcome.OTHER_PAGE
        self.lying.memory[self._place(chore).offset] = image.identity
        return ReadOutcome.WHOLE

    def _place(self, chore: Chore) -> Place:
        place = self.lying.places.get(chore.buffer)
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
        now = self.lying.memory.get(place.offset)
        if now is None or now != chore.expected:
            raise WorldError(
                f"the memory of buffer {chore.buffer} changed while slot {chore.slot} was written"
            )
        if self.faults.strikes("failed_write", self.random):
            return self.random.choice((WriteOutcome.SHORT, WriteOutcome.FAILED, WriteOutcome.NO_SPACE))
        self.ssd.write(chore.slot, self.lying.slot_identities[chore.slot], place.footprint_bytes)
        self.ssd.spoil(chore.slot)
        return WriteOutcome.WRITTEN

    def _end_copies(self, taken: Sequence[Chore]) -> commands.CompleteCopies:
        gone = taken[0].session in self.lying.gone_sessions
        outcomes = [
            CopyOutcome.SOURCE_GONE
            if gone or self.faults.strikes("source_gone", self.random)
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
                self.lying.memory[self._place(chore).offset] = self.lying.identity_of(chore.buffer)
        return commands.CompleteSeals(u32([chore.number for chore in taken]))

    # --- what engines and a restart find ---------------------------------------------------------------

    def check_pages(self, keys: Sequence[bytes], offsets: bytes) -> None:
        """An engine copies these keys from these pool offsets (a u64 column). Raises WorldError."""
        places = struct.unpack(f"<{len(offsets) // 8}Q", offsets)
        for key, offset in zip(keys, places, strict=True):
            held = self.lying.memory.get(offset)
            if held is None or held.key != key:
                raise WorldError(f"a lease names offset {offset} for {key!r}, which holds {held}")

    def crash(self, *, power_lost: bool = False) -> None:
        """The process dies: each write under way has happened, or has not begun."""
        for chore in self.chores:
            if chore.kind == "write" and not chore.repeated and self.random.random() < 0.5:
                place = self._place(chore)
                self.ssd.write(chore.slot, self.lying.slot_identities[chore.slot], place.footprint_bytes)
        if power_lost:
            self.ssd.lose_power()
        if self.ssd.disk and self.faults.strikes("twice_on_disk", self.random):
            self.ssd.copy_one_slot()
        self.stalled_until = 0
        self.forget()

    def directory(self) -> list[commands.RecoverSegment]:
        """What a successor reads at its start, a command per segment."""
        return self.ssd.directory()
