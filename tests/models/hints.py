"""Rules of hints: foretold from the books are what a hint sees, whether it is admitted, and if not, why.

A hint is an operation that owns no page and is never answered. Its interest and its charge are those of
any other: what holds for both stands in `queries`, `reads` and `rules`.
"""

from math import lcm

from orbitkv.events import commands, facts
from orbitkv.events.outcomes import HintEnd, HintSkip
from orbitkv.events.record import Record
from tests.models.books import Books, Handler
from tests.models.budgets import cost, settings, speculative_bytes, speculative_shares
from tests.models.rows import Operation
from tests.models.story import require
from tests.models.wishes import in_a_tier, keys_of, may_ask, told_parts


def _wish(books: Books, record: Record) -> Operation:
    """What the record's command wishes for, as the operation that would come of it."""
    wish = record.cause
    require(isinstance(wish, commands.WarmPrefix), "hints come of WarmPrefix alone", cause=wish)
    assert isinstance(wish, commands.WarmPrefix)
    number = books.sessions[wish.session].instance
    require(number is not None, "a session hints for the instance that it registered with", wish=wish)
    assert number is not None
    instance = books.instances[number]
    told = told_parts(wish.parts)
    sizes = [len(part.pages) // 4 for part in wish.parts]
    return Operation(
        number=wish.session << 32 | wish.ticket,
        instance=number,
        session=wish.session,
        request=wish.request,
        attempt=wish.attempt,
        revision=wish.revision,
        asked_pages=sum(part[3] for part in told),
        asked_charge_bytes=sum(
            instance.footprints[part[0]] * size for part, size in zip(told, sizes, strict=True)
        ),
        deadline_ns=record.at_ns + settings(books).hint_lifetime_ns,
        opened_seq=record.seq,
        part_sizes=sizes,
        part_trailing=[part[2] for part in told],
        part_tokens=[part[1] for part in told],
        part_groups=[part[0] for part in told],
        keys=keys_of(books, instance, wish.parts),
        warm=True,
        body=wish.body,
    )


def _look(books: Books, wish: Operation) -> tuple[list[int], int, int]:
    """Its furthest boundary in pages per part; how many pages needed there are in DRAM, and how many not."""
    step = lcm(*wish.part_tokens)
    furthest = min(size * tokens for size, tokens in zip(wish.part_sizes, wish.part_tokens, strict=True))
    wish.granted = True
    for tokens in range(furthest // step * step, -1, -step):
        wish.reach = [tokens // size for size in wish.part_tokens]
        pages = [books.page_of_key.get(wish.keys[asked]) for asked in wish.layout]
        if all(page is not None and in_a_tier(books, page) for page in pages):
            dram = sum(page in books.resident for page in pages)
            return wish.reach, dram, len(pages) - dram
    raise AssertionError("at no tokens nothing is needed")


def warm_probed(books: Books, event: facts.WarmProbed, record: Record) -> None:
    wish = _wish(books, record)
    _, dram, elsewhere = _look(books, wish)
    seen = (event.asked, event.dram, event.peer, event.ssd, event.miss)
    right = (wish.asked_pages, dram, 0, elsewhere, wish.asked_pages - dram - elsewhere)
    require(seen == right, "a probe counts every asked page in its tier", said=seen, right=right)
    named = (wish.instance, wish.request, wish.attempt)
    require((event.instance, event.request, event.attempt) == named, "a probe is of its hint", event=event)


def obstacle(books: Books, wish: Operation) -> tuple[HintSkip, set[tuple[int, int]]] | None:
    """The first reason that applies, with what may be said to have met which bound."""
    config = settings(books)
    share, instance_share = speculative_shares(books)
    charge = cost(books, wish)
    if charge > min(share, instance_share):
        return HintSkip.OVERSIZED, {(charge, min(share, instance_share))}
    live = list(books.live_operations())
    mine = [operation for operation in live if operation.session == wish.session]
    counts = (
        (len(live), config.operations_max),
        (len(mine), config.operations_per_session_max),
        (sum(operation.warm for operation in live), config.hints_max),
        (sum(operation.warm for operation in mine), config.hints_per_session_max),
    )
    met = {(count, limit) for count, limit in counts if count >= limit}
    if met:
        return HintSkip.OPERATIONS, met
    foreground = books.reserved_bytes(warm=False)
    if foreground or books.waiting_operations():
        return HintSkip.FOREGROUND, {(foreground, 0)}
    bounds = (
        (speculative_bytes(books), share),
        (speculative_bytes(books, wish.instance), instance_share),
    )
    met = {(held, limit) for held, limit in bounds if held + charge > limit}
    return (HintSkip.BYTES, met) if met else None


def hint_admitted(books: Books, event: facts.HintAdmitted, record: Record) -> None:
    wish = _wish(books, record)
    may_ask(books, event.session, event.instance, event.operation & 0xFFFF_FFFF)
    require(event.operation == wish.number, "a hint is (opener session << 32) | ticket", event=event)
    reach, _, elsewhere = _look(books, wish)
    require(elsewhere, "a hint that misses nothing is not needed", event=event)
    met = obstacle(books, wish)
    require(met is None, "a hint is admitted when nothing is in its way", event=event, obstacle=met)
    right = cost(books, wish)
    require(event.charge_bytes == right, "a hint is charged footprint x hashes", event=event, right=right)
    require(event.deadline_ns == wish.deadline_ns, "a hint lives hint_lifetime_ns", event=event)
    said = [len(pages) // 4 for pages in event.pages]
    require(said == reach, "a hint prepares up to its boundary", said=said, right=reach)
    wish.charge_bytes = event.charge_bytes
    books.operations[event.operation] = wish


def hint_skipped(books: Books, event: facts.HintSkipped, record: Record) -> None:
    wish = _wish(books, record)
    may_ask(books, event.session, event.instance, event.ticket)
    _, _, elsewhere = _look(books, wish)
    require(elsewhere, "a hint that misses nothing is not needed, and no skip", event=event)
    met = obstacle(books, wish)
    require(met is not None, "a hint is skipped for a reason", event=event)
    assert met is not None
    require(event.reason == met[0], "the first reason that applies is recorded", event=event, right=met)
    said = (event.reserved, event.limit)
    require(said in met[1], "a skip names the bound that it met", said=said, right=met)
    charge = cost(books, wish)
    require(event.charge_bytes == charge, "a skip says what it would have cost", event=event, right=charge)


def hint_not_needed(books: Books, event: facts.HintNotNeeded, record: Record) -> None:
    wish = _wish(books, record)
    may_ask(books, event.session, event.instance, event.ticket)
    _, _, elsewhere = _look(books, wish)
    require(not elsewhere, "a hint with something to prepare is needed", event=event, pages=elsewhere)


def hint_ended(books: Books, event: facts.HintEnded, record: Record) -> None:
    hint = books.operations[event.operation]
    require(hint.warm and hint.end is None, "a hint ends once", event=event, before=hint.end)
    cause = record.cause
    match event.end:
        case HintEnd.PREPARED:
            right = not books.awaits(hint)
        case HintEnd.CANCELLED:
            right = (
                isinstance(cause, commands.CancelHint) and hint.number == cause.session << 32 | cause.ticket
            )
        case HintEnd.REVISED:
            right = isinstance(cause, commands.WarmPrefix) and cause.revision > hint.revision
            right = right and _request(hint) == _requested(books, record.cause)
        case HintEnd.EXPIRED:
            right = hint.deadline_ns <= record.at_ns
        case HintEnd.DISCONNECTED:
            closed = [other.session for other in record.events if isinstance(other, facts.SessionClosed)]
            right = hint.session in closed
        case HintEnd.ADMITTED:
            opened = [other for other in record.events if isinstance(other, facts.QueryOpened)]
            right = _request(hint) in [(other.instance, other.request, other.attempt) for other in opened]
        case HintEnd.SHUTDOWN:
            right = books.shutting_down
    require(right, "a hint ends for the reason given", event=event, hint=hint)
    hint.end = event.end


def _request(hint: Operation) -> tuple[int, str, int]:
    return hint.instance, hint.request, hint.attempt


def _requested(books: Books, wish: object) -> tuple[int | None, str, int]:
    assert isinstance(wish, commands.WarmPrefix)
    return books.sessions[wish.session].instance, wish.request, wish.attempt


def account(books: Books, record: Record) -> None:
    """A hint has one outcome and one probe; what replaces another hint has ended it."""
    kinds = (facts.HintAdmitted, facts.HintSkipped, facts.HintNotNeeded)
    outcomes = [event for event in record.events if isinstance(event, kinds)]
    probes = [event for event in record.events if isinstance(event, facts.WarmProbed)]
    hinted = isinstance(record.cause, commands.WarmPrefix)
    require(len(outcomes) == hinted, "a hint has one outcome", outcomes=outcomes)
    require(len(probes) == hinted, "a hint is one probe", probes=probes)
    if hinted:
        touched = [event for event in record.events if isinstance(event, facts.PagesTouched)]
        require(not touched, "a hint's lookup is a peek", touched=touched)
        older = [
            hint.number
            for hint in books.live_hints()
            if _request(hint) == _requested(books, record.cause) and hint.opened_seq < record.seq
        ]
        require(not older, "a higher revision replaces the hint before", older=older)
        _reads_what_is_absent(record, probes[0])
    if isinstance(record.cause, commands.CancelHint):
        number = record.cause.session << 32 | record.cause.ticket
        live = [hint.number for hint in books.live_hints() if hint.number == number]
        require(not live, "a hint ends when it is cancelled", hint=number)


def _reads_what_is_absent(record: Record, probe: facts.WarmProbed) -> None:
    """An admitted hint queues or joins a read for every page that its lookup found on the SSD alone."""
    for admitted in record.events:
        if isinstance(admitted, facts.HintAdmitted):
            read = sum(
                len(event.positions) // 4
                for event in record.events
                if isinstance(event, facts.ReadsQueued | facts.ReadsJoined)
                and event.operation == admitted.operation
            )
            require(read == probe.ssd, "a hint reads all that only the SSD has", probe=probe, read=read)


def hints_are_on_their_way(books: Books, record: Record) -> None:
    requests: set[tuple[int, str, int]] = {
        (demand.instance, demand.request, demand.attempt) for demand in books.live_demands()
    }
    for hint in books.live_hints():
        require(_request(hint) not in requests, "a request has one hint, until its demand is here", hint=hint)
        requests.add(_request(hint))
        require(books.awaits(hint), "a hint that waits for no read is over", hint=hint.number)
        require(not hint.owned and hint.lease is None, "a hint owns nothing", hint=hint.number)
        session = books.sessions[hint.session]
        require(session.closed is None, "a hint ends with its opener's session", hint=hint.number)
    config = settings(books)
    live = list(books.live_hints())
    require(len(live) <= config.hints_max, "hints_max holds", live=len(live))
    for number in {hint.session for hint in live}:
        mine = sum(hint.session == number for hint in live)
        require(mine <= config.hints_per_session_max, "hints_per_session_max holds", live=mine)


HANDLERS: dict[type, Handler] = {
    facts.WarmProbed: warm_probed,
    facts.HintAdmitted: hint_admitted,
    facts.HintSkipped: hint_skipped,
    facts.HintNotNeeded: hint_not_needed,
    facts.HintEnded: hint_ended,
}
