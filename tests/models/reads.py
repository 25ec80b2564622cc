"""Rules of reads from the SSD: queued, submitted, ended exactly once, shared page by page."""

from orbitkv.events import commands, facts
from orbitkv.events.outcomes import Origin, PageClass, ReadOutcome
from orbitkv.events.record import Record
from tests.models.books import Books, Handler
from tests.models.cohort import landed
from tests.models.columns import numbers
from tests.models.rows import Read
from tests.models.story import require


def reads_queued(books: Books, event: facts.ReadsQueued, record: Record) -> None:
    operation = books.operations[event.operation]
    layout = operation.layout
    origin = Origin.WARM if operation.warm else Origin.DEMAND
    require(event.origin == origin, "a read is queued with the origin of who wants it", event=event)
    for index, page in enumerate(numbers(event.pages)):
        number = event.read + index
        asked = layout[numbers(event.positions)[index]]
        require(
            number not in books.reads and number not in books.past_reads,
            "a read id is used once",
            read=number,
        )
        require(books.pages[page] == operation.keys[asked], "a read is for the page asked for", page=page)
        require(page in books.on_ssd, "a read is of a page on the SSD", page=page)
        require(page not in books.resident, "a resident page is not read", page=page)
        require(not books.reads_of_page(page), "one read of a page for any number of waiters", page=page)
        books.reads[number] = Read(number, page, event.origin, [(event.operation, asked)])


def reads_joined(books: Books, event: facts.ReadsJoined, record: Record) -> None:
    operation = books.operations[event.operation]
    layout = operation.layout
    for number, position in zip(numbers(event.reads), numbers(event.positions), strict=True):
        require(number in books.reads, "only a read that has not ended is joined", read=number)
        read = books.reads[number]
        asked = layout[position]
        require(books.pages[read.page] == operation.keys[asked], "a joined read is of the page asked for")
        require(all(owner != event.operation for owner, _ in read.owners), "an operation joins a read once")
        read.owners.append((event.operation, asked))


def reads_submitted(books: Books, event: facts.ReadsSubmitted, record: Record) -> None:
    columns = zip(numbers(event.reads), numbers(event.buffers), numbers(event.slots), strict=True)
    for number, buffer, slot in columns:
        require(number in books.reads, "a submitted read was queued", read=number)
        read = books.reads[number]
        require(not read.submitted, "a read is submitted once", read=number)
        require(books.buffers[buffer].page == read.page, "a read goes to a buffer of its page", read=number)
        holders = books.holders(buffer)
        require(
            not holders and not books.buffers[buffer].indexed, "a read goes to unused memory", holders=holders
        )
        require(books.on_ssd.get(read.page) == slot, "a read is from where the page is found", slot=slot)
        interested = books.interested(read)
        require(interested, "a read nobody wants is not submitted", read=number)
        origin = Origin.WARM if interested[0].warm else Origin.DEMAND
        rule = "the earliest owner that is still interested gives a read its origin, at submission"
        require(event.origin == origin, rule, read=number, said=event.origin)
        demanded = books.demanded(read)
        require(event.foreground == demanded, "a read that a demand waits for is foreground", read=number)
        first = [other.number for other in books.reads_queued() if books.demanded(other)]
        require(demanded or not first, "unsubmitted warm reads yield to demand", read=number, before=first)
        read.submitter, read.origin, read.foreground = interested[0].number, origin, demanded
        read.submitted, read.buffer, read.slot = True, buffer, slot


def reads_dropped(books: Books, event: facts.ReadsDropped, record: Record) -> None:
    for number in numbers(event.reads):
        require(number in books.reads, "a dropped read was queued", read=number)
        read = books.reads[number]
        require(not read.submitted, "a submitted read is never taken back", read=number)
        reclaimed = read.page not in books.on_ssd
        unwanted = not books.interested(read)
        rule = "a queued read is dropped for want of room, of its slot, or of anybody who waits"
        require(event.no_room or reclaimed or unwanted, rule, read=number)
        _fail_owners(books, read)
        _forget(books, number)


def _fail_owners(books: Books, read: Read) -> None:
    for number, asked in read.owners:
        if number in books.operations and books.operations[number].wants(asked):
            books.operations[number].failed.add(asked)


def _forget(books: Books, number: int) -> None:
    del books.reads[number]
    books.past_reads.add(number)


def _reported(record: Record) -> dict[int, ReadOutcome]:
    if not isinstance(record.cause, commands.CompleteReads):
        return {}
    return dict(zip(numbers(record.cause.reads), map(ReadOutcome, record.cause.outcomes), strict=True))


def reads_landed(books: Books, event: facts.ReadsLanded, record: Record) -> None:
    reported = _reported(record)
    for number in numbers(event.reads):
        require(number in books.reads and books.reads[number].submitted, "a read ends once", read=number)
        require(reported.get(number) == ReadOutcome.WHOLE, "only a whole read lands", read=number)
        read = books.reads[number]
        assert read.buffer is not None
        demanded = books.demanded(read)
        for owner, asked in read.owners:
            operation = books.operations.get(owner)
            if operation is not None and operation.wants(asked) and not operation.warm:
                books.operations[owner].owned[asked] = read.buffer
                books.operations[owner].from_ssd.add(asked)
        books.buffers[read.buffer].verified = True
        _class_at_landing(read, demanded, record)
        landed(books, read)
        _forget(books, number)


def _class_at_landing(read: Read, wanted: bool, record: Record) -> None:
    cut = any(isinstance(event, facts.QueryCut) for event in record.events)
    for event in record.events:
        if isinstance(event, facts.PagesInserted) and read.buffer in numbers(event.buffers):
            require(event.origin == read.origin, "a demand-started page stays a demand's", read=read.number)
            expected = PageClass.RETAINED if wanted else PageClass.RECLAIMABLE
            require(
                event.page_class == expected or cut,  # a cut in the same record may come before or after
                "a page lands retained if a foreground owner is still interested, else reclaimable",
                read=read.number,
                said=event.page_class,
            )


def reads_failed(books: Books, event: facts.ReadsFailed, record: Record) -> None:
    reported = _reported(record)
    for number, outcome in zip(numbers(event.reads), event.outcomes, strict=True):
        require(number in books.reads and books.reads[number].submitted, "a read ends once", read=number)
        require(reported.get(number) == outcome, "a failure is as the store reported it", read=number)
        require(outcome != ReadOutcome.WHOLE, "a whole read does not fail", read=number)
        slot = books.reads[number].slot
        assert slot is not None
        books.slot_of_failed_read[number] = slot
        _fail_owners(books, books.reads[number])
        _forget(books, number)


def stale_completion(books: Books, event: facts.StaleCompletion, record: Record) -> None:
    require(event.count > 0, "a stale completion is counted", event=event)


HANDLERS: dict[type, Handler] = {
    facts.ReadsQueued: reads_queued,
    facts.ReadsJoined: reads_joined,
    facts.ReadsSubmitted: reads_submitted,
    facts.ReadsDropped: reads_dropped,
    facts.ReadsLanded: reads_landed,
    facts.ReadsFailed: reads_failed,
    facts.StaleCompletion: stale_completion,
}
