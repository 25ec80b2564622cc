"""What facts about shared charges do to the state."""

from orbitkv.events import facts
from orbitkv.manager.kernel.apply_queries import set_charge
from orbitkv.manager.kernel.columns import ONE, count_each, unpack
from orbitkv.manager.kernel.state import State


def pages_claimed(state: State, event: facts.PagesClaimed) -> None:
    reservation = state.reservations[event.operation]
    pages = unpack(event.pages)
    count_each(state.pages.references, pages, ONE)
    for page in pages.tolist():
        reservation.claimed[page] = event.footprint_bytes
        stand_in_line(state, event.operation, page)


def stand_in_line(state: State, operation: int, page: int) -> None:
    line = state.claims.setdefault(state.reservations[operation].kind, {})
    line.setdefault(page, {})[operation] = None


def pages_unclaimed(state: State, event: facts.PagesUnclaimed) -> None:
    reservation = state.reservations[event.operation]
    line = state.claims[reservation.kind]
    pages = unpack(event.pages)
    count_each(state.pages.references, pages, -ONE)
    for page in pages.tolist():
        del reservation.claimed[page]
        del line[page][event.operation]
        if not line[page]:
            del line[page]
    if not line:
        del state.claims[reservation.kind]


def reservation_grown(state: State, event: facts.ReservationGrown) -> None:
    reservation = state.reservations[event.operation]
    assert event.charge_bytes > reservation.charge_bytes, "it takes over what another paid"
    set_charge(state, event.operation, event.charge_bytes, reservation.phase)
