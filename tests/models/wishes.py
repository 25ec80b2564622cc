"""What queries and hints have in common: who may ask, which pages a command names, and where a page is."""

from collections.abc import Sequence

from orbitkv.events import commands
from orbitkv.events.ids import NONE_U32
from tests.models.books import Books
from tests.models.columns import numbers
from tests.models.rows import Instance
from tests.models.story import require


def may_ask(books: Books, opener: int, number: int, ticket: int) -> None:
    """The session may open something for this instance under this ticket, which is thereby used up."""
    session, instance = books.sessions[opener], books.instances[number]
    require(session.closed is None, "a closed session asks nothing", session=opener)
    require(session.instance == number, "a session asks for its own instance", session=session)
    require(instance.sealed and not instance.closed, "only a sealed instance is served", instance=number)
    require(not books.shutting_down, "nothing is admitted after shutdown began")
    require(ticket > session.last_ticket, "tickets rise, so a retired operation never revives", ticket=ticket)
    session.last_ticket = ticket


def told_parts(parts: Sequence[commands.QueryPart]) -> tuple[tuple[int, int, int, int], ...]:
    """(group, page tokens, trailing, pages asked) as facts tell them."""
    sizes = [len(part.pages) // 4 for part in parts]
    return tuple(
        (part.group, part.page_tokens, part.trailing, min(part.trailing, size) if part.trailing else size)
        for part, size in zip(parts, sizes, strict=True)
    )


def keys_of(books: Books, instance: Instance, parts: Sequence[commands.QueryPart]) -> list[tuple[int, bytes]]:
    """(space, key) of every page named, parts one after another."""
    keys: list[tuple[int, bytes]] = []
    for part in parts:
        raw = iter(part.unknown)
        space = instance.spaces[part.group]
        for page in numbers(part.pages):
            keys.append((space, next(raw)) if page == NONE_U32 else books.pages[page])
            require(keys[-1][0] == space, "a page is of the space of its group", page=page)
    require(len(set(keys)) == len(keys), "repeated hashes are malformed", keys=keys)
    return keys


def in_a_tier(books: Books, page: int) -> bool:
    return page in books.resident or page in books.on_ssd or bool(books.reads_of_page(page))
