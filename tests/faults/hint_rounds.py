"""A kernel and a device without a process around them: rounds of hints that are broken off at every stage.

Books of its own are kept beside the kernel's: which generations speculation read, and what became of each.
They know the facts alone. After every record both must say the same, and the kernel's full check runs.
"""

from collections.abc import Sequence
from random import Random

import attrs

from orbitkv.events import commands, facts
from orbitkv.events.commands import Command
from orbitkv.events.config import KernelConfig
from orbitkv.events.geometry import GroupGeometry, SliceGeometry
from orbitkv.events.ids import NONE_U32
from orbitkv.events.outcomes import CopyOutcome, Origin, Phase, ReadOutcome, SessionEnd, Unused
from orbitkv.events.record import Record
from orbitkv.manager.kernel import (
    KERNEL_REVISION,
    Refused,
    State,
    check,
    digest,
    fold,
    new_state,
    outstanding,
    resolve_keys,
    restore,
    snapshot,
    step,
)
from orbitkv.manager.kernel.views import find_operation, group_layout, save_plan
from tests.models.columns import column, numbers, wide_column

FOOTPRINT = 4096
IMAGE = 8192
KEYS = [b"page %d" % number for number in range(12)]
PAIR_KEYS = KEYS[:6]
RANKS = {"engine": 1, "other": 1, "pair": 2}
"""`engine` and `other` share their pages; `pair` shares with nobody."""


@attrs.define
class Cohort:
    """The ledger of prepared pages, by generation. Facts go in, nothing else."""

    footprint: dict[int, int] = attrs.Factory(dict)
    """Generation to footprint bytes."""
    generation: dict[int, int] = attrs.Factory(dict)
    """Buffer to its generation."""
    warm: dict[int, int] = attrs.Factory(dict)
    """Reads that speculation started, to the buffer they fill."""
    landed_ns: dict[int, int] = attrs.Factory(dict)
    """Prepared generations whose outcome is open."""
    closed: set[int] = attrs.Factory(set)
    prepared_bytes: int = 0
    restored_bytes: int = 0
    unused_bytes: int = 0

    def observe(self, record: Record) -> None:
        due: list[int] = []
        for event in record.events:
            match event:
                case facts.BuffersAllocated():
                    for place, buffer in enumerate(numbers(event.buffers)):
                        self.generation[buffer] = event.generation + place
                        self.footprint[event.generation + place] = event.footprint_bytes
                case facts.ReadsSubmitted():
                    if event.origin == Origin.WARM:
                        self.warm.update(zip(numbers(event.reads), numbers(event.buffers), strict=True))
                case facts.ReadsLanded():
                    due += [self.warm.pop(read) for read in numbers(event.reads) if read in self.warm]
                case facts.ReadsFailed():
                    for read in numbers(event.reads):
                        self.warm.pop(read, None)
                case facts.PagesPrepared():
                    assert sorted(numbers(event.buffers)) == sorted(due), "what speculation read, at landing"
                    due = []
                    for buffer in numbers(event.buffers):
                        self._open(self.generation[buffer], record.at_ns)
                case facts.PagesRestored():
                    assert any(isinstance(other, facts.GpuSynced) for other in record.events)
                    self.restored_bytes += self._close(event.buffers)
                case facts.PagesUnused():
                    self.unused_bytes += self._close(event.buffers)
                case _:
                    pass
        assert not due, "every landing of a warm read is prepared"

    def _open(self, generation: int, at_ns: int) -> None:
        assert generation not in self.landed_ns and generation not in self.closed, "a generation lands once"
        self.landed_ns[generation] = at_ns
        self.prepared_bytes += self.footprint[generation]

    def _close(self, buffers: bytes) -> int:
        generations = [self.generation[buffer] for buffer in numbers(buffers)]
        assert not self.closed.intersection(generations), "an outcome is told once"
        for generation in generations:
            del self.landed_ns[generation]
        self.closed.update(generations)
        return sum(self.footprint[generation] for generation in generations)

    @property
    def pending_bytes(self) -> int:
        return sum(self.footprint[generation] for generation in self.landed_ns)


