"""Lies about the two ledgers: pages prepared and what became of them, and what demands were answered with."""

from collections.abc import Callable

import msgspec

from orbitkv.events import facts
from orbitkv.events.outcomes import EvictionReason, Origin, PageClass, QueryEnd, Unused
from tests.log.lies.story import Find, Lie, Story

# --- the cohort ledger ------------------------------------------------------------------------------


def credited_twice(story: Story) -> int:
    record, restored = story.first(facts.PagesRestored)
    return story.add(record.seq + 1, restored)


def credit_forgotten(story: Story) -> int:
    return story.replace(*story.first(facts.PagesRestored))


def restored_and_never_synced(story: Story) -> int:
    record, _ = story.first(facts.PagesRestored)
    sync = next(event for event in record.events if isinstance(event, facts.GpuSynced))
    return story.replace(record, sync)


def sync_of_other_pages(story: Story) -> int:
    record, _ = story.first(facts.PagesRestored)
    sync = next(event for event in record.events if isinstance(event, facts.GpuSynced))
    return story.alter(record, sync, ranges=())


def restored_and_never_prepared(story: Story) -> int:
    record, _ = story.first(facts.PagesSealed)
    _, sealed = story.first(facts.PagesSealed)
    return story.add(record.seq, facts.PagesRestored(sealed.buffers[:4]))


def unused_forgotten(story: Story) -> int:
    return story.replace(*story.first(facts.PagesUnused))


def unused_late(story: Story) -> int:
    record, unused = story.first(facts.PagesUnused)
    story.add(record.seq + 1, unused)
    return story.replace(record, unused)


def unused_early(story: Story) -> int:
    record, unused = story.first(facts.PagesUnused, lambda event: event.cause is Unused.CLEANUP)
    story.replace(record, unused)
    return story.add(record.seq - 1, unused)


def unused_twice(story: Story) -> int:
    record, unused = story.first(facts.PagesUnused)
    return story.replace(record, unused, unused, unused)


def unused_for_another_cause(story: Story) -> int:
    record, unused = story.first(facts.PagesUnused, lambda event: event.cause is Unused.CLEANUP)
    return story.alter(record, unused, cause=Unused.EVICTED)


def unused_while_still_in_the_index(story: Story) -> int:
    record, _ = story.first(facts.PagesUnused, lambda event: event.cause is Unused.CLEANUP)
    evictions = [event for event in record.events if isinstance(event, facts.PagesEvicted)]
    for eviction in evictions:
        record = story.records[record.seq - 1]
        story.replace(record, eviction)
    return record.seq


def unused_after_it_was_restored(story: Story) -> int:
    record, restored = story.first(facts.PagesRestored)
    return story.add(record.seq + 1, facts.PagesUnused(restored.buffers, Unused.EVICTED))


def pending_at_the_end_of_its_chain(story: Story) -> int:
    return story.replace(*story.first(facts.PagesUnused, lambda event: event.cause is Unused.RESTART))


def landing_not_counted(story: Story) -> int:
    return story.replace(*story.first(facts.PagesPrepared))


def demand_counted_as_warm(story: Story) -> int:
    record, inserted = story.first(facts.PagesInserted, lambda event: event.origin is Origin.DEMAND)
    while not any(isinstance(event, facts.ReadsLanded) for event in record.events):
        later = Story(story.records[record.seq :])
        record, inserted = later.first(facts.PagesInserted, lambda event: event.origin is Origin.DEMAND)
    return story.add(record.seq, facts.PagesPrepared(inserted.buffers[:4]))


def warm_read_as_demand(story: Story) -> int:
    record, submitted = story.first(facts.ReadsSubmitted, lambda event: event.origin is Origin.WARM)
    return story.alter(record, submitted, origin=Origin.DEMAND)


# --- the decision ledger: demands -------------------------------------------------------------------


def _settled(story: Story, wanted: Callable[[facts.DecisionSettled], bool]) -> Find[facts.DecisionSettled]:
    return story.first(facts.DecisionSettled, wanted)


def more_than_was_asked(story: Story) -> int:
    record, settled = _settled(story, lambda event: event.dram > 0)
    return story.alter(record, settled, dram=settled.dram + 1)


def a_miss_called_a_hit(story: Story) -> int:
    record, settled = _settled(story, lambda event: event.miss > 0)
    return story.alter(record, settled, dram=settled.dram + 1, miss=settled.miss - 1)


def a_read_called_a_dram_hit(story: Story) -> int:
    record, settled = _settled(story, lambda event: event.ssd > 0)
    return story.alter(record, settled, dram=settled.dram + 1, ssd=settled.ssd - 1)


def less_than_nothing(story: Story) -> int:
    record, settled = _settled(story, lambda event: event.miss == event.asked)
    return story.alter(record, settled, peer=-1, miss=settled.miss + 1)


def asked_less(story: Story) -> int:
    record, settled = _settled(story, lambda event: event.miss > 0)
    return story.alter(record, settled, asked=settled.asked - 1, miss=settled.miss - 1)


def settled_twice(story: Story) -> int:
    record, settled = story.first(facts.DecisionSettled)
    return story.add(record.seq + 1, settled)


def answered_and_not_settled(story: Story) -> int:
    return story.replace(*story.first(facts.DecisionSettled))


