"""Rules of the SSD: the cap, one page per slot, findable only when written, quarantine, the write queue."""

from orbitkv.events import commands, facts
from orbitkv.events.outcomes import ReadOutcome, SlotEnd, WriteDrop, WriteOutcome
from orbitkv.events.record import Record
from tests.models.books import Books, Handler
from tests.models.columns import numbers
from tests.models.rows import Segment, Slot
from tests.models.story import require


def before(books: Books, record: Record) -> None:
    """Writes that the world reports as ended have ended, whatever the kernel makes of it."""
    if isinstance(record.cause, commands.CompleteWrites):
        for slot in numbers(record.cause.slots):
            books.writes_in_flight.pop(slot, None)


def writes_queued(books: Books, event: facts.WritesQueued, record: Record) -> None:
    assert books.config is not None
    for buffer in numbers(event.buffers):
        row = books.buffers[buffer]
        require(row.verified, "only a sealed page is written", buffer=buffer)
        require(buffer not in books.write_queue, "a page is queued once", buffer=buffer)
        require(row.page not in books.on_ssd, "a page on the SSD is not written again", page=row.page)
        books.write_queue.append(buffer)
    most = books.config.ssd_write_queue_pages_max
    require(len(books.write_queue) <= most, "ssd_write_queue_pages_max holds", queued=len(books.write_queue))


def writes_dropped(books: Books, event: facts.WritesDropped, record: Record) -> None:
    assert books.config is not None
    for buffer in numbers(event.buffers):
        if event.reason == WriteDrop.QUEUE_FULL:
            full = len(books.write_queue) >= books.config.ssd_write_queue_pages_max
            require(
                full and buffer not in books.write_queue,
                "a write is dropped when the queue is full",
                event=event,
            )
        if buffer in books.write_queue:
            books.write_queue.remove(buffer)


def segment_opened(books: Books, event: facts.SegmentOpened, record: Record) -> None:
    assert books.config is not None
    require(event.segment not in books.segments, "an open segment is not opened again", event=event)
    end = (event.segment + 1) * books.config.ssd_segment_bytes
    require(end <= books.config.ssd_bytes, "the SSD's cap is hard", event=event, end=end)
    leftovers = [
        slot.number for slot in books.slots.values() if segment_of(books, slot.number) == event.segment
    ]
    leftovers = [slot for slot in leftovers if books.slots[slot].state != "quarantined"]
    require(not leftovers, "a segment is opened empty", event=event, slots=leftovers)
    books.segments[event.segment] = Segment(event.segment, event.slot_bytes)


def segment_of(books: Books, slot: int) -> int:
    assert books.config is not None
    return slot // books.config.ssd_slots_per_segment_max


def segment_draining(books: Books, event: facts.SegmentDraining, record: Record) -> None:
    require(event.segment in books.segments, "an open segment drains", event=event)
    segment = books.segments[event.segment]
    require(not segment.draining, "a segment drains once", event=event)
    segment.draining = True


def segment_returned(books: Books, event: facts.SegmentReturned, record: Record) -> None:
    require(event.segment in books.segments, "a returned segment was open", event=event)
    require(books.segments[event.segment].draining, "a segment drains before it returns", event=event)
    used = [read.number for read in books.reads_in_flight() if _in(books, read.slot, event.segment)]
    require(not used, "held slots drain before a segment is reused", event=event, reads=used)
    used = [slot for slot in books.writes_in_flight if _in(books, slot, event.segment)]
    require(not used, "a segment is not reused under a write", event=event, writes=used)
    found = [slot for slot in books.on_ssd.values() if _in(books, slot, event.segment)]
    require(not found, "nothing is looked up in a returned segment", event=event, slots=found)
    del books.segments[event.segment]
    for number in [slot for slot in books.slots if _in(books, slot, event.segment)]:
        del books.slots[number]


def _in(books: Books, slot: int | None, segment: int) -> bool:
    return slot is not None and segment_of(books, slot) == segment


def writes_submitted(books: Books, event: facts.WritesSubmitted, record: Record) -> None:
    assert books.config is not None
    for number, buffer in zip(numbers(event.slots), numbers(event.buffers), strict=True):
        row = books.buffers[buffer]
        segment = books.segments.get(segment_of(books, number))
        require(segment is not None and not segment.draining, "a slot lies in an open segment", slot=number)
        assert segment is not None
        index = number % books.config.ssd_slots_per_segment_max
        fits = (index + 1) * segment.slot_bytes <= books.config.ssd_segment_bytes
        require(fits, "a slot lies in its segment", slot=number, slot_bytes=segment.slot_bytes)
        require(row.image_bytes <= segment.slot_bytes, "an image fits its slot", slot=number, buffer=row)
        require(number not in books.slots, "a slot holds one page", slot=number, held=books.slots.get(number))
        require(number not in books.writes_in_flight, "a slot is written once at a time", slot=number)
        reading = [read.number for read in books.reads_in_flight() if read.slot == number]
        require(not reading, "a slot is not overwritten under a read", slot=number, reads=reading)
        require(row.verified, "only a sealed page is written", buffer=buffer)
        require(row.page not in books.on_ssd, "no page is written twice", page=row.page)
        twice = [
            slot.number for slot in books.slots.values() if slot.page == row.page and slot.state == "writing"
        ]
        require(not twice, "no page is written twice at once", page=row.page, slots=twice)
        require(buffer in books.write_queue, "a submitted write was queued", buffer=buffer)
        books.write_queue.remove(buffer)
        books.slots[number] = Slot(number, row.page, "writing")
        books.writes_in_flight[number] = buffer


