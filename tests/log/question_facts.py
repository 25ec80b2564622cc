"""What a log's facts say about the worked questions, counted in plain Python. Shares nothing with the SQL."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from orbitkv.events import facts
from orbitkv.events.outcomes import ReadOutcome
from orbitkv.events.record import Record
from replay.log import Log


def numbers(column: bytes, kind: str = "<u4") -> list[int]:
    return [int(each) for each in np.frombuffer(column, kind)]


@attrs.define
class Page:
    """One DRAM allocation."""

    buffer: int
    key: tuple[int, bytes] | None
    size_bytes: int
    taken_ns: int
    read: int = 0
    freed_ns: int | None = None
    landed_ns: int | None = None


@attrs.define
class Read:
    operation: int
    origin: str = ""
    slot: int = -1
    page: Page | None = None
    joined_by: list[int] = attrs.Factory(list)
    read_bytes: int = 0
    landed: tuple[int, int] | None = None
    """Seq and time."""


@attrs.define
class Life:
    """One incarnation, walked through once."""

    incarnation: int
    records: list[Record] = attrs.Factory(list)
    requests: dict[int, str] = attrs.Factory(dict)
    """By operation."""
    engines: dict[int, str] = attrs.Factory(dict)
    """Instance -> name."""
    instances: dict[int, int] = attrs.Factory(dict)
    """Operation -> instance."""
    opened_ns: dict[int, int] = attrs.Factory(dict)
    pages: list[Page] = attrs.Factory(list)
    reads: dict[int, Read] = attrs.Factory(dict)
    unused: Counter[tuple[str, str]] = attrs.Factory(Counter)
    """(request of the hint, cause) -> pages."""
    outcomes: dict[str, list[int]] = attrs.Factory(lambda: defaultdict(list))
    """Outcome of a prepared page -> times from landing to there."""
    skips: list[tuple[int, facts.HintSkipped, dict[int, int]]] = attrs.Factory(list)
    """Seq, fact, and what each operation had reserved then."""
    evicted: list[tuple[int, Page]] = attrs.Factory(list)
    """Seq and page."""
    evictions: Counter[tuple[str, str, str]] = attrs.Factory(Counter)
    """(command, reason, class) -> pages."""
    drops: Counter[tuple[str, str]] = attrs.Factory(Counter)
    """(reason, command) -> pages of saves."""
    written: list[tuple[int, Page]] = attrs.Factory(list)
    """Slot and page of each write that ended well."""
    failures: Counter[str] = attrs.Factory(Counter)
    """How reads ended that did not land."""
    asked: Counter[str] = attrs.Factory(Counter)
    missed: Counter[str] = attrs.Factory(Counter)
    """Engine -> pages."""
    answers: dict[int, tuple[int, int]] = attrs.Factory(dict)
    """Operation -> microseconds to its grant, and to its answer."""
    overdue: dict[int, int] = attrs.Factory(dict)
    """Lease -> nanoseconds from its deadline to its release, or to the end of the log."""
    waits: dict[int, int | None] = attrs.Factory(dict)
    """Operation -> nanoseconds from its waiting to its grant."""
    begun: Counter[int] = attrs.Factory(Counter)
    synced: Counter[int] = attrs.Factory(Counter)
    """By rank: copies that began, and those whose first outcome was a success."""
    most_bytes: int = 0
    half_full_ns: int = 0
    """When half of that was reached first."""
    recovered: int = 0
    kinds_of: dict[str, list[str]] = attrs.Factory(lambda: defaultdict(list))
    """Request -> the facts that name it or its operations and leases, by class."""

    def key_reads(self) -> Counter[tuple[int, bytes]]:
        return Counter(
            read.page.key for read in self.reads.values() if read.landed and read.page and read.page.key
        )


def lives_of(path: Path) -> list[Life]:
    lives: list[Life] = []
    for segment in Log.open(path).segments():
        if not lives or lives[-1].incarnation != segment.header.incarnation:
            lives.append(Life(segment.header.incarnation))
        for frame in segment.frames():
            lives[-1].records += frame.records
    for life in lives:
        _Walk(life).walk()
    return lives


class _Walk:
    def __init__(self, life: Life) -> None:
        self.life = life
        self.keys: dict[int, tuple[int, bytes]] = {}
        self.buffers: dict[int, Page] = {}
        self.reserved: dict[int, int] = {}
        self.deadlines: dict[int, int] = {}
        self.lease_requests: dict[int, str] = {}
        self.writing: dict[int, Page] = {}
        self.reported: set[tuple[int, int]] = set()
        self.granted_ns: dict[int, int] = {}
        self.waiting_ns: dict[int, int] = {}
        self.levels: list[tuple[int, int]] = []

    def walk(self) -> None:
        used_bytes = 0
        for record in self.life.records:
            for event in record.events:
                handle = getattr(self, type(event).__name__, None)
                self._name(event)
                if handle is not None:
                    handle(record, event)
                if isinstance(event, facts.BuffersAllocated):
                    used_bytes += event.footprint_bytes * len(numbers(event.buffers))
                    self.levels.append((record.at_ns, used_bytes))
                elif isinstance(event, facts.BuffersFreed):
                    used_bytes -= sum(self.buffers[b].size_bytes for b in numbers(event.buffers))
        last_ns = self.life.records[-1].at_ns
        for lease, deadline_ns in self.deadlines.items():
            self._release(lease, deadline_ns, last_ns)
        self.life.most_bytes = max((level for _, level in self.levels), default=0)
        reached = [at for at, level in self.levels if level * 2 >= self.life.most_bytes]
        self.life.half_full_ns = (reached[0] if reached else 0) - self.life.records[0].at_ns

    def _name(self, event: Any) -> None:
        request = getattr(event, "request", None)
        if request is None and hasattr(event, "lease") and not isinstance(event, facts.LeaseGranted):
            request = self.lease_requests.get(event.lease)
        elif request is None and hasattr(event, "operation"):
            request = self.life.requests.get(event.operation)
        if request is not None:
            self.life.kinds_of[request].append(type(event).__name__)

    def _release(self, lease: int, deadline_ns: int, at_ns: int) -> None:
        if at_ns > deadline_ns:
            self.life.overdue[lease] = at_ns - deadline_ns

    # --- who -------------------------------------------------------------------------------------------

    def RankRegistered(self, record: Record, event: facts.RankRegistered) -> None:
        self.life.engines[event.instance] = event.name

    def QueryOpened(self, record: Record, event: facts.QueryOpened) -> None:
        self.life.requests[event.operation] = event.request
        self.life.instances[event.operation] = event.instance
        self.life.opened_ns[event.operation] = record.at_ns

    def HintAdmitted(self, record: Record, event: facts.HintAdmitted) -> None:
        self.life.requests[event.operation] = event.request
        self.reserved[event.operation] = event.charge_bytes

    # --- budgets and answers ----------------------------------------------------------------------------

    def QueryWaiting(self, record: Record, event: facts.QueryWaiting) -> None:
        self.waiting_ns[event.operation] = record.at_ns
        self.life.waits[event.operation] = None

    def QueryGranted(self, record: Record, event: facts.QueryGranted) -> None:
        self.reserved[event.operation] = event.charge_bytes
        self.granted_ns[event.operation] = record.at_ns
        if event.operation in self.waiting_ns:
            self.life.waits[event.operation] = record.at_ns - self.waiting_ns[event.operation]

    def LeaseGranted(self, record: Record, event: facts.LeaseGranted) -> None:
        self.reserved[event.operation] = event.charge_bytes
        self.deadlines[event.lease] = event.deadline_ns
        self.lease_requests[event.lease] = self.life.requests[event.operation]

    def ReservationShrunk(self, record: Record, event: facts.ReservationShrunk) -> None:
        self.reserved[event.operation] = event.charge_bytes

    ReservationGrown = ReservationShrunk

    def ReservationEnded(self, record: Record, event: facts.ReservationEnded) -> None:
        self.reserved.pop(event.operation)

    def HintSkipped(self, record: Record, event: facts.HintSkipped) -> None:
        held = {operation: held for operation, held in self.reserved.items() if held}
        self.life.skips.append((record.seq, event, held))

    def DecisionSettled(self, record: Record, event: facts.DecisionSettled) -> None:
        engine = self.life.engines[self.life.instances[event.operation]]
        self.life.asked[engine] += event.asked
        self.life.missed[engine] += event.miss
        opened_ns = self.life.opened_ns[event.operation]
        granted_ns = self.granted_ns.get(event.operation, opened_ns)
        self.life.answers[event.operation] = (
            (granted_ns - opened_ns) // 1000,
            (record.at_ns - opened_ns) // 1000,
        )

    def LeaseReleased(self, record: Record, event: facts.LeaseReleased) -> None:
        self._release(event.lease, self.deadlines.pop(event.lease), record.at_ns)

    def RestoreBegun(self, record: Record, event: facts.RestoreBegun) -> None:
        self.life.begun[event.rank] += 1

    def SyncFailed(self, record: Record, event: facts.SyncFailed) -> None:
        self.reported.add((event.lease, event.rank))

    def GpuSynced(self, record: Record, event: facts.GpuSynced) -> None:
        if (event.lease, event.rank) not in self.reported:
            self.life.synced[event.rank] += 1
        self.reported.add((event.lease, event.rank))

    # --- pages -----------------------------------------------------------------------------------------

    def PagesBound(self, record: Record, event: facts.PagesBound) -> None:
        for page, key in zip(numbers(event.pages), event.keys, strict=True):
            self.keys[page] = event.space, key

    def BuffersAllocated(self, record: Record, event: facts.BuffersAllocated) -> None:
        for buffer, page in zip(numbers(event.buffers), numbers(event.pages), strict=True):
            made = Page(buffer, self.keys.get(page), event.footprint_bytes, record.at_ns)
            self.buffers[buffer] = made
            self.life.pages.append(made)

    def BuffersFreed(self, record: Record, event: facts.BuffersFreed) -> None:
        for buffer in numbers(event.buffers):
            self.buffers[buffer].freed_ns = record.at_ns

    def PagesEvicted(self, record: Record, event: facts.PagesEvicted) -> None:
        place = type(record.cause).__name__, event.reason.name.lower(), event.page_class.name.lower()
        for buffer in numbers(event.buffers):
            self.life.evictions[place] += 1
            self.life.evicted.append((record.seq, self.buffers[buffer]))

    # --- reads -----------------------------------------------------------------------------------------

    def ReadsQueued(self, record: Record, event: facts.ReadsQueued) -> None:
        for nth in range(len(numbers(event.pages))):
            self.life.reads[event.read + nth] = Read(event.operation)

    def ReadsJoined(self, record: Record, event: facts.ReadsJoined) -> None:
        for read in numbers(event.reads):
            self.life.reads[read].joined_by.append(event.operation)

    def ReadsSubmitted(self, record: Record, event: facts.ReadsSubmitted) -> None:
        columns = map(numbers, (event.reads, event.buffers, event.slots))
        for read, buffer, slot in zip(*columns, strict=True):
            told = self.life.reads[read]
            told.page, told.slot, told.origin = self.buffers[buffer], slot, event.origin.name.lower()
            told.page.read = read

    def ReadsLanded(self, record: Record, event: facts.ReadsLanded) -> None:
        for read, read_bytes in zip(numbers(event.reads), numbers(event.read_bytes), strict=True):
            told = self.life.reads[read]
            told.landed, told.read_bytes = (record.seq, record.at_ns), read_bytes

    def ReadsFailed(self, record: Record, event: facts.ReadsFailed) -> None:
        for outcome in event.outcomes:
            self.life.failures[ReadOutcome(outcome).name.lower()] += 1

    def ReadsDropped(self, record: Record, event: facts.ReadsDropped) -> None:
        self.life.failures["no_room" if event.no_room else "unwanted"] += len(numbers(event.reads))

    # --- the cohort of prepared pages --------------------------------------------------------------------

    def PagesPrepared(self, record: Record, event: facts.PagesPrepared) -> None:
        for buffer in numbers(event.buffers):
            self.buffers[buffer].landed_ns = record.at_ns

    def PagesRestored(self, record: Record, event: facts.PagesRestored) -> None:
        self._ended("restored", record, event.buffers)

    def PagesUnused(self, record: Record, event: facts.PagesUnused) -> None:
        cause = event.cause.name.lower()
        self._ended(cause, record, event.buffers)
        for buffer in numbers(event.buffers):
            starter = self.life.reads[self.buffers[buffer].read].operation
            self.life.unused[self.life.requests[starter], cause] += 1

    def _ended(self, outcome: str, record: Record, buffers: bytes) -> None:
        for buffer in numbers(buffers):
            landed_ns = self.buffers[buffer].landed_ns
            assert landed_ns is not None
            self.life.outcomes[outcome].append(record.at_ns - landed_ns)

    # --- saves and the SSD ---------------------------------------------------------------------------------

    def SavesDropped(self, record: Record, event: facts.SavesDropped) -> None:
        self.life.drops[event.reason.name.lower(), type(record.cause).__name__] += event.count

    def WritesSubmitted(self, record: Record, event: facts.WritesSubmitted) -> None:
        for slot, buffer in zip(numbers(event.slots), numbers(event.buffers), strict=True):
            self.writing[slot] = self.buffers[buffer]

    def SlotsWritten(self, record: Record, event: facts.SlotsWritten) -> None:
        self.life.written += [(slot, self.writing.pop(slot)) for slot in numbers(event.slots)]

    def SlotsRecovered(self, record: Record, event: facts.SlotsRecovered) -> None:
        self.life.recovered += len(numbers(event.slots))
