"""Rules of leases: one share per rank, copies that outlive the promise, syncs that count once."""

from orbitkv.events import facts
from orbitkv.events.outcomes import LeaseEnd, Share
from orbitkv.events.record import Record
from tests.models.books import Books, Handler
from tests.models.budgets import settings
from tests.models.cohort import named_by_sync
from tests.models.rows import Lease, Operation
from tests.models.sharing import paid_bytes
from tests.models.story import require

FINAL = {Share.SYNCED, Share.RELEASED, Share.LOST}
NEXT = {
    Share.OPEN: {Share.RELEASED, Share.LOST},
    Share.RESTORING: {Share.SYNCED, Share.RELEASED, Share.STRANDED, Share.LOST},
    Share.STRANDED: {Share.SYNCED, Share.RELEASED, Share.LOST},
}


def lease_granted(books: Books, event: facts.LeaseGranted, record: Record) -> None:
    operation = books.operations[event.operation]
    fresh = event.lease not in books.leases and event.lease not in books.past_leases
    require(fresh, "a lease number is used once", event=event)
    require(operation.granted and not operation.answered, "an operation is answered once", event=event)
    pages = [operation.owned[asked] for asked in sorted(operation.owned)]
    require(pages, "there is something to lease", event=event)
    right = sum(books.buffers[buffer].footprint_bytes for buffer in pages) + books.own_reads_bytes(
        event.operation
    )
    if settings(books).charge_shared:
        right = paid_bytes(books, operation)
    require(event.charge_bytes == right, "the charge shrinks to the actual bytes", event=event, right=right)
    smaller = event.charge_bytes <= operation.charge_bytes
    grown = settings(books).charge_shared  # an earlier payer may have let go in this same record
    require(smaller or grown, "a lease is charged at most the operation's charge", event=event)
    deadline = record.at_ns + settings(books).lease_lifetime_ns
    require(event.deadline_ns == deadline, "a lease lives lease_lifetime_ns", event=event)
    require(
        sorted(operation.owned) == operation.layout, "a lease holds every page it goes on with", event=event
    )
    if operation.one_prefix:
        tokens = operation.reach[0] * operation.part_tokens[0]
        require(
            event.boundary_tokens == tokens, "the boundary is that of the prefix", event=event, right=tokens
        )
    world = books.instances[operation.instance].world_size
    books.leases[event.lease] = Lease(
        event.lease,
        event.operation,
        operation.instance,
        pages,
        event.deadline_ns,
        record.seq,
        dict.fromkeys(range(world), Share.OPEN),
    )
    _decision_names_the_tiers(operation, event, record)
    operation.charge_bytes = event.charge_bytes
    operation.lease = event.lease


def _decision_names_the_tiers(operation: Operation, event: facts.LeaseGranted, record: Record) -> None:
    decisions = [
        other
        for other in record.events
        if isinstance(other, facts.DecisionSettled) and other.operation == event.operation
    ]
    require(len(decisions) == 1, "a decision is settled in the record that answers it", event=event)
    if operation.one_prefix:
        read = len(operation.from_ssd & set(operation.owned))
        found = len(operation.owned) - read
        said = decisions[0]
        require(said.ssd == read, "a page read for it counts as ssd", said=said, right=read)
        require(said.dram == found, "a page found in DRAM counts as dram", said=said, right=found)


def lease_ended(books: Books, event: facts.LeaseEnded, record: Record) -> None:
    lease = books.leases[event.lease]
    require(lease.end is None, "a lease ends once", event=event, before=lease.end)
    require(
        event.end != LeaseEnd.EXPIRED or lease.deadline_ns <= record.at_ns,
        "no lease expires early",
        event=event,
    )
    ranks = books.instances[lease.instance].ranks
    able = [
        rank
        for rank, share in lease.shares.items()
        if share == Share.OPEN and books.sessions[ranks[rank]].closed is None
    ]
    rule = "a lease is the instance's: it is not over while a rank that is there may take its share"
    require(
        not able or event.end not in (LeaseEnd.CONSUMED, LeaseEnd.DISCONNECTED), rule, event=event, able=able
    )
    lease.end = event.end


def restore_begun(books: Books, event: facts.RestoreBegun, record: Record) -> None:
    lease = books.leases[event.lease]
    session = books.sessions[event.session]
    require(lease.end is None, "no copy begins after a lease's end", event=event)
    require(session.closed is None, "a closed session copies nothing", event=event)
    require(
        session.instance == lease.instance and session.rank == event.rank,
        "a rank takes its own share",
        event=event,
    )
    require(
        lease.shares.get(event.rank) == Share.OPEN, "a share is begun once", event=event, share=lease.shares
    )
    lease.shares[event.rank] = Share.RESTORING
    lease.processes[event.rank] = session.process


def share_ended(books: Books, event: facts.ShareEnded, record: Record) -> None:
    lease = books.leases[event.lease]
    before = lease.shares[event.rank]
    require(event.share in NEXT.get(before, ()), "a share ends once", event=event, before=before)
    if event.share == Share.LOST and before != Share.OPEN:
        process = lease.processes[event.rank]
        require(
            process in books.processes_gone,
            "a copy is lost only with its process",
            event=event,
            process=process,
        )
    if before == Share.STRANDED and event.share == Share.RELEASED:
        gone = lease.processes[event.rank] in books.processes_gone
        stopped = any(isinstance(other, facts.SyncFailed) and other.stopped for other in record.events)
        require(gone or stopped, "a stranded copy ends with its process, or by its stated stop", event=event)
    if event.share == Share.SYNCED:
        require(event.rank in lease.synced, "a share is synced by a sync", event=event)
    lease.shares[event.rank] = event.share


def gpu_synced(books: Books, event: facts.GpuSynced, record: Record) -> None:
    lease = books.leases[event.lease]
    share = lease.shares.get(event.rank)
    require(
        share in (Share.RESTORING, Share.STRANDED),
        "only a copy that was begun is synced",
        event=event,
        share=share,
    )
    require(event.rank not in lease.synced, "a sync takes effect once", event=event)
    lease.synced.add(event.rank)
    end = 0
    for first, last in event.ranges:
        require(end <= first <= last <= len(lease.pages), "ranges lie in the lease, in order", event=event)
        end = last
    expired = lease.end == LeaseEnd.EXPIRED
    require(event.late or not expired, "a sync after its lease expired is told so", event=event)
    require(not event.late or lease.end is not None, "a sync in time is not late", event=event)
    named_by_sync(books, lease, event.ranges)


def sync_failed(books: Books, event: facts.SyncFailed, record: Record) -> None:
    share = books.leases[event.lease].shares.get(event.rank)
    require(
        share in (Share.RESTORING, Share.STRANDED),
        "only a copy that was begun can fail",
        event=event,
        share=share,
    )


def lease_released(books: Books, event: facts.LeaseReleased, record: Record) -> None:
    lease = books.leases[event.lease]
    require(not lease.released, "a lease is released once", event=event)
    require(lease.end is not None, "a lease is released after its end", event=event)
    require(not lease.copying, "a lease is released when nobody copies", event=event, copying=lease.copying)
    lease.released = True


HANDLERS: dict[type, Handler] = {
    facts.LeaseGranted: lease_granted,
    facts.LeaseEnded: lease_ended,
    facts.RestoreBegun: restore_begun,
    facts.ShareEnded: share_ended,
    facts.GpuSynced: gpu_synced,
    facts.SyncFailed: sync_failed,
    facts.LeaseReleased: lease_released,
}
