"""Hints: pages of queued requests, prepared from SSD while nobody else needs the room or the budget.

    warm -> not needed (nothing to read)            no reservation, not a skip
         -> skipped (one reason, in order)          oversized, operations, foreground, bytes
         -> admitted -> its own reads end           prepared
                     -> cancelled, revised, expired, disconnected, or its request's demand arrived

A hint promises nothing and gets no lease. Its lookup is a peek: no recency, no ownership, no renewal.
Its charge ends when the reads that it started or joined have landed or failed, whoever else waits for
them; one that ended before keeps the charge for exactly its own submitted ones.
"""

import numpy as np

from orbitkv.events.commands import CancelHint, WarmPrefix
from orbitkv.events.facts import (
    HintAdmitted,
    HintEnded,
    HintNotNeeded,
    HintSkipped,
    ReadsJoined,
    ReadsQueued,
    WarmProbed,
)
from orbitkv.events.outcomes import HintEnd, HintSkip, Origin, Phase, Refusal
from orbitkv.manager.kernel.answering import settle_reservation
from orbitkv.manager.kernel.columns import NONE, Ints, pack
from orbitkv.manager.kernel.interest import drop_unwanted
from orbitkv.manager.kernel.lookups import checked_parts, registered
from orbitkv.manager.kernel.presence import Reached, reached
from orbitkv.manager.kernel.sharing import claim, marginal_bytes, pass_on
from orbitkv.manager.kernel.state import Instance, Operation, Part, State
from orbitkv.manager.kernel.turn import Refuse, Turn


def warm_prefix(turn: Turn, command: WarmPrefix) -> None:
    state = turn.state
    session = registered(state, command.session)
    instance = state.instances[session.instance]
    parts = checked_parts(state, instance, command.parts)
    if state.shutting_down:
        raise Refuse(Refusal.SHUTTING_DOWN, "the manager is shutting down and admits nothing more")
    predecessor = _predecessor(state, command, session.instance)
    if predecessor is not None and state.operations[predecessor].revision == command.revision:
        return
    if not session.ticket_high < command.ticket < 1 << 32:
        raise Refuse(
            Refusal.STALE,
            f"ticket {command.ticket} is not above {session.ticket_high}, the last one of this session",
        )
    there = reached(state, parts)
    asked = sum(part.asked for part in parts)
    absent = _probe(turn, command, session.instance, asked, there)
    if predecessor is not None:
        end_hint(turn, predecessor, HintEnd.REVISED)
        settle_reservation(turn, predecessor)  # else its unsubmitted pages would stand in its successor's way
        pass_on(turn)  # what others pay for them from now on counts against the successor
    if not len(absent):
        turn.emit(
            HintNotNeeded(
                command.session, session.instance, command.ticket, command.request, command.attempt, asked
            )
        )
        return
    charge = sum(instance.groups[part.group].footprint_bytes * len(part.pages) for part in parts)
    if state.config.charge_shared:
        charge = marginal_bytes(state, session.instance, parts, hint=True)
    if _skip(turn, command, session.instance, instance, asked, charge):
        return
    _admit(turn, command, session.instance, parts, asked, charge)
    number = command.session << 32 | command.ticket
    if state.config.charge_shared:
        claim(turn, number, instance, parts)
    _queue_reads(turn, number, there.pages, absent)


def _probe(turn: Turn, command: WarmPrefix, instance: int, asked: int, there: Reached) -> Ints:
    """Put on record what the lookup saw. Positions of the pages that are not in DRAM."""
    absent = np.flatnonzero(there.buffers < 0)
    needed = len(there.pages)
    turn.emit(
        WarmProbed(
            instance,
            command.request,
            command.attempt,
            asked,
            needed - len(absent),
            0,
            len(absent),
            asked - needed,
        )
    )
    return absent


def _queue_reads(turn: Turn, number: int, pages: Ints, absent: Ints) -> None:
    """Join the reads that run for some of the `absent` positions, queue reads for the others."""
    reading = turn.state.pages.read[pages[absent]]
    shared, missing = absent[reading >= 0], absent[reading < 0]
    if len(shared):
        turn.emit(ReadsJoined(number, pack(reading[reading >= 0]), pack(shared)))
    if len(missing):
        read = turn.state.read_next
        turn.emit(ReadsQueued(number, read, pack(pages[missing]), pack(missing), Origin.WARM))
        turn.reads_wanted = True


