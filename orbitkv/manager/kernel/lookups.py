"""Who is asking: the checks that every command of a session begins with."""

from collections.abc import Sequence

import numpy as np

from orbitkv.events.commands import QueryPart
from orbitkv.events.ids import KEY_BYTES_MAX
from orbitkv.events.outcomes import Refusal
from orbitkv.manager.kernel.columns import NONE, Ints, has_repeats, is_column, unpack
from orbitkv.manager.kernel.state import Instance, Part, Session, State
from orbitkv.manager.kernel.turn import Refuse


def known(state: State, number: int) -> Session:
    session = state.sessions.get(number)
    if session is None:
        raise Refuse(Refusal.UNKNOWN_SESSION, f"session {number} is not open; connect again")
    return session


def registered(state: State, number: int) -> Session:
    """The session, once all ranks of its instance are there."""
    session = known(state, number)
    if session.instance < 0:
        raise Refuse(Refusal.NOT_REGISTERED, f"session {number} has not registered; register its rank first")
    instance = state.instances[session.instance]
    if not instance.sealed:
        present = sum(1 for rank in instance.ranks if rank >= 0)
        raise Refuse(
            Refusal.NOT_REGISTERED,
            f"instance {instance.name!r} has {present} of {instance.world_size} ranks; "
            "it is served when the others have registered",
        )
    return session


def checked_pages(state: State, space: int, column: bytes, unknown: tuple[bytes, ...]) -> Ints:
    """The page numbers of a request: at least one, none repeated, keys of lawful length."""
    if not column or not is_column(column):
        raise Refuse(Refusal.MALFORMED, "a page list needs at least one key")
    pages = unpack(column)
    known = pages
    if unknown:
        known = pages[pages != NONE]
        if len(known) + len(unknown) != len(pages) or len(set(unknown)) < len(unknown):
            raise Refuse(Refusal.MALFORMED, "a page hash appears twice in one request")
        if any(not 1 <= len(key) <= KEY_BYTES_MAX for key in unknown):
            raise Refuse(Refusal.MALFORMED, f"a page hash has 1 to {KEY_BYTES_MAX} bytes")
    if not _are_of(state, space, known):
        raise Refuse(Refusal.MALFORMED, "a page number does not belong to the group")
    if has_repeats(known):
        raise Refuse(Refusal.MALFORMED, "a page hash appears twice in one request")
    return pages


def _are_of(state: State, space: int, pages: Ints) -> bool:
    """Whether these numbers, which came from outside, are all bound in the space."""
    try:
        spaces = state.pages.space[pages]
    except IndexError:  # beyond every number that was ever given
        return False
    return int(np.count_nonzero(spaces == space)) == len(pages)


def checked_parts(state: State, instance: Instance, parts: Sequence[QueryPart]) -> list[Part]:
    """The parts of a query or a hint: one for each group, of the pages as they are registered."""
    checked = [_checked_part(state, instance, part) for part in parts]
    if len(checked) != 1 and (not checked or len({part.group for part in checked}) < len(checked)):
        raise Refuse(Refusal.MALFORMED, "a query names one part for each group, and at least one")
    named = sum([len(part.pages) for part in checked])
    if named > state.config.query_keys_max:
        raise Refuse(
            Refusal.MALFORMED,
            f"the query names {named} pages; query_keys_max allows {state.config.query_keys_max}",
        )
    return checked


def _checked_part(state: State, instance: Instance, part: QueryPart) -> Part:
    layout = instance.groups.get(part.group)
    if layout is None:
        raise Refuse(
            Refusal.MALFORMED,
            f"group {part.group} is not registered; instance {instance.name!r} has {sorted(instance.groups)}",
        )
    if part.page_tokens != layout.page_tokens or part.trailing < 0:
        raise Refuse(
            Refusal.MALFORMED,
            f"group {part.group} has pages of {layout.page_tokens} tokens, the query says {part.page_tokens}",
        )
    pages = checked_pages(state, layout.space, part.pages, part.unknown)
    asked = min(part.trailing, len(pages)) if part.trailing else len(pages)
    return Part(part.group, part.page_tokens, part.trailing, pages, part.unknown, asked)
