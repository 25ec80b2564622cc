"""Rules that hold between records: nothing leaks, nothing waits without need, no bound is passed."""

from collections.abc import Callable

from orbitkv.events import commands
from orbitkv.events.outcomes import Share
from orbitkv.events.record import Record
from tests.models.books import Books
from tests.models.budgets import first_in_line, fits, settings, within_budgets
from tests.models.cohort import pending_pages_have_an_owner
from tests.models.hints import hints_are_on_their_way
from tests.models.pages import no_superblock_was_left, what_is_wanted_is_retained
from tests.models.rows import Operation
from tests.models.saves import missing_slices
from tests.models.sharing import claims_are_right
from tests.models.story import require


def every_buffer_is_wanted(books: Books, record: Record) -> None:
    for buffer in books.buffers.values():
        wanted = buffer.indexed or books.holders(buffer.number)
        require(wanted, "a buffer that nobody finds or holds is freed", buffer=buffer)


def every_page_number_is_wanted(books: Books, record: Record) -> None:
    used = set(books.resident) | set(books.on_ssd)
    used.update(buffer.page for buffer in books.buffers.values())
    used.update(slot.page for slot in books.slots.values())
    used.update(read.page for read in books.reads.values())
    for operation in books.live_demands():
        used.update(books.page_of_key[key] for key in operation.keys if key in books.page_of_key)
    for operation in books.operations.values():
        used.update(operation.claims)
    idle = set(books.pages) - used
    require(not idle, "a page that is in no tier and that nobody refers to is unbound", pages=sorted(idle))


def budgets_hold(books: Books, record: Record) -> None:
    within_budgets(books)
    for operation in books.operations.values():
        _charge_is_right(books, operation)


def _charge_is_right(books: Books, operation: Operation) -> None:
    """A charge covers what it must and ends with its last holder."""
    lease = books.leases.get(operation.lease) if operation.lease is not None else None
    leased = lease is not None and not lease.released
    needed = books.own_reads_bytes(operation.number)
    if lease is not None and leased:
        needed += sum(books.buffers[buffer].footprint_bytes for buffer in lease.pages)
    said = operation.charge_bytes
    if not operation.granted:
        require(said == 0, "nothing is reserved before the grant", operation=operation.number)
        return
    over = operation.answered and not needed
    require(
        operation.charge_over == over,
        "a charge ends with its last holder",
        operation=operation,
        needed=needed,
    )
    if settings(books).charge_shared:
        claims_are_right(books, operation)
    elif operation.warm and operation.end is None:
        right = operation.asked_charge_bytes
        rule = "a hint's charge lasts until its reads have ended"
        require(said == right, rule, operation=operation.number, said=said, right=right)
    elif operation.answered:
        rule = "an answered operation is charged for its lease and its own submitted reads"
        require(said == needed, rule, operation=operation.number, said=said, right=needed)
    else:
        needed += sum(books.buffers[buffer].footprint_bytes for buffer in set(operation.owned.values()))
        rule = "a charge covers what is owned and read"
        require(said >= needed, rule, operation=operation.number, said=said, right=needed)


def the_first_waiting_demand_does_not_fit(books: Books, record: Record) -> None:
    for operation in first_in_line(books)[:1]:
        require(
            not fits(books, operation), "a waiting demand is granted when it fits", operation=operation.number
        )


def every_demand_is_on_its_way(books: Books, record: Record) -> None:
    for operation in books.live_demands():
        if operation.lease is not None:
            continue
        require(
            operation.waiting or operation.granted, "an open demand waits or is granted", operation=operation
        )
        session = books.sessions[operation.session]
        require(session.closed is None, "a demand ends with its opener's session", operation=operation.number)
        if operation.granted:
            _is_being_read(books, operation)


