"""Demand queries: validated, opened, polled, cancelled.

An operation belongs to its opener and is found by (instance, request, attempt), so that all ranks
share one decision. Its life:

    submit -> bypassed                      larger than its budget: 0 hits, recompute
           -> waiting -> granted            budget is full: granted in order when bytes come free
           -> granted -> (loading) -> ready with a lease, or missed with 0 hits
    and from every state: cancelled, revised, expired, disconnected

`granting` reserves and looks up, `answering` settles and ends. The charge is footprint x named pages
until the answer, then what the lease holds.
"""

from orbitkv.events.commands import CancelQuery, PollQuery, SubmitQuery
from orbitkv.events.facts import DecisionSettled, QueryEnded, QueryOpened
from orbitkv.events.outcomes import QueryEnd, Refusal
from orbitkv.manager.kernel.answering import end_operation
from orbitkv.manager.kernel.granting import grant_or_wait
from orbitkv.manager.kernel.hints import end_hint_of_request
from orbitkv.manager.kernel.lookups import checked_parts, registered
from orbitkv.manager.kernel.state import Operation, Part, State
from orbitkv.manager.kernel.turn import Refuse, Turn


def submit_query(turn: Turn, command: SubmitQuery) -> None:
    state = turn.state
    session = registered(state, command.session)
    instance = state.instances[session.instance]
    parts = checked_parts(state, instance, command.parts)
    asked = sum([part.asked for part in parts])
    predecessor = _predecessor(turn, command, session.instance)
    if predecessor is _ANSWERED:
        return
    _check_limits(state, command)
    if isinstance(predecessor, int):
        end_operation(turn, predecessor, QueryEnd.REVISED)
    _open(turn, command, session.instance, parts, asked)


_ANSWERED = object()


def _predecessor(turn: Turn, command: SubmitQuery, instance: int) -> object:
    """The live operation that this one revises; _ANSWERED if its decision already stands; or None."""
    state = turn.state
    key = (instance, command.request, command.attempt)
    number = state.by_request.get(key)
    if number is None:
        decision = state.decisions.get(key)
        repeated = decision is not None and (
            decision.session != command.session
            or command.ticket <= state.sessions[command.session].ticket_high
        )
        return _ANSWERED if repeated and decision and decision.revision == command.revision else None
    operation = state.operations[number]
    if command.revision < operation.revision:
        raise Refuse(
            Refusal.STALE,
            f"revision {command.revision} of request {command.request!r} is older than {operation.revision}",
        )
    if command.revision > operation.revision:
        return number
    if command.session == operation.session and command.body != operation.body:
        raise Refuse(
            Refusal.REVISION_CONFLICT,
            f"revision {command.revision} of request {command.request!r} was sent with other pages before; "
            "raise the revision to change them",
        )
    return _ANSWERED


def _check_limits(state: State, command: SubmitQuery) -> None:
    session = state.sessions[command.session]
    config = state.config
    if not 0 < command.ticket < 1 << 32 or command.ticket <= session.ticket_high:
        raise Refuse(
            Refusal.STALE,
            f"ticket {command.ticket} is not above {session.ticket_high}, the last one of this session",
        )
    if state.shutting_down:
        raise Refuse(Refusal.SHUTTING_DOWN, "the manager is shutting down and admits nothing more")
    if len(session.operations) >= config.operations_per_session_max:
        raise Refuse(
            Refusal.BUSY,
            f"the session has {len(session.operations)} operations; operations_per_session_max is "
            f"{config.operations_per_session_max}: end some, or ask again later",
        )
    if len(state.operations) >= config.operations_max:
        raise Refuse(
            Refusal.BUSY,
            f"there are {len(state.operations)} operations; operations_max is {config.operations_max}: "
            "ask again later",
        )


def _open(turn: Turn, command: SubmitQuery, instance_no: int, parts: list[Part], asked: int) -> None:
    state = turn.state
    instance = state.instances[instance_no]
    number = command.session << 32 | command.ticket
    charge = sum([instance.groups[part.group].footprint_bytes * len(part.pages) for part in parts])
    limit = min(state.config.query_budget_bytes, state.config.instance_query_budget_bytes)
    too_large = charge > limit
    if too_large and state.config.demand_prefix_cut and len(parts) == 1 and not parts[0].trailing:
        footprint = instance.groups[parts[0].group].footprint_bytes
        fitting = limit // footprint
        parts[0].pages = parts[0].pages[:fitting]
        charge, too_large = footprint * fitting, fitting == 0
    turn.emit(
        QueryOpened(
            number,
            instance_no,
            command.session,
            command.request,
            command.attempt,
            command.revision,
            asked,
            charge,
            turn.at_ns + state.config.demand_lifetime_ns,
            tuple([(part.group, part.page_tokens, part.trailing, part.asked) for part in parts]),
            command.body,
        )
    )
    if too_large:
        turn.emit(DecisionSettled(number, asked, 0, 0, 0, asked))
        turn.emit(QueryEnded(number, QueryEnd.BYPASSED))
    else:
        grant_or_wait(turn, number, parts)
    end_hint_of_request(turn, instance_no, command.request, command.attempt)


def own_operation(state: State, session: int, number: int) -> Operation | None:
    """The operation if it lives and belongs to the session's instance; None if it has ended."""
    instance = registered(state, session).instance
    operation = state.operations.get(number)
    if operation is None or operation.hint:
        return None
    if operation.instance != instance:
        raise Refuse(Refusal.FOREIGN, "the operation belongs to another instance")
    return operation


def poll_query(turn: Turn, command: PollQuery) -> None:
    """A poll changes nothing: whoever asks looks at the state."""
    own_operation(turn.state, command.session, command.operation)


def cancel_query(turn: Turn, command: CancelQuery) -> None:
    """Cancelling twice, or after the end, is harmless."""
    if own_operation(turn.state, command.session, command.operation) is not None:
        end_operation(turn, command.operation, QueryEnd.CANCELLED)
