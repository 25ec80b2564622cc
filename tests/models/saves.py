"""Rules of saves: every page begun ends sealed or dropped, and a page with a missing rank is invisible."""

from orbitkv.events import commands, facts
from orbitkv.events.outcomes import CopyOutcome, SaveDrop
from orbitkv.events.record import Record
from tests.models.books import Books, Handler
from tests.models.columns import numbers
from tests.models.rows import Save
from tests.models.story import require

WITHOUT_BUFFERS = {SaveDrop.RESIDENT, SaveDrop.IN_PROGRESS, SaveDrop.NO_ROOM, SaveDrop.NO_CREDIT}


def before(books: Books, record: Record) -> None:
    """Copies and seals that the world reports as ended have ended, whatever the kernel makes of it."""
    cause = record.cause
    if isinstance(cause, commands.CompleteCopies):
        books.copies_in_flight -= {(cause.session, buffer) for buffer in numbers(cause.buffers)}
    if isinstance(cause, commands.CompleteSeals):
        books.seals_in_flight -= set(numbers(cause.buffers))


def save_begun(books: Books, event: facts.SaveBegun, record: Record) -> None:
    assert books.config is not None
    require(isinstance(record.cause, commands.BeginSave), "a save begins by BeginSave alone")
    require(not books.shutting_down, "no save begins after shutdown began")
    if not isinstance(record.cause, commands.BeginSave):
        return
    session = books.sessions[record.cause.session]
    require(
        session.closed is None and session.instance == event.instance, "a rank saves for its own instance"
    )
    require(
        session.rank is not None and session.rank >= 0, "only a rank that holds KV saves", session=session
    )
    deadline = record.at_ns + books.config.save_lifetime_ns
    require(event.deadline_ns == deadline, "a half-filled save lives save_lifetime_ns", event=event)
    for buffer in numbers(event.buffers):
        row = books.buffers[buffer]
        require(
            row.since_seq == record.seq and not books.holders(buffer),
            "a save takes fresh memory",
            buffer=buffer,
        )
        require(row.page not in books.resident, "a resident page is not saved again", page=row.page)
        others = [save for save in books.saves.values() if books.buffers[save.buffer].page == row.page]
        others = [save for save in others if not save.given_up]
        require(not others, "a page is saved once at a time", page=row.page, others=others)
        assert session.rank is not None
        books.saves[buffer] = Save(
            buffer, event.instance, event.group, event.deadline_ns, {session.rank: "begun"}
        )
        books.saves_begun += 1


def save_joined(books: Books, event: facts.SaveJoined, record: Record) -> None:
    session = books.sessions[event.session]
    for buffer in numbers(event.buffers):
        require(buffer in books.saves, "a joined save is under way", buffer=buffer)
        save = books.saves[buffer]
        require(not save.given_up, "a dropped save is not joined", save=save)
        require(save.instance == session.instance, "ranks of one instance fill a page", event=event)
        assert session.rank is not None
        asked_again = save.ranks.get(session.rank, "begun") in ("begun", "lost")
        require(asked_again, "a rank fills its slice once", event=event, ranks=save.ranks)
        save.ranks[session.rank] = "begun"


def saves_dropped(books: Books, event: facts.SavesDropped, record: Record) -> None:
    given_up = numbers(event.buffers)
    require(event.count > 0, "a drop is of pages", event=event)
    if event.reason == SaveDrop.RESIDENT:  # offered while it is here, or a read of it landed meanwhile
        absent = [buffer for buffer in given_up if books.buffers[buffer].page not in books.resident]
        require(
            not absent, "a save dropped as resident is of a page that is here", event=event, absent=absent
        )
    elif event.reason in WITHOUT_BUFFERS:
        require(not given_up, "nothing was taken for a page refused at once", event=event)
    for buffer in given_up:
        require(buffer in books.saves, "a dropped save was under way", buffer=buffer)
        save = books.saves[buffer]
        require(not save.given_up, "a save is dropped once", save=save)
        save.given_up = True
        if event.reason == SaveDrop.EXPIRED:
            require(save.deadline_ns <= record.at_ns, "no save expires early", save=save)


def copies_lost(books: Books, event: facts.CopiesLost, record: Record) -> None:
    for buffer in numbers(event.buffers):
        save = books.saves[buffer]
        require(save.ranks.get(event.rank) == "copying", "a copy ends once", buffer=buffer, ranks=save.ranks)
        save.ranks[event.rank] = "lost"