def _is_being_read(books: Books, operation: Operation) -> None:
    coming = {
        asked
        for read in books.reads.values()
        for number, asked in read.owners
        if number == operation.number and operation.wants(asked)
    }
    require(coming, "a demand with nothing to wait for is answered", operation=operation.number)
    missing = set(operation.layout) - coming - set(operation.owned)
    require(not missing, "a demand has or awaits every page it goes on with", pages=sorted(missing))
    still = sorted(asked for asked in operation.failed if operation.wants(asked))
    require(not still, "a demand is cut at a failed page", operation=operation.number, pages=still)


def one_live_operation_per_request(books: Books, record: Record) -> None:
    seen: dict[tuple[int, str, int], int] = {}
    for operation in books.live_demands():
        name = (operation.instance, operation.request, operation.attempt)
        require(
            name not in seen,
            "a request has one operation",
            request=name,
            operations=(seen.get(name), operation),
        )
        seen[name] = operation.number


def queued_reads_are_wanted_and_move(books: Books, record: Record) -> None:
    queued = list(books.reads_queued())
    for read in queued:
        require(books.interested(read), "a queued read that nobody wants leaves the queue", read=read.number)
    busy = list(books.reads_in_flight()) or books.writes_in_flight
    require(
        busy or not queued, "reads are submitted while the device is idle", queued=[r.number for r in queued]
    )


def bytes_in_flight_are_bounded(books: Books, record: Record) -> None:
    """One image larger than a bound still moves, alone."""
    assert books.config is not None
    foreground: list[int] = []
    rest = [books.buffers[buffer].image_bytes for buffer in books.writes_in_flight.values()]
    for read in books.reads_in_flight():
        assert read.buffer is not None
        (foreground if read.foreground else rest).append(books.buffers[read.buffer].image_bytes)
    most = books.config.ssd_inflight_bytes_max
    background = most - books.config.ssd_foreground_reserved_bytes
    total = sum(foreground) + sum(rest)
    require(
        total <= most or len(foreground) + len(rest) == 1,
        "ssd_inflight_bytes_max holds",
        bytes=total,
        writes=books.writes_in_flight,
        reads=list(books.reads_in_flight()),
    )
    require(
        sum(rest) <= background or len(rest) == 1, "the foreground's reserve is kept", background=sum(rest)
    )


def ended_leases_are_let_go(books: Books, record: Record) -> None:
    for lease in books.leases.values():
        if lease.released:
            continue
        still = lease.copying or (lease.end is None and Share.OPEN in lease.shares.values())
        require(still, "a lease whose ranks are done is over and released", lease=lease)
        for rank, share in lease.shares.items():
            gone = lease.processes.get(rank) in books.processes_gone
            require(
                not gone or share not in (Share.RESTORING, Share.STRANDED),
                "copies end with their process",
                lease=lease.number,
                rank=rank,
            )
            session = books.sessions[books.instances[lease.instance].ranks[rank]]
            open_share = share == Share.RESTORING or (share == Share.OPEN and lease.end is None)
            closed_since = session.closed is not None and session.closed_seq > lease.granted_seq
            rule = "a closed session's share is lost or stranded"
            require(not (closed_since and open_share), rule, lease=lease.number, rank=rank)


def saves_move(books: Books, record: Record) -> None:
    for save in books.saves.values():
        require(
            save.given_up or save.sealing or missing_slices(books, save),
            "a page with all its slices is being sealed",
            buffer=save.buffer,
        )
        ranks = books.instances[save.instance].ranks
        gone = [
            rank
            for rank, stage in save.ranks.items()
            if stage in ("begun", "copying") and books.sessions[ranks[rank]].closed is not None
        ]
        require(
            save.given_up or not gone, "a half-filled page ends with its rank's session", save=save, gone=gone
        )
    begun = books.saves_sealed + books.saves_given_up + len(books.saves)
    require(books.saves_begun == begun, "every page begun ends sealed or dropped", begun=books.saves_begun)


