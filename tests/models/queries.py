"""Rules of demand operations: opening, waiting, the grant, cuts, decisions and the end; and of charges."""

from orbitkv.events import commands, facts
from orbitkv.events.outcomes import QueryEnd
from orbitkv.events.record import Record
from tests.models.books import Books, Handler
from tests.models.budgets import ahead, budget_limit, cost, first_in_line, settings, within_budgets
from tests.models.columns import numbers
from tests.models.rows import Operation
from tests.models.sharing import paid_bytes
from tests.models.story import require
from tests.models.wishes import in_a_tier, keys_of, may_ask, told_parts

ANSWERED_WITHOUT_LEASE = {QueryEnd.BYPASSED, QueryEnd.MISSED, QueryEnd.EXPIRED}


def query_opened(books: Books, event: facts.QueryOpened, record: Record) -> None:
    config = settings(books)
    instance = books.instances[event.instance]
    opener, ticket = divmod(event.operation, 1 << 32)
    require(opener == event.session, "an operation is (opener session << 32) | ticket", event=event)
    may_ask(books, event.session, event.instance, ticket)
    parts = record.cause.parts if isinstance(record.cause, commands.SubmitQuery) else ()
    require(parts, "a query opens by SubmitQuery alone")
    sizes = [len(part.pages) // 4 for part in parts]
    told = told_parts(parts)
    require(event.parts == told, "a query opens with the parts of its command", event=event, right=told)
    require(event.asked_pages == sum(part[3] for part in told), "asked is what is needed of the pages named")
    charge = sum(instance.footprints[part[0]] * size for part, size in zip(told, sizes, strict=True))
    if config.demand_prefix_cut and len(told) == 1:
        footprint = instance.footprints[told[0][0]]
        charge = min(charge, budget_limit(books) // footprint * footprint) or charge
    require(event.charge_bytes == charge, "a demand is charged footprint x hashes", event=event, right=charge)
    deadline = record.at_ns + config.demand_lifetime_ns
    require(event.deadline_ns == deadline, "a demand lives demand_lifetime_ns", event=event)
    books.operations[event.operation] = Operation(
        number=event.operation,
        instance=event.instance,
        session=event.session,
        request=event.request,
        attempt=event.attempt,
        revision=event.revision,
        asked_pages=event.asked_pages,
        asked_charge_bytes=event.charge_bytes,
        deadline_ns=event.deadline_ns,
        opened_seq=record.seq,
        part_sizes=sizes,
        part_trailing=[part[2] for part in told],
        part_tokens=[part[1] for part in told],
        part_groups=[part[0] for part in told],
        keys=keys_of(books, instance, parts),
    )
    live = list(books.live_operations())
    mine = [operation for operation in live if operation.session == event.session]
    require(len(live) <= config.operations_max, "operations_max holds", live=len(live))
    require(
        len(mine) <= config.operations_per_session_max, "operations_per_session_max holds", live=len(mine)
    )


def query_waiting(books: Books, event: facts.QueryWaiting, record: Record) -> None:
    config = settings(books)
    operation = books.operations[event.operation]
    fresh = not (operation.granted or operation.answered or operation.waiting)
    require(fresh, "only a new demand waits", event=event)
    instance = operation.instance if event.by_instance else None
    reserved = books.reserved_bytes(instance)
    limit = config.instance_query_budget_bytes if event.by_instance else config.query_budget_bytes
    require(event.limit_bytes == limit, "a wait names the limit it met", event=event, limit=limit)
    require(event.reserved_bytes == reserved, "reserved bytes are counted alike", event=event, right=reserved)
    require(
        reserved + cost(books, operation) > limit or ahead(books, operation),
        "a demand waits only when its budget is full or others wait before it",
        event=event,
    )
    operation.waiting = True


def query_granted(books: Books, event: facts.QueryGranted, record: Record) -> None:
    operation = books.operations[event.operation]
    require(not operation.granted and not operation.answered, "a demand is granted once", event=event)
    passed = [earlier.number for earlier in first_in_line(books) if earlier.opened_seq < operation.opened_seq]
    rule = "waiting demands are granted in the order of their asking"
    require(not passed, rule, granted=operation.number, still_waiting=passed)
    within = all(reach <= size for reach, size in zip(event.reach, operation.part_sizes, strict=True))
    require(within, "a grant reaches no further than the question", event=event)
    right = cost(books, operation)
    require(event.charge_bytes == right, "a grant reserves what it costs now", event=event, right=right)
    operation.granted, operation.waiting = True, False
    operation.charge_bytes = event.charge_bytes
    operation.reach = list(event.reach)
    within_budgets(books)
    layout = operation.layout
    hits = numbers(event.buffers)
    positions = numbers(event.positions) or list(range(len(layout)))[: len(hits)]
    for index, (position, buffer) in enumerate(zip(positions, hits, strict=True)):
        page = books.buffers[buffer].page
        asked = layout[position]
        require(books.pages[page] == operation.keys[asked], "a hit is the page asked for", position=position)
        require(books.resident.get(page) == buffer, "a hit is what lookups find", buffer=buffer)
        operation.owned[asked] = buffer
        books.buffers[buffer].recency = (record.seq, books.event_index, -index)
    if operation.one_prefix:
        _reach_is_what_the_tiers_hold(books, operation)
    _hits_are_owned(books, operation)


def _reach_is_what_the_tiers_hold(books: Books, operation: Operation) -> None:
    reach = 0
    footprint = books.instances[operation.instance].footprints[operation.part_groups[0]]
    for key in operation.keys[: operation.asked_charge_bytes // footprint]:
        page = books.page_of_key.get(key)
        if page is None or not in_a_tier(books, page):
            break
        reach += 1
    require(
        operation.reach == [reach],
        "a demand goes on with the pages before the first one that is in no tier",
        operation=operation.number,
        said=operation.reach,
        right=reach,
    )


def _hits_are_owned(books: Books, operation: Operation) -> None:
    for asked in operation.layout:
        page = books.page_of_key[operation.keys[asked]]
        require(
            operation.owned.get(asked) == books.resident.get(page),
            "a demand owns exactly the hits before its boundary",
            operation=operation.number,
            asked=asked,
        )


def query_cut(books: Books, event: facts.QueryCut, record: Record) -> None:
    operation = books.operations[event.operation]
    require(operation.granted and not operation.answered, "only what is under way is cut", event=event)
    before, after = operation.reach, list(event.reach)
    shorter = all(new <= old for new, old in zip(after, before, strict=True)) and after != before
    require(shorter, "a cut shortens a demand", event=event, before=before)
    if operation.one_prefix:
        first = min(operation.failed, default=-1)
        rule = "a demand is cut at the first page of its prefix that failed or found no room"
        require(after == [first], rule, event=event, failed=sorted(operation.failed))
    operation.reach = after
    operation.owned = {page: buffer for page, buffer in operation.owned.items() if operation.wants(page)}


def decision_settled(books: Books, event: facts.DecisionSettled, record: Record) -> None:
    operation = books.operations[event.operation]
    require(not operation.settled, "a decision is settled once", event=event)
    operation.settled = True
    tiers = (event.dram, event.peer, event.ssd, event.miss)
    require(sum(tiers) == event.asked, "dram + peer + ssd + miss = asked", event=event)
    require(event.asked == operation.asked_pages, "a decision settles what was asked", event=event)
    require(min(tiers) >= 0, "a tier's count is not negative", event=event)
    for tier in ("asked", "dram", "peer", "ssd", "miss"):
        books.settled[tier] += getattr(event, tier)


def reservation_shrunk(books: Books, event: facts.ReservationShrunk, record: Record) -> None:
    operation = books.operations[event.operation]
    was = operation.charge_bytes
    require(not operation.charge_over, "a charge that is over stays over", event=event)
    require(0 <= event.charge_bytes < was, "a charge only shrinks", event=event, was=was)
    if settings(books).charge_shared:
        right = paid_bytes(books, operation)
        require(event.charge_bytes == right, "the first in line pays", event=event, right=right)
    operation.charge_bytes = event.charge_bytes


def reservation_ended(books: Books, event: facts.ReservationEnded, record: Record) -> None:
    operation = books.operations[event.operation]
    require(operation.granted and not operation.charge_over, "a charge ends once", event=event)
    require(not operation.claims, "a charge ends after its claims", event=event)
    operation.charge_bytes, operation.charge_over = 0, True


def query_ended(books: Books, event: facts.QueryEnded, record: Record) -> None:
    operation = books.operations[event.operation]
    require(not operation.warm, "a hint is no query", event=event)
    require(operation.end is None, "an operation ends once", event=event, before=operation.end)
    operation.end = event.end
    operation.waiting = False
    overdue = event.end != QueryEnd.EXPIRED or operation.deadline_ns <= record.at_ns
    require(overdue, "nothing expires early", event=event)
    leased = operation.lease is not None
    answered = leased or event.end in ANSWERED_WITHOUT_LEASE
    rule = "a decision is settled in the record that answers it, and in no other"
    require(operation.settled == answered, rule, event=event, settled=operation.settled)
    consumed = event.end in (QueryEnd.CONSUMED, QueryEnd.LEASE_EXPIRED)
    require(leased or not consumed, "only an operation with a lease is consumed", event=event)
    if event.end == QueryEnd.MISSED:
        require(not operation.layout, "a demand is missed when there is nothing to lease", event=event)
    operation.owned.clear()


HANDLERS: dict[type, Handler] = {
    facts.QueryOpened: query_opened,
    facts.QueryWaiting: query_waiting,
    facts.QueryGranted: query_granted,
    facts.QueryCut: query_cut,
    facts.DecisionSettled: decision_settled,
    facts.ReservationShrunk: reservation_shrunk,
    facts.ReservationEnded: reservation_ended,
    facts.QueryEnded: query_ended,
}
