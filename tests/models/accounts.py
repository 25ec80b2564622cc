"""What a record's cause asked or reported is accounted for by its facts, piece by piece."""

from collections import Counter

from orbitkv.events import commands, facts
from orbitkv.events.ids import NONE_U32
from orbitkv.events.outcomes import ReadOutcome, SaveDrop, SyncOutcome, WriteDrop
from orbitkv.events.record import Record
from tests.models.books import Books
from tests.models.columns import numbers
from tests.models.story import require


def told(record: Record, *kinds: type) -> int:
    """How many things the facts of these kinds name: buffers, reads or slots."""
    count = 0
    for event in record.events:
        if isinstance(event, kinds):
            for name in ("buffers", "reads", "slots"):
                if hasattr(event, name):
                    count += len(numbers(getattr(event, name)))
                    break
    return count


def stale(record: Record) -> int:
    return sum(event.count for event in record.events if isinstance(event, facts.StaleCompletion))


def completions(books: Books, record: Record) -> None:
    """Each completion of a batch did its work once, or is counted as stale."""
    match record.cause:
        case commands.CompleteReads(reads=column):
            ended = told(record, facts.ReadsLanded, facts.ReadsFailed)
        case commands.CompleteWrites(slots=column):
            ended = told(record, facts.SlotsWritten, facts.WritesFailed)
        case commands.CompleteCopies(buffers=column):
            ended = told(record, facts.SlicesFilled, facts.CopiesLost)
        case commands.CompleteSeals(buffers=column):
            ended = told(record, facts.SealsEnded)
        case _:
            require(not stale(record), "only a completion can be stale", cause=type(record.cause).__name__)
            return
    reported = len(numbers(column))
    late = stale(record)
    require(
        ended + late == reported, "every completion works once or is stale", reported=reported, ended=ended
    )


def offers(books: Books, record: Record) -> None:
    """Every page offered by BeginSave was taken, joined or dropped with a reason."""
    if not isinstance(record.cause, commands.BeginSave):
        return
    offered = len(numbers(record.cause.pages)) + record.cause.uncredited_pages
    known = [page for page in numbers(record.cause.pages) if page != NONE_U32]
    taken = told(record, facts.SaveBegun, facts.SaveJoined)
    at_once = (SaveDrop.RESIDENT, SaveDrop.IN_PROGRESS, SaveDrop.NO_ROOM, SaveDrop.NO_CREDIT)
    for event in record.events:
        if isinstance(event, facts.SavesDropped) and event.reason in at_once and not event.buffers:
            taken += event.count
    require(
        taken == offered, "every page offered is taken or dropped", offered=offered, taken=taken, known=known
    )


def refused_room(books: Books, record: Record) -> None:
    """Whoever found no room is told so by a failed allocation."""
    without = any(
        (isinstance(event, facts.ReadsDropped) and event.no_room)
        or (isinstance(event, facts.SavesDropped) and event.reason == SaveDrop.NO_ROOM)
        for event in record.events
    )
    failed = any(isinstance(event, facts.AllocationFailed) for event in record.events)
    require(
        failed == without, "no room is the outcome of a failed allocation", failed=failed, dropped=without
    )


def failed_reads(books: Books, record: Record) -> None:
    """A short or failed read is counted against its slot, once, unless the slot is free by then."""
    counted = Counter(event.slot for event in record.events if isinstance(event, facts.SlotFailureCounted))
    failures: Counter[int] = Counter()
    for event in record.events:
        if isinstance(event, facts.ReadsFailed):
            for number, outcome in zip(numbers(event.reads), event.outcomes, strict=True):
                if outcome in (ReadOutcome.SHORT, ReadOutcome.FAILED):
                    failures[books.slot_of_failed_read[number]] += 1
    require(counted <= failures, "a failure is counted once", counted=counted, failures=failures)
    for slot in failures - counted:
        row = books.slots.get(slot)
        require(row is None or row.state != "written", "a failed read counts against its slot", slot=slot)


def writes(books: Books, record: Record) -> None:
    """A page that is sealed, and a write that failed, end in the queue or in a drop, once."""
    assert books.config is not None
    queued, dropped, sealed = Counter[int](), Counter[int](), set[int]()
    for event in record.events:
        if isinstance(event, facts.WritesQueued):
            queued.update(numbers(event.buffers))
        elif isinstance(event, facts.WritesDropped):
            dropped.update(numbers(event.buffers))
        elif isinstance(event, facts.PagesSealed):
            sealed.update(numbers(event.buffers))
    twice = [buffer for buffer, count in queued.items() if count > 1]
    twice += [buffer for buffer, count in dropped.items() if count > 1]
    require(not twice, "a write is queued or dropped once", buffers=twice)
    reclaimed = any(isinstance(event, facts.SlotsFreed) for event in record.events)
    if books.config.ssd_bytes and not reclaimed:  # else the page's slot may have gone in this same record
        lost = [
            buffer
            for buffer in sealed
            if buffer in books.buffers
            and not queued[buffer]
            and not dropped[buffer]
            and books.buffers[buffer].page not in books.on_ssd
            and all(slot.page != books.buffers[buffer].page for slot in books.slots.values())
        ]
        require(not lost, "a sealed page is queued for the SSD or dropped with a reason", buffers=lost)
    failed = told(record, facts.WritesFailed)
    dropped_failed = sum(
        len(numbers(event.buffers))
        for event in record.events
        if isinstance(event, facts.WritesDropped) and event.reason == WriteDrop.FAILED
    )
    require(
        failed == dropped_failed, "a failed write is dropped and counted", failed=failed, told=dropped_failed
    )


def syncs(books: Books, record: Record) -> None:
    if isinstance(record.cause, commands.ReportSync):
        wanted = facts.GpuSynced if record.cause.outcome == SyncOutcome.SUCCEEDED else facts.SyncFailed
        kinds = [
            type(event) for event in record.events if isinstance(event, facts.GpuSynced | facts.SyncFailed)
        ]
        require(kinds == [wanted], "a report has one outcome", kinds=kinds)


def beginnings_and_ends(books: Books, record: Record) -> None:
    """Wishes that are nothing but a fact."""
    match record.cause:
        case commands.BeginShutdown():
            require(books.shutting_down, "a shutdown begins when it is asked for")
        case commands.CloseIncarnation():
            require(books.closed, "a chain is closed when it is asked for")
        case commands.ReleaseProcess(process=process):
            require(process in books.processes_released, "a process that ended is let go", process=process)
        case commands.CloseSession(session=session):
            closed = books.sessions[session].closed is not None
            require(closed, "a session closes when it is asked to", session=session)
        case _:
            pass


ACCOUNTS = (completions, offers, refused_room, failed_reads, writes, syncs, beginnings_and_ends)
