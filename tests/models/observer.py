"""The observer: keeps its own books of what the records say and holds them against the contract.

It consumes records and nothing else: no state, no kernel, no clock. Of a record's cause it reads only
what came from outside and is no fact's field (geometry, the pages a query names, what the world reports).
"""

from collections.abc import Callable

import attrs

from orbitkv.events import commands, facts
from orbitkv.events.record import Record
from tests.models import cohort, hints, leases, pages, queries, reads, rules, saves, sessions, sharing, slots
from tests.models.accounts import ACCOUNTS
from tests.models.books import Books, Handler
from tests.models.story import BrokenRuleError, Story, require


def shutdown_begun(books: Books, event: facts.ShutdownBegun, record: Record) -> None:
    require(not books.shutting_down, "a shutdown begins once")
    books.shutting_down = True


def incarnation_closed(books: Books, event: facts.IncarnationClosed, record: Record) -> None:
    require(
        isinstance(record.cause, commands.CloseIncarnation), "a chain is closed by CloseIncarnation alone"
    )
    require(not books.closed, "a chain is closed once")
    books.closed = True


HANDLERS: dict[type, Handler] = {
    **sessions.HANDLERS,
    **pages.HANDLERS,
    **queries.HANDLERS,
    **reads.HANDLERS,
    **leases.HANDLERS,
    **saves.HANDLERS,
    **slots.HANDLERS,
    **hints.HANDLERS,
    **cohort.HANDLERS,
    **sharing.HANDLERS,
    facts.ShutdownBegun: shutdown_begun,
    facts.IncarnationClosed: incarnation_closed,
}


@attrs.define
class Observer:
    """`observe` every record of a chain, in order; `check` whenever the whole should hold."""

    books: Books = attrs.Factory(Books)
    story: Story = attrs.Factory(Story)
    last: Record | None = None

    def observe(self, record: Record) -> None:
        """Raises BrokenRuleError, with the story so far, when a fact breaks a rule."""
        self.story.records.append(record)
        self._told(self._observe, record)

    def check(self) -> None:
        """Everything that holds between records. Raises BrokenRuleError with the story so far."""
        if self.last is not None:
            self._told(self._check, self.last)

    def check_drained(self) -> None:
        """Nothing reserved, held or in flight. Raises BrokenRuleError with the story so far."""
        try:
            rules.nothing_is_left(self.books)
        except BrokenRuleError as broken:
            raise BrokenRuleError(f"after the drain: {broken}\n\nthe story:\n{self.story}") from None

    def _told(self, act: Callable[[Record], None], record: Record) -> None:
        try:
            act(record)
        except BrokenRuleError as broken:
            raise BrokenRuleError(f"record {record.seq}: {broken}\n\nthe story:\n{self.story}") from None
        except KeyError as unknown:
            unheard = f"record {record.seq}: a fact names {unknown}, which no fact made known"
            raise BrokenRuleError(f"{unheard}\n\nthe story:\n{self.story}") from unknown

    def _observe(self, record: Record) -> None:
        books = self.books
        require(record.seq == books.seq + 1, "seq has no gap", seq=record.seq, before=books.seq)
        require(record.at_ns >= books.at_ns, "at_ns never falls", at_ns=record.at_ns, before=books.at_ns)
        require(record.events, "a record holds a fact", seq=record.seq)
        require(not books.closed, "nothing follows the end of a chain", seq=record.seq)
        books.seq, books.at_ns, self.last = record.seq, record.at_ns, record
        if isinstance(record.cause, commands.ReleaseProcess):
            books.processes_gone.add(record.cause.process)
        slots.before(books, record)
        saves.before(books, record)
        for index, event in enumerate(record.events):
            books.event_index = index
            HANDLERS[type(event)](books, event, record)
        for account in (*ACCOUNTS, hints.account, cohort.account):
            account(books, record)
        slots.after(books, record)
        sessions.after(books, record)

    def _check(self, record: Record) -> None:
        if not self.books.closed:
            for rule in rules.BETWEEN_RECORDS:
                rule(self.books, record)
        _file_away(self.books)


def _file_away(books: Books) -> None:
    """Of what is over only the number stays, so that the books do not grow without end."""
    for lease in [lease for lease in books.leases.values() if lease.released]:
        books.past_leases.add(lease.number)
        del books.leases[lease.number]
    over = [
        op for op in books.operations.values() if op.end is not None and (op.charge_over or not op.granted)
    ]
    for operation in over:
        if operation.lease is None or operation.lease in books.past_leases:
            books.past_operations.add(operation.number)
            del books.operations[operation.number]
