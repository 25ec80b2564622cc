"""What facts about sessions, processes and instances do to the state."""

from orbitkv.events import facts
from orbitkv.events.geometry import padded_bytes
from orbitkv.manager.kernel.pages import Space
from orbitkv.manager.kernel.state import GroupLayout, Instance, Piece, Process, Rank, Session, State


def incarnation_started(state: State, event: facts.IncarnationStarted) -> None:
    assert not state.started, "an incarnation starts once"
    state.config = event.config
    state.kernel_revision = event.kernel_revision
    state.incarnation = event.incarnation
    state.host = event.host
    state.started = True
    state.size_tables()


def session_opened(state: State, event: facts.SessionOpened) -> None:
    assert event.session > state.session_high, "session ids strictly increase"
    state.session_high = event.session
    state.sessions[event.session] = Session(event.process)
    process = state.processes.get(event.process)
    if process is None:
        process = state.processes[event.process] = Process(event.pid, event.end_observable)
    process.sessions[event.session] = None


def rank_registered(state: State, event: facts.RankRegistered) -> None:
    instance = state.instances.get(event.instance)
    if instance is None:
        assert event.instance == state.instance_next, "instance numbers grow by one"
        state.instance_next += 1
        instance = Instance(event.name, event.world_size, event.namespace_digest)
        state.instances[event.instance] = instance
        state.instance_names[event.name] = event.instance
    session = state.sessions[event.session]
    session.instance = event.instance
    session.rank = event.rank
    session.staging_bytes = event.staging_bytes
    instance.ranks[event.rank] = Rank(event.session, session.process, event.groups)


def instance_sealed(state: State, event: facts.InstanceSealed) -> None:
    instance = state.instances[event.instance]
    assert not instance.sealed, "an instance is sealed once"
    for group, space, page_tokens, footprint_bytes in event.groups:
        layout = lay_out(instance, group, space, page_tokens)
        assert layout.footprint_bytes == footprint_bytes, "the fact and the layout agree on the footprint"
        instance.groups[group] = layout


def lay_out(instance: Instance, group: int, space: int, page_tokens: int) -> GroupLayout:
    """Slices in rank order, each padded; a replicated one stands once, filled by its lowest rank."""
    layout = GroupLayout(space, page_tokens, 0, {}, {}, {})
    placed: dict[str, int] = {}
    for rank in sorted(instance.ranks):
        pieces: list[Piece] = []
        reads: list[tuple[int, int]] = []
        staged = 0
        for piece in (s for g in instance.ranks[rank].groups if g.group == group for s in g.slices):
            padded = padded_bytes(piece.payload_bytes)
            if piece.slice not in placed:
                placed[piece.slice] = layout.footprint_bytes
                pieces.append(Piece(staged, layout.footprint_bytes, piece.payload_bytes, padded))
                layout.footprint_bytes += padded
            reads.append((placed[piece.slice], piece.payload_bytes))
            staged += padded
        if pieces:
            layout.fills[rank] = tuple(pieces)
        if reads:
            layout.reads[rank] = tuple(reads)
            layout.staging[rank] = staged
    return layout


def session_closed(state: State, event: facts.SessionClosed) -> None:
    session = state.sessions.pop(event.session)
    assert not session.operations, "a session's operations end before it"
    process = state.processes[session.process]
    del process.sessions[event.session]
    if session.instance in state.instances:
        rank = state.instances[session.instance].ranks.get(session.rank)
        if rank is not None and rank.session == event.session:
            rank.session = -1


def instance_closed(state: State, event: facts.InstanceClosed) -> None:
    instance = state.instances.pop(event.instance)
    assert not instance.leases and not instance.saves and not instance.reserved_bytes, "nothing of it is left"
    if state.instance_names.get(instance.name) == event.instance:
        del state.instance_names[instance.name]


def process_released(state: State, event: facts.ProcessReleased) -> None:
    process = state.processes.pop(event.process)
    assert not process.sessions, "a process's sessions end before it"


def space_opened(state: State, event: facts.SpaceOpened) -> None:
    assert event.space == len(state.pages.spaces), "spaces grow by one"
    state.pages.spaces.append(Space(event.namespace_digest, event.group))
    state.space_numbers[event.namespace_digest, event.group] = event.space


def stage_reported(state: State, event: facts.StageReported) -> None:
    """The fact stands in the log; no decision depends on it."""


def store_changed(state: State, event: facts.StoreChanged) -> None:
    state.store_writable = event.writable
    state.store_reason = event.reason


def shutdown_begun(state: State, event: facts.ShutdownBegun) -> None:
    state.shutting_down = True


def incarnation_closed(state: State, event: facts.IncarnationClosed) -> None:
    state.closed = True
