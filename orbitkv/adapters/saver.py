"""Saving, from an engine's side: offer pages, fill the slots of those that are wanted, commit.

Nothing here waits for the manager to fetch anything: commits are acknowledged at once, and a slot's
credit comes back with a notice. What does not fit the free slots is dropped and counted.
"""

import select
import time
from collections.abc import Sequence

import numpy as np

from orbitkv.adapters.client_errors import (
    ConnectionLost,
    LimitExceeded,
    OrbitError,
    RequestRefused,
    SaveGivenUp,
)
from orbitkv.adapters.questions import check_keys
from orbitkv.adapters.saves import Named, SavePlan, SaveResult, SaveTable
from orbitkv.adapters.session import ManagerSession
from orbitkv.io import wire

_STEP = wire.KEYS_PER_MESSAGE_MAX


class Saver:
    """Used with the session's lock held, except `wait_saved`."""

    def __init__(self, session: ManagerSession) -> None:
        self._session = session
        self.uncredited_pages = 0
        """Dropped for want of a slot, and not yet told to the manager."""

    def begin(self, group: int, keys: Sequence[bytes]) -> SavePlan:
        session = self._session
        connection = session.live()
        saves = session.saves
        if saves is None:
            raise LimitExceeded(
                "This client has no staging window to save through: it is not registered, or staging_bytes "
                "is 0. Register it with staging_bytes of at least a few pages."
            )
        if group not in saves.window.slots:
            raise LimitExceeded(
                f"This rank holds no slice of group {group}. Save with the rank that does, or register the "
                "group's geometry with its client."
            )
        check_keys(keys)
        session.drain(connection)
        plan = SavePlan(group, saves.window)
        for first in range(0, len(keys), _STEP):
            self._offer(saves, plan, first, list(keys[first : first + _STEP]))
        return plan

    def _offer(self, saves: SaveTable, plan: SavePlan, first: int, keys: list[bytes]) -> None:
        credits = saves.window.credits(plan.group)
        if not credits:
            self._count_uncredited(plan, len(keys))
            return
        session = self._session
        uncredited, self.uncredited_pages = self.uncredited_pages, 0
        try:
            reply = session.ask(
                lambda call: wire.BeginSave(call, plan.group, keys, credits, uncredited), again=False
            )
        except OrbitError:
            self.uncredited_pages += uncredited
            raise
        begun = session.expect(reply, wire.SaveBegun)
        positions = np.frombuffer(begun.positions, "<u4")
        if len(positions) and int(positions.max()) >= len(keys):
            raise session.distrust("wants pages that were not offered")
        if session.saves is not saves:
            raise _given_up()  # it was reconnected meanwhile, and what was wanted is of the new window
        excess = saves.add(plan, first, begun)
        for reason, pages in begun.dropped:
            plan.dropped[reason] = plan.dropped.get(reason, 0) + pages
        if excess:
            self._count_uncredited(plan, len(excess))
            self._tell_given_up(excess)

    def _count_uncredited(self, plan: SavePlan, pages: int) -> None:
        plan.uncredited_pages += pages
        self.uncredited_pages += pages

    def commit(self, plan: SavePlan) -> SaveResult:
        saves = self._saves_of(plan)
        named, offsets = saves.commit(plan)
        accepted = 0
        for number, piece in enumerate(named.pieces(_STEP)):
            first = 8 * _STEP * number
            accepted += self._commit_piece(saves, piece, offsets[first : first + 8 * _STEP])
        return SaveResult(accepted, len(named) - accepted)

    def _commit_piece(self, saves: SaveTable, named: Named, offsets: bytes) -> int:
        session = self._session
        committed = np.frombuffer(named.buffers, "<u4")
        try:
            reply = session.ask(
                lambda call: wire.CommitSave(call, named.buffers, offsets, named.generations), again=False
            )
        except RequestRefused:
            saves.rejected(committed.tolist())
            raise
        accepted = np.frombuffer(session.expect(reply, wire.SaveCommitted).accepted, "<u4")
        saves.rejected(np.setdiff1d(committed, accepted).tolist())
        return len(accepted)

    def abort(self, plan: SavePlan) -> None:
        saves = self._session.saves
        if not plan.open or saves is None or plan.window is not saves.window:
            plan.open = False
            return
        self._tell_given_up(saves.abort(plan))

    def _tell_given_up(self, named: Named) -> None:
        for piece in named.pieces(_STEP):
            self._tell_piece(piece)

    def _tell_piece(self, named: Named) -> None:
        try:
            self._session.ask(
                lambda call: wire.AbortSave(call, named.buffers, named.generations), again=False
            )
        except (ConnectionLost, RequestRefused):
            pass  # then the manager has given them up by itself

    def _saves_of(self, plan: SavePlan) -> SaveTable:
        saves = self._session.saves
        if not plan.open or saves is None or plan.window is not saves.window:
            raise _given_up()
        return saves

    def wait_saved(self, plan: SavePlan, timeout_s: float) -> bool:
        """Takes the lock itself, and not while it waits."""
        session = self._session
        deadline = time.monotonic() + timeout_s
        while True:
            with session.lock:
                connection = session.live()
                session.drain(connection)
                if plan.sealed:
                    return True
                if session.saves is None or plan.window is not session.saves.window:
                    return False
                poll = select.poll()
                poll.register(connection.fileno(), select.POLLIN)
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            # Another thread's call may take the notice in, so it is not waited for without end.
            poll.poll(min(remaining, 0.05) * 1000)


def _given_up() -> SaveGivenUp:
    return SaveGivenUp(
        "This save cannot go on: it was ended, or the connection it was begun on is gone and the manager has "
        "given it up. Offer the pages again."
    )