def seals_ended(books: Books, event: facts.SealsEnded, record: Record) -> None:
    for buffer in numbers(event.buffers):
        save = books.saves[buffer]
        require(save.sealing, "a seal ends once", save=save)
        save.sealing = False


def saves_ended(books: Books, event: facts.SavesEnded, record: Record) -> None:
    for buffer in numbers(event.buffers):
        save = books.saves.pop(buffer)
        require(save.given_up, "a save ends sealed or dropped", save=save)
        copying = [rank for rank, state in save.ranks.items() if state == "copying"]
        require(
            not copying and not save.sealing, "a dropped save outlives its copies and its seal", save=save
        )
        books.saves_given_up += 1


def copies_started(books: Books, event: facts.CopiesStarted, record: Record) -> None:
    session = books.sessions[event.session]
    require(
        session.closed is None and session.rank == event.rank, "a rank commits its own slices", event=event
    )
    for buffer in numbers(event.buffers):
        require(buffer in books.saves, "only pages being saved are copied", buffer=buffer)
        save = books.saves[buffer]
        require(
            save.ranks.get(event.rank) == "begun", "a slice is copied once", buffer=buffer, ranks=save.ranks
        )
        save.ranks[event.rank] = "copying"
        books.copies_in_flight.add((event.session, buffer))


def slices_filled(books: Books, event: facts.SlicesFilled, record: Record) -> None:
    require(isinstance(record.cause, commands.CompleteCopies), "slices are filled by copies that ended")
    copied = set()
    if isinstance(record.cause, commands.CompleteCopies):
        outcomes = zip(numbers(record.cause.buffers), record.cause.outcomes, strict=True)
        copied = {buffer for buffer, outcome in outcomes if outcome == CopyOutcome.COPIED}
    for buffer in numbers(event.buffers):
        require(buffer in copied, "a slice is filled when its copy succeeded", buffer=buffer)
        save = books.saves.get(buffer)
        require(save is not None, "a filled slice belongs to a save", buffer=buffer)
        assert save is not None
        require(
            save.ranks.get(event.rank) == "copying", "a slice is filled once", buffer=buffer, ranks=save.ranks
        )
        save.ranks[event.rank] = "filled"


def seals_started(books: Books, event: facts.SealsStarted, record: Record) -> None:
    for buffer in numbers(event.buffers):
        save = books.saves.get(buffer)
        require(save is not None and not save.sealing, "a page is sealed once", buffer=buffer)
        assert save is not None
        missing = missing_slices(books, save)
        require(not missing, "a page is sealed when all its slices are there", buffer=buffer, missing=missing)
        save.sealing = True
        books.seals_in_flight.add(buffer)


def missing_slices(books: Books, save: Save) -> set[str]:
    """Names of the slices that no rank has filled yet; a replicated one is filled by any that holds it."""
    wanted: set[str] = set()
    filled: set[str] = set()
    for rank, groups in books.instances[save.instance].geometry.items():
        names = set(groups.get(save.group, ()))
        wanted |= names
        if save.ranks.get(rank) == "filled":
            filled |= names
    return wanted - filled


def pages_sealed(books: Books, event: facts.PagesSealed, record: Record) -> None:
    reported = numbers(record.cause.buffers) if isinstance(record.cause, commands.CompleteSeals) else []
    for buffer in numbers(event.buffers):
        require(buffer in reported, "a page is sealed when its trailer is said to stand", buffer=buffer)
        save = books.saves.pop(buffer, None)
        require(save is not None and not save.given_up, "a dropped save becomes no page", buffer=buffer)
        assert save is not None
        require(not save.sealing, "a page is visible after its sealing has ended", buffer=buffer)
        missing = missing_slices(books, save)
        require(not missing, "a page is sealed when all its slices are there", buffer=buffer, missing=missing)
        books.buffers[buffer].verified = True
        books.saves_sealed += 1


HANDLERS: dict[type, Handler] = {
    facts.SaveBegun: save_begun,
    facts.SaveJoined: save_joined,
    facts.SavesDropped: saves_dropped,
    facts.CopiesStarted: copies_started,
    facts.SlicesFilled: slices_filled,
    facts.CopiesLost: copies_lost,
    facts.SealsEnded: seals_ended,
    facts.SavesEnded: saves_ended,
    facts.SealsStarted: seals_started,
    facts.PagesSealed: pages_sealed,
}