def _predecessor(state: State, command: WarmPrefix, instance: int) -> int | None:
    number = state.hint_requests.get((instance, command.request, command.attempt))
    if number is None:
        return None
    operation = state.operations[number]
    if command.revision < operation.revision:
        raise Refuse(
            Refusal.STALE,
            f"revision {command.revision} of the hint for {command.request!r} is older than "
            f"{operation.revision}",
        )
    if command.revision == operation.revision and command.body != operation.body:
        raise Refuse(
            Refusal.REVISION_CONFLICT,
            f"revision {command.revision} of the hint for {command.request!r} was sent with other pages "
            "before; raise the revision to change them",
        )
    return number


def _skip(
    turn: Turn, command: WarmPrefix, instance_no: int, instance: Instance, asked: int, charge: int
) -> bool:
    """Whether the hint is refused; the first reason that applies is recorded with the bound it met."""
    met = _obstacle(turn.state, command.session, instance, charge)
    if met is None:
        return False
    reason, reserved, limit = met
    turn.emit(
        HintSkipped(
            command.session,
            instance_no,
            command.ticket,
            command.request,
            command.attempt,
            reason,
            asked,
            charge,
            reserved,
            limit,
        )
    )
    return True


def _obstacle(
    state: State, session: int, instance: Instance, charge: int
) -> tuple[HintSkip, int, int] | None:
    config = state.config
    share = config.query_budget_bytes // config.speculative_divisor
    instance_share = config.instance_query_budget_bytes // config.speculative_divisor
    if charge > min(share, instance_share):
        return HintSkip.OVERSIZED, charge, min(share, instance_share)
    operations = state.sessions[session].operations
    hints = sum(1 for number in operations if state.operations[number].hint)
    for count, limit in (
        (hints, config.hints_per_session_max),
        (len(operations), config.operations_per_session_max),
        (len(state.hints), config.hints_max),
        (len(state.operations), config.operations_max),
    ):
        if count >= limit:
            return HintSkip.OPERATIONS, count, limit
    warming = state.reserved_by_phase[Phase.WARMING]
    if state.waiting or state.reserved_bytes > warming:
        return HintSkip.FOREGROUND, state.reserved_bytes - warming, 0
    if warming + charge > share:
        return HintSkip.BYTES, warming, share
    if instance.warming_bytes + charge > instance_share:
        return HintSkip.BYTES, instance.warming_bytes, instance_share
    return None


def _admit(
    turn: Turn, command: WarmPrefix, instance: int, parts: list[Part], asked: int, charge: int
) -> None:
    turn.emit(
        HintAdmitted(
            command.session << 32 | command.ticket,
            instance,
            command.session,
            command.request,
            command.attempt,
            command.revision,
            asked,
            charge,
            turn.at_ns + turn.state.config.hint_lifetime_ns,
            tuple((part.group, part.page_tokens, part.trailing, part.asked) for part in parts),
            tuple(pack(part.pages[: part.reach]) for part in parts),
            command.body,
        )
    )


def cancel_hint(turn: Turn, command: CancelHint) -> None:
    """Cancelling twice, or after the end, is harmless."""
    registered(turn.state, command.session)
    number = command.session << 32 | command.ticket
    # A ticket beyond 32 bits would name another session's hint.
    if command.ticket < 1 << 32 and number in turn.state.hints:
        end_hint(turn, number, HintEnd.CANCELLED)


def end_hint(turn: Turn, number: int, end: HintEnd) -> None:
    """Drop a hint's interest. Its submitted reads go on under its reservation."""
    awaited = list(turn.state.operations[number].awaited)
    turn.emit(HintEnded(number, end))
    drop_unwanted(turn, awaited)
    turn.reservations[number] = None
    turn.budget_freed = True


def end_hint_of_request(turn: Turn, instance: int, request: str, attempt: int) -> None:
    """The request's demand is here: its hint is over."""
    number = turn.state.hint_requests.get((instance, request, attempt))
    if number is not None:
        end_hint(turn, number, HintEnd.ADMITTED)


def end_if_prepared(turn: Turn, number: int) -> None:
    """A hint that waits for no read any more is over."""
    if number in turn.state.hints and not turn.state.operations[number].awaited:
        end_hint(turn, number, HintEnd.PREPARED)


def own_pages(state: State, operation: Operation) -> Ints:
    """DRAM buffers of the pages that a hint names: it does not push out what it prepares."""
    named = np.concatenate([part.pages[: part.reach] for part in operation.parts])
    buffers: Ints = state.pages.buffer[named[named != NONE]]
    resident: Ints = buffers[buffers >= 0]
    return resident