def settled_though_cancelled(story: Story) -> int:
    answered = {event.operation for _, event in story.all(facts.DecisionSettled)}
    record, ended = story.first(
        facts.QueryEnded,
        lambda event: event.end is QueryEnd.CANCELLED and event.operation not in answered,
    )
    _, opened = story.first(facts.QueryOpened, lambda event: event.operation == ended.operation)
    asked = opened.asked_pages
    return story.add(record.seq, facts.DecisionSettled(ended.operation, asked, 0, 0, 0, asked))


def settled_for_nobody(story: Story) -> int:
    return story.add(50, facts.DecisionSettled(77 << 32 | 1, 1, 1, 0, 0, 0))


def never_opened(story: Story) -> int:
    record, settled = _settled(story, lambda event: event.dram > 0)
    opening, opened = story.first(facts.QueryOpened, lambda event: event.operation == settled.operation)
    story.replace(opening, opened)
    return record.seq


def a_hit_on_what_no_lookup_finds(story: Story) -> int:
    record, granted = story.first(facts.QueryGranted, lambda event: bool(event.buffers))
    evicted = facts.PagesEvicted(granted.buffers[:4], PageClass.RETAINED, EvictionReason.CAPACITY)
    return story.replace(record, granted, evicted, granted)


def a_cut_forgotten(story: Story) -> int:
    leased = {event.operation: record.seq for record, event in story.all(facts.LeaseGranted)}
    record, cut = story.first(facts.QueryCut, lambda event: event.operation in leased)
    story.replace(record, cut)
    return leased[cut.operation]


# --- the decision ledger: lookups of hints ----------------------------------------------------------


def a_lookup_that_does_not_add_up(story: Story) -> int:
    record, probed = story.first(facts.WarmProbed)
    return story.alter(record, probed, miss=probed.miss + 1)


def a_lookup_forgotten(story: Story) -> int:
    return story.replace(*story.first(facts.WarmProbed))


def a_lookup_for_nobody(story: Story) -> int:
    record, probed = story.first(facts.WarmProbed)
    return story.add(record.seq + 1, msgspec.structs.replace(probed, request="nobody's"))


def a_hint_that_asked_more(story: Story) -> int:
    record, skipped = story.first(facts.HintSkipped)
    return story.alter(record, skipped, asked_pages=skipped.asked_pages + 1)


def a_lookup_that_saw_other_tiers(story: Story) -> int:
    record, _ = story.first(facts.HintAdmitted)
    probed = next(event for event in record.events if isinstance(event, facts.WarmProbed))
    return story.alter(record, probed, dram=probed.dram + 1, ssd=probed.ssd - 1)


LIES: dict[Lie, tuple[str, str]] = {
    credited_twice: ("cohort_ledger", "is restored again"),
    credit_forgotten: ("cohort_ledger", "is named by its first GPU sync, and not restored"),
    restored_and_never_synced: ("cohort_ledger", "is restored, "),
    sync_of_other_pages: ("cohort_ledger", "is restored, "),
    restored_and_never_prepared: ("cohort_ledger", "is restored, and was not prepared"),
    unused_forgotten: ("cohort_ledger", "lets go, and it is not unused"),
    unused_late: ("cohort_ledger", "lets go, and it is not unused"),
    unused_early: ("cohort_ledger", "is unused, its last owner lets go at seq"),
    unused_twice: ("cohort_ledger", "is unused again"),
    unused_for_another_cause: ("cohort_ledger", "is unused because evicted, it should be cleanup"),
    unused_while_still_in_the_index: ("cohort_ledger", "is unused, "),
    unused_after_it_was_restored: ("cohort_ledger", "is unused, and had been restored before"),
    pending_at_the_end_of_its_chain: ("cohort_ledger", "lets go, and it is not unused"),
    landing_not_counted: ("cohort_ledger", "lands, read for a hint, and is not prepared"),
    demand_counted_as_warm: ("cohort_ledger", "is prepared, and no read for a hint lands in it"),
    warm_read_as_demand: ("cohort_ledger", "is submitted as demand, of those who want it the first is warm"),
    more_than_was_asked: ("decision_ledger", "pages, asked were"),
    a_miss_called_a_hit: ("decision_ledger", "settles dram"),
    a_read_called_a_dram_hit: ("decision_ledger", "settles dram"),
    less_than_nothing: ("decision_ledger", "pages, asked were"),
    asked_less: ("decision_ledger", "pages, it was opened for"),
    settled_twice: ("decision_ledger", "is settled again"),
    answered_and_not_settled: ("decision_ledger", ") and not settled"),
    settled_though_cancelled: ("decision_ledger", "is settled by a record that does not answer it"),
    settled_for_nobody: (
        "decision_ledger",
        "demand 77.1 (opened elsewhere) is settled, and was never opened",
    ),
    never_opened: ("decision_ledger", "is settled, and was never opened"),
    a_hit_on_what_no_lookup_finds: ("decision_ledger", "for a DRAM hit, no lookup finds it"),
    a_cut_forgotten: ("restores", "tokens, its part"),
    a_lookup_that_does_not_add_up: ("decision_ledger", "pages, asked were"),
    a_lookup_forgotten: ("decision_ledger", "is not told"),
    a_lookup_for_nobody: ("decision_ledger", "is told, and no hint"),
    a_hint_that_asked_more: ("decision_ledger", "its lookup for"),
    a_lookup_that_saw_other_tiers: ("decision_ledger", "the lookup of the hint for"),
}