def slots_written(books: Books, event: facts.SlotsWritten, record: Record) -> None:
    reported: dict[int, int] = {}
    if isinstance(record.cause, commands.CompleteWrites):
        reported = dict(zip(numbers(record.cause.slots), record.cause.outcomes, strict=True))
    for number in numbers(event.slots):
        require(
            reported.get(number) == WriteOutcome.WRITTEN, "a slot is findable only once written", slot=number
        )
        slot = books.slots.get(number)
        require(slot is not None and slot.state == "writing", "a slot is written once", slot=number)
        assert slot is not None
        require(slot.page not in books.on_ssd, "a page is found in one slot", page=slot.page)
        slot.state = "written"
        books.on_ssd[slot.page] = number


def writes_failed(books: Books, event: facts.WritesFailed, record: Record) -> None:
    for number, outcome in zip(numbers(event.slots), event.outcomes, strict=True):
        slot = books.slots.get(number)
        require(slot is not None and slot.state == "writing", "a write ends once", slot=number)
        require(outcome != WriteOutcome.WRITTEN, "a write that succeeded does not fail", slot=number)


def slots_freed(books: Books, event: facts.SlotsFreed, record: Record) -> None:
    for number in numbers(event.slots):
        slot = books.slots.pop(number, None)
        require(slot is not None, "a freed slot was in use", slot=number)
        assert slot is not None
        if event.end == SlotEnd.WRITE_FAILED:
            require(slot.state == "writing", "only a write under way fails", slot=slot)
        if slot.state == "written":
            require(books.on_ssd.pop(slot.page, None) == number, "a written slot was findable", slot=slot)


def slots_quarantined(books: Books, event: facts.SlotsQuarantined, record: Record) -> None:
    for number in numbers(event.slots):
        slot = books.slots.get(number)
        require(slot is None or slot.state != "quarantined", "a slot is quarantined once", slot=number)
        if slot is not None and slot.state == "written":
            require(books.on_ssd.pop(slot.page, None) == number, "a written slot was findable", slot=slot)
        failures = slot.failures if slot is not None else 0
        books.slots[number] = Slot(number, -1, "quarantined", failures)


def slot_failure_counted(books: Books, event: facts.SlotFailureCounted, record: Record) -> None:
    slot = books.slots.get(event.slot)
    require(
        slot is not None and slot.state == "written", "a failure is counted of a written slot", event=event
    )
    assert slot is not None
    slot.failures += 1


def slots_condemned(books: Books, event: facts.SlotsCondemned, record: Record) -> None:
    _recovered_segment(books, event.segment, record)
    for number in numbers(event.slots):
        require(number not in books.slots, "a condemned slot holds no page", slot=number)
        books.slots[number] = Slot(number, -1, "quarantined")


def _recovered_segment(books: Books, segment: int, record: Record) -> None:
    cause = record.cause
    require(isinstance(cause, commands.RecoverSegment), "slots are recovered by RecoverSegment alone")
    require(segment in books.segments, "a recovered segment is opened first", segment=segment)


def slots_recovered(books: Books, event: facts.SlotsRecovered, record: Record) -> None:
    _recovered_segment(books, event.segment, record)
    for number, page in zip(numbers(event.slots), numbers(event.pages), strict=True):
        require(number not in books.slots, "a slot holds one page", slot=number)
        require(segment_of(books, number) == event.segment, "a slot is of its segment", slot=number)
        require(page in books.pages, "a recovered page is known", page=page)
        require(page not in books.on_ssd, "a page is found in one slot", page=page)
        books.slots[number] = Slot(number, page, "written")
        books.on_ssd[page] = number


def store_changed(books: Books, event: facts.StoreChanged, record: Record) -> None:
    before = (books.store_writable, books.store_reason)
    require(
        before != (event.writable, event.reason), "a store that is as it was has not changed", event=event
    )
    books.store_writable, books.store_reason = event.writable, event.reason


def after(books: Books, record: Record) -> None:
    """What a failed read does to its slot: a rotten page is not tried again."""
    if not isinstance(record.cause, commands.CompleteReads):
        return
    assert books.config is not None
    for event in record.events:
        if isinstance(event, facts.ReadsFailed):
            for number, outcome in zip(numbers(event.reads), map(ReadOutcome, event.outcomes), strict=True):
                slot = books.slot_of_failed_read.pop(number)
                row = books.slots.get(slot)
                if outcome == ReadOutcome.CORRUPT:
                    rotten = row is None or row.state == "quarantined"
                    require(rotten, "a page that does not verify is quarantined at once", slot=slot)
                elif outcome == ReadOutcome.OTHER_PAGE:
                    require(
                        row is None or row.state != "written", "a slot of another page is freed", slot=slot
                    )
                elif row is not None and row.state == "quarantined":
                    most = books.config.ssd_read_failures_max
                    require(row.failures >= most, "quarantine for failures follows their count", slot=row)
                elif row is not None and row.state == "written":
                    most = books.config.ssd_read_failures_max
                    require(0 < row.failures < most, "failures are counted and end in quarantine", slot=row)


HANDLERS: dict[type, Handler] = {
    facts.WritesQueued: writes_queued,
    facts.WritesDropped: writes_dropped,
    facts.SegmentOpened: segment_opened,
    facts.SegmentDraining: segment_draining,
    facts.SegmentReturned: segment_returned,
    facts.WritesSubmitted: writes_submitted,
    facts.SlotsWritten: slots_written,
    facts.WritesFailed: writes_failed,
    facts.SlotsFreed: slots_freed,
    facts.SlotsQuarantined: slots_quarantined,
    facts.SlotFailureCounted: slot_failure_counted,
    facts.SlotsRecovered: slots_recovered,
    facts.SlotsCondemned: slots_condemned,
    facts.StoreChanged: store_changed,
}