def sealed_pages_go_to_the_ssd(books: Books, record: Record) -> None:
    assert books.config is not None
    for number in books.write_queue:
        require(
            books.buffers[number].indexed, "a page that left DRAM is not queued for the SSD", buffer=number
        )
    if books.write_queue and books.store_writable:
        busy = list(books.reads_in_flight()) or books.writes_in_flight
        require(busy, "writes are submitted while the device is idle", queued=list(books.write_queue))


def the_cap_holds(books: Books, record: Record) -> None:
    assert books.config is not None
    held = len(books.segments) * books.config.ssd_segment_bytes
    require(held <= books.config.ssd_bytes, "the SSD's cap is hard", bytes=held)


def a_sweep_leaves_nothing_overdue(books: Books, record: Record) -> None:
    if not isinstance(record.cause, commands.Tick):
        return
    late: list[object] = [
        operation.number
        for operation in books.live_operations()
        if operation.lease is None and operation.deadline_ns <= record.at_ns
    ]
    late += [
        lease for lease in books.leases.values() if lease.end is None and lease.deadline_ns <= record.at_ns
    ]
    late += [
        save
        for save in books.saves.values()
        if not save.given_up and not save.sealing and save.deadline_ns <= record.at_ns
    ]
    require(not late, "a sweep leaves nothing overdue", late=late)


def empty_instances_are_closed(books: Books, record: Record) -> None:
    for instance in books.instances.values():
        if instance.closed or any(books.sessions[number].closed is None for number in instance.sessions):
            continue
        busy = books.reserved_bytes(instance.number) > 0
        busy = busy or any(
            op.instance == instance.number for op in books.operations.values() if not op.charge_over
        )
        busy = busy or any(
            row.instance == instance.number for row in books.leases.values() if not row.released
        )
        busy = busy or any(save.instance == instance.number for save in books.saves.values())
        require(busy, "an instance without sessions, holds and saves is closed", instance=instance.number)


def drop_dram_leaves_only_held_pages(books: Books, record: Record) -> None:
    if isinstance(record.cause, commands.DropDram):
        spared = [b.number for b in books.buffers.values() if b.indexed and not books.holders(b.number)]
        require(not spared, "drop-dram evicts every unheld page", buffers=spared)


BETWEEN_RECORDS: tuple[Callable[[Books, Record], None], ...] = (
    every_buffer_is_wanted,
    every_page_number_is_wanted,
    budgets_hold,
    the_first_waiting_demand_does_not_fit,
    every_demand_is_on_its_way,
    one_live_operation_per_request,
    queued_reads_are_wanted_and_move,
    bytes_in_flight_are_bounded,
    ended_leases_are_let_go,
    saves_move,
    sealed_pages_go_to_the_ssd,
    the_cap_holds,
    a_sweep_leaves_nothing_overdue,
    empty_instances_are_closed,
    drop_dram_leaves_only_held_pages,
    hints_are_on_their_way,
    pending_pages_have_an_owner,
    what_is_wanted_is_retained,
    no_superblock_was_left,
)


def nothing_is_left(books: Books) -> None:
    """After a drain: reservations, holds and work in flight are all 0."""
    require(books.reserved_bytes() == 0, "reservations return to 0", reserved=books.reserved_bytes())
    require(not list(books.live_operations()), "no operation is left", left=list(books.live_operations()))
    left = [lease.number for lease in books.leases.values() if not lease.released]
    require(not left, "no lease or copy is left", leases=left)
    require(not any(books.lines.values()), "nobody stands in line", lines=books.lines)
    require(not books.reads, "no read is left", reads=list(books.reads))
    require(
        not books.writes_in_flight and not books.write_queue, "no write is left", slots=books.writes_in_flight
    )
    require(not books.saves, "no save is left", saves=list(books.saves))
    require(not books.copies_in_flight and not books.seals_in_flight, "no copy or seal is left")
    held = {buffer: books.holders(buffer) for buffer in books.buffers if books.holders(buffer)}
    require(not held, "nothing is held", held=held)
