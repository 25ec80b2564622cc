"""Who is asking: the checks that every command of a session begins with."""

import numpy as np

from orbitkv.events.ids import KEY_BYTES_MAX
from orbitkv.events.outcomes import Refusal
from orbitkv.manager.kernel.columns import NONE, Ints, is_column, unpack
from orbitkv.manager.kernel.state import Session, State
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
    known = pages[pages != NONE] if unknown else pages
    if len(known) + len(unknown) != len(pages) or len(set(unknown)) < len(unknown):
        raise Refuse(Refusal.MALFORMED, "a page hash appears twice in one request")
    if any(not 1 <= len(key) <= KEY_BYTES_MAX for key in unknown):
        raise Refuse(Refusal.MALFORMED, f"a page hash has 1 to {KEY_BYTES_MAX} bytes")
    if not len(known):
        return pages
    ordered = np.sort(known)
    if ordered[-1] >= len(state.pages.keys) or np.logical_or.reduce(state.pages.space[known] != space):
        raise Refuse(Refusal.MALFORMED, "a page number does not belong to the group")
    if np.logical_or.reduce(ordered[1:] == ordered[:-1]):
        raise Refuse(Refusal.MALFORMED, "a page hash appears twice in one request")
    return pages