class Rig:
    """A manager's kernel, its device, two engines; `send` is the only way in."""

    def __init__(self, random: Random, charge: str = "owner") -> None:
        self.random = random
        pool = 16 * IMAGE
        self.config = KernelConfig(
            pool_bytes=pool,
            superblock_bytes=4 * IMAGE,
            query_budget_bytes=24 * FOOTPRINT,
            instance_query_budget_bytes=random.choice((24, 20)) * FOOTPRINT,
            ssd_bytes=8 * 4 * IMAGE,
            ssd_segment_bytes=4 * IMAGE,
            ssd_slots_per_segment_max=16,
            ssd_inflight_bytes_max=random.choice((2, 4, 64)) * IMAGE,
            ssd_foreground_reserved_bytes=IMAGE,
            charge=charge,
        )
        self.clock_ns = 0
        self.state: State = new_state()
        self.twin: State = new_state()
        self.cohort = Cohort()
        self.sessions: dict[tuple[str, int], int] = {}
        self.tickets: dict[int, int] = {}
        self.opened = 0
        self.made = 0
        self.refusals: list[Refused] = []
        self.last_reads: commands.CompleteReads | None = None
        self.send(commands.Start(1, KERNEL_REVISION, self.config))
        self.connect()
        self.refill()

    def send(self, command: Command, after_ns: int = 1_000_000) -> tuple[facts.Event, ...]:
        """What came of it. A clock that steps back does so for this command only."""
        self.clock_ns += max(0, after_ns)
        result = step(self.state, self.clock_ns + min(0, after_ns), command)
        if isinstance(result, Refused):
            self.refusals.append(result)
        if not isinstance(result, Record):
            return ()
        fold(self.twin, result)
        self.cohort.observe(result)
        self._compare()
        if self.random.random() < 0.01:
            self._die_here()
        return result.events

    def _die_here(self) -> None:
        """A manager that is killed now: its successor closes the chain, and nothing stays open in it."""
        closing = restore(snapshot(self.state))
        assert isinstance(step(closing, self.clock_ns, commands.CloseIncarnation(lost_tail=True)), Record)
        totals, cohort = closing.totals, self.cohort
        lost = totals.unused_bytes.get(Unused.RESTART, 0)
        assert (closing.pending_bytes, lost) == (0, cohort.pending_bytes)
        assert totals.prepared_bytes == totals.restored_bytes + sum(totals.unused_bytes.values())

    def _compare(self) -> None:
        check(self.state)
        state, totals, cohort = self.state, self.state.totals, self.cohort
        assert totals.prepared_bytes == cohort.prepared_bytes
        assert totals.restored_bytes == cohort.restored_bytes
        assert sum(totals.unused_bytes.values()) == cohort.unused_bytes
        assert state.pending_bytes == cohort.pending_bytes
        table = state.buffers
        live = {int(table.generation[buffer]): buffer for buffer in table.live().tolist()}
        for generation in cohort.landed_ns:
            buffer = live[generation]
            assert table.queue[buffer] >= 0 or table.holds[buffer] > 0, (
                "its last owner has let go: it is unused"
            )
        share = self.config.query_budget_bytes // self.config.speculative_divisor
        assert state.reserved_by_phase[Phase.WARMING] <= share, "the speculative share"

    def check_twin(self) -> None:
        assert digest(self.twin) == digest(self.state), "the records alone lead to the same state"

    # --- engines --------------------------------------------------------------------------------------

    def connect(self) -> None:
        for instance, world_size in RANKS.items():
            for rank in range(world_size):
                if (instance, rank) not in self.sessions:
                    self._connect(instance, rank, world_size)

    def _connect(self, instance: str, rank: int, world_size: int) -> None:
        self.opened += 1
        session = self.opened
        self.send(commands.OpenSession(session, session, 4000 + session, 1000, True))
        groups = (GroupGeometry(0, 64, (SliceGeometry("all", FOOTPRINT, True),)),)
        self.send(
            commands.RegisterRank(
                session, instance, rank, world_size, "", b"m" * 16, "{}", False, groups, 1 << 20
            )
        )
        self.sessions[instance, rank] = session
        self.tickets[session] = 0

    def kill(self, instance: str, rank: int) -> None:
        session = self.sessions.pop((instance, rank))
        if self.random.random() < 0.5:
            self.send(commands.CloseSession(session, SessionEnd.BROKEN))
        self.send(commands.ReleaseProcess(session))

    def part(self, session: int, keys: Sequence[bytes]) -> commands.QueryPart:
        layout = group_layout(self.state, session, 0)
        if layout is None:  # a session that has ended
            return commands.QueryPart(0, 64, 0, column([NONE_U32] * len(keys)), tuple(keys))
        return commands.QueryPart(0, 64, 0, *resolve_keys(self.state, layout.space, list(keys)))

    def ticket(self, session: int) -> int:
        self.tickets[session] += 1
        return self.tickets[session]

    def hint(self, session: int, request: str, keys: Sequence[bytes], revision: int = 0) -> int:
        ticket = self.ticket(session)
        part = self.part(session, keys)
        self.send(commands.WarmPrefix(session, request, 0, ticket, revision, (part,), sum(map(sum, keys))))
        return ticket

    def ask(self, session: int, request: str, keys: Sequence[bytes]) -> int | None:
        self.send(
            commands.SubmitQuery(session, request, 0, self.ticket(session), 0, (self.part(session, keys),))
        )
        return find_operation(self.state, session, request, 0)

    def refill(self) -> None:
        """Everything is on the SSD, and nothing in DRAM."""
        self.publish("engine", KEYS)
        self.send(commands.DropDram())
        self.publish("pair", PAIR_KEYS)
        self.send(commands.DropDram())

    def publish(self, instance: str, keys: Sequence[bytes]) -> None:
        """All ranks save; all is copied, sealed and written."""
        for rank in range(RANKS[instance]):
            self.save(self.sessions[instance, rank], keys)
        self.settle()

    def save(self, session: int, keys: Sequence[bytes]) -> None:
        part = self.part(session, keys)
        command = commands.BeginSave(session, 0, part.pages, part.unknown)
        self.send(command)
        given = [buffer for buffer in save_plan(self.state, command) if buffer != NONE_U32]
        if given:
            generations = wide_column(int(self.state.buffers.generation[buffer]) for buffer in given)
            offsets = wide_column(range(0, len(given) * FOOTPRINT, FOOTPRINT))
            self.send(commands.CommitSave(session, column(given), offsets, generations))

    # --- the device -----------------------------------------------------------------------------------

    def in_flight(self) -> list[int]:
        return [number for number, read in self.state.reads.items() if read.submitted]

    def end_reads(self, reads: Sequence[int], outcomes: Sequence[ReadOutcome] | None = None) -> None:
        said = bytes(outcomes or [ReadOutcome.WHOLE] * len(reads))
        sizes = column([IMAGE] * len(reads))
        self.last_reads = commands.CompleteReads(column(reads), said, sizes, sizes)
        self.send(self.last_reads)
        if self.random.random() < 0.2:
            self.send(self.last_reads)

    def settle(self) -> None:
        """Whatever was submitted ends well."""
        while outstanding(self.state).device_work:
            state = self.state
            if reads := self.in_flight():
                self.random.shuffle(reads)
                self.end_reads(reads[: self.random.randint(1, len(reads))])
            elif state.writing:
                slots = list(state.writing)
                self.send(commands.CompleteWrites(column(slots), bytes(len(slots)), column([1] * len(slots))))
            else:
                self.end_saves()

    def end_saves(self) -> None:
        sealing = [buffer for buffer, save in self.state.saves.items() if save.sealing]
        if sealing:
            self.send(commands.CompleteSeals(column(sealing)))
        for buffer, save in list(self.state.saves.items()):
            for rank in list(save.copying):
                session = self.state.instances[save.instance].ranks[rank].session
                outcome = bytes([CopyOutcome.COPIED])
                self.send(commands.CompleteCopies(session, rank, column([buffer]), outcome, 1))

    # --- what must be true when all is over ------------------------------------------------------------

    def assert_nothing_is_left(self) -> None:
        state = self.state
        assert not state.reads and not state.hints and not state.operations and not state.leases, state
        assert state.reserved_bytes == 0 and not state.reservations and not any(state.reserved_by_phase), (
            state
        )
        assert not state.hint_requests and not state.warm_queue and not state.read_queue and not state.claims
        assert not any(
            instance.warming_bytes or instance.reserved_bytes for instance in state.instances.values()
        )
        assert state.foreground_bytes_in_flight == state.background_bytes_in_flight == 0
        assert not state.buffers.holds[state.buffers.live()].any()
