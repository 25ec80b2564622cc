"""Rules of sessions, processes and instances, as the observer follows them."""

from orbitkv.events import commands, facts
from orbitkv.events.geometry import padded_bytes
from orbitkv.events.ids import SCHEDULER_RANK
from orbitkv.events.record import Record
from tests.models.books import Books, Handler
from tests.models.rows import Instance, Session
from tests.models.story import require


def incarnation_started(books: Books, event: facts.IncarnationStarted, record: Record) -> None:
    require(isinstance(record.cause, commands.Start), "an incarnation starts by Start alone")
    require(record.seq == 1, "Start is the first record of a chain", seq=record.seq)
    books.config = event.config


def session_opened(books: Books, event: facts.SessionOpened, record: Record) -> None:
    require(event.session not in books.sessions, "a session number is used once", session=event.session)
    require(
        all(event.session > known for known in books.sessions),
        "session numbers rise",
        session=event.session,
    )
    if not event.end_observable:  # it was told as gone when nothing of it was left, and may come again
        books.processes_gone.discard(event.process)
        books.processes_released.discard(event.process)
    require(event.process not in books.processes_gone, "a process that is gone opens no session")
    books.sessions[event.session] = Session(event.session, event.process, event.end_observable)
    open_sessions = [session for session in books.sessions.values() if session.closed is None]
    require(
        books.config is not None and len(open_sessions) <= books.config.sessions_max, "sessions_max holds"
    )


def rank_registered(books: Books, event: facts.RankRegistered, record: Record) -> None:
    session = books.sessions[event.session]
    require(session.closed is None, "a closed session registers nothing", session=event.session)
    require(session.instance is None, "a session registers once", session=event.session)
    instance = books.instances.setdefault(
        event.instance, Instance(event.instance, event.name, event.world_size)
    )
    require(not instance.closed, "a closed instance takes no rank", instance=event.instance)
    require(
        instance.name == event.name and instance.world_size == event.world_size, "ranks agree", event=event
    )
    if event.rank != SCHEDULER_RANK:
        rejoins = event.rank in instance.ranks
        require(
            rejoins or not instance.sealed, "a sealed instance takes no new rank", instance=event.instance
        )
        require(0 <= event.rank < event.world_size, "a rank lies below world_size", rank=event.rank)
        before = instance.ranks.get(event.rank)
        require(
            before is None or books.sessions[before].closed is not None,
            "a rank is held by one living session",
            rank=event.rank,
            held_by=before,
        )
        instance.ranks[event.rank] = event.session
        instance.geometry[event.rank] = {
            group.group: {
                part.slice: (padded_bytes(part.payload_bytes), part.replicated) for part in group.slices
            }
            for group in event.groups
        }
    instance.sessions.add(event.session)
    session.instance, session.rank = event.instance, event.rank


def instance_sealed(books: Books, event: facts.InstanceSealed, record: Record) -> None:
    instance = books.instances[event.instance]
    require(not instance.sealed, "an instance is sealed once", instance=event.instance)
    living = {rank for rank, session in instance.ranks.items() if books.sessions[session].closed is None}
    require(living == set(range(instance.world_size)), "an instance is sealed when all its ranks are there")
    instance.sealed = True
    for group, space, page_tokens, footprint_bytes in event.groups:
        layout = [(rank, instance.geometry[rank].get(group)) for rank in range(instance.world_size)]
        identity = (event.namespace_digest, group, page_tokens, repr(layout))
        require(space in books.spaces and books.spaces[space][1] == group, "a group has a space", space=space)
        require(
            books.space_identity.setdefault(space, identity) == identity,
            "instances share a space only if namespace and layout are the same",
            space=space,
            identity=identity,
        )
        slices: dict[str, int] = {}
        padded = 0
        for rank in range(instance.world_size):
            for name, (size, replicated) in instance.geometry[rank].get(group, {}).items():
                require(name not in slices or replicated, "a slice is claimed once", slice=name)
                if name not in slices:
                    slices[name] = size
                    padded += size
        require(
            padded == footprint_bytes,
            "a footprint is the padded bytes of all slices",
            said=footprint_bytes,
            counted=padded,
        )
        instance.footprints[group] = footprint_bytes
        instance.spaces[group] = space
        instance.page_tokens[group] = page_tokens


def session_closed(books: Books, event: facts.SessionClosed, record: Record) -> None:
    session = books.sessions[event.session]
    require(session.closed is None, "a session closes once", session=event.session)
    session.closed, session.closed_seq = event.cause, record.seq


def instance_closed(books: Books, event: facts.InstanceClosed, record: Record) -> None:
    instance = books.instances[event.instance]
    require(not instance.closed, "an instance closes once", instance=event.instance)
    instance.closed = True
    living = [number for number in instance.sessions if books.sessions[number].closed is None]
    require(not living, "an instance closes after its last session", living=living)
    left = [op.number for op in books.live_operations() if op.instance == event.instance]
    require(not left, "a closed instance has no operation", operations=left)
    left = [lease.number for lease in books.leases.values() if lease.instance == event.instance]
    left = [number for number in left if not books.leases[number].released]
    require(not left, "a closed instance has no lease or copy", leases=left)
    require(books.reserved_bytes(event.instance) == 0, "a closed instance holds nothing reserved")
    require(
        not [save for save in books.saves.values() if save.instance == event.instance],
        "a closed instance saves nothing",
    )


def after(books: Books, record: Record) -> None:
    """A record whose cause is the end of a process says that it ended."""
    if isinstance(record.cause, commands.ReleaseProcess):
        told = record.cause.process in books.processes_released
        require(told, "the end of a process is told as a fact", process=record.cause.process)


def process_released(books: Books, event: facts.ProcessReleased, record: Record) -> None:
    require(event.process not in books.processes_released, "a process ends once", process=event.process)
    books.processes_released.add(event.process)
    books.processes_gone.add(event.process)


def stage_reported(books: Books, event: facts.StageReported, record: Record) -> None:
    require(books.sessions[event.session].closed is None, "a closed session reports nothing")


HANDLERS: dict[type, Handler] = {
    facts.IncarnationStarted: incarnation_started,
    facts.SessionOpened: session_opened,
    facts.RankRegistered: rank_registered,
    facts.InstanceSealed: instance_sealed,
    facts.SessionClosed: session_closed,
    facts.InstanceClosed: instance_closed,
    facts.ProcessReleased: process_released,
    facts.StageReported: stage_reported,
}
