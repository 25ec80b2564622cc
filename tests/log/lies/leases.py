"""Lies about leases, the copies that ranks make of them, and what they report of these."""

import msgspec

from orbitkv.events import facts
from orbitkv.events.outcomes import LeaseEnd, Share
from orbitkv.events.record import Record
from tests.log.lies.story import Lie, Story

# --- leases ---------------------------------------------------------------------------------------------


def _kept(story: Story) -> tuple[Record, facts.LeaseGranted]:
    """A lease that is held for a while, and of which a rank begins to copy."""
    begun = {event.lease for _, event in story.all(facts.RestoreBegun)}
    return story.first(facts.LeaseGranted, lambda event: event.lease in begun)


def two_leases_for_one_demand(story: Story) -> int:
    record, granted = _kept(story)
    return story.add(record.seq, msgspec.structs.replace(granted, lease=granted.lease + 900))


def lease_number_falls(story: Story) -> int:
    record, granted = story.first(facts.LeaseGranted, lambda event: event.lease == 2)
    return story.alter(record, granted, lease=0)


def lease_ended_twice(story: Story) -> int:
    record, ended = story.first(facts.LeaseEnded)
    return story.add(record.seq + 1, ended)


def lease_of_nobody_ended(story: Story) -> int:
    record, _ = story.first(facts.LeaseGranted)
    return story.add(record.seq, facts.LeaseEnded(9000, LeaseEnd.EXPIRED))


def released_before_its_end(story: Story) -> int:
    record, granted = _kept(story)
    return story.add(record.seq, facts.LeaseReleased(granted.lease))


def released_while_copied(story: Story) -> int:
    record, begun = story.first(facts.RestoreBegun)
    lease = begun.lease
    return story.add(record.seq, facts.LeaseEnded(lease, LeaseEnd.EXPIRED), facts.LeaseReleased(lease))


def release_forgotten(story: Story) -> int:
    return story.replace(*story.first(facts.LeaseReleased))


def begun_twice(story: Story) -> int:
    record, begun = story.first(facts.RestoreBegun)
    return story.add(record.seq, begun)


def begun_after_its_end(story: Story) -> int:
    record, ended = story.first(facts.LeaseEnded, lambda event: event.end is LeaseEnd.CANCELLED)
    begun = {event.lease for _, event in story.all(facts.RestoreBegun)}
    _, session = story.first(facts.SessionOpened)
    if ended.lease in begun:
        raise StopIteration
    return story.add(record.seq, facts.RestoreBegun(ended.lease, session.session, 0))


def begun_by_a_rank_too_many(story: Story) -> int:
    record, begun = story.first(facts.RestoreBegun)
    return story.alter(record, begun, rank=7)


def share_ended_twice(story: Story) -> int:
    record, ended = story.first(facts.ShareEnded, lambda event: event.share is Share.SYNCED)
    sync = next(event for event in record.events if isinstance(event, facts.GpuSynced))
    return story.add(record.seq, msgspec.structs.replace(sync, ranges=((0, 1),)), ended)


def consumed_by_one_of_two(story: Story) -> int:
    for record, ended in story.all(facts.ShareEnded):
        if ended.share is Share.SYNCED and not any(isinstance(e, facts.LeaseEnded) for e in record.events):
            return story.add(record.seq, facts.LeaseEnded(ended.lease, LeaseEnd.CONSUMED))
    raise StopIteration


def consumed_and_goes_on(story: Story) -> int:
    record, ended = story.first(facts.LeaseEnded, lambda event: event.end is LeaseEnd.CONSUMED)
    return story.replace(record, ended)


# --- copies ---------------------------------------------------------------------------------------------


def _share(story: Story, share: Share, kind: type[facts.Event]) -> tuple[Record, facts.ShareEnded]:
    """A share that ends so, in a record with a fact of that kind."""
    for record, ended in story.all(facts.ShareEnded):
        if ended.share is share and any(isinstance(event, kind) for event in record.events):
            return record, ended
    raise StopIteration


def synced_and_still_held(story: Story) -> int:
    return story.replace(*_share(story, Share.SYNCED, facts.GpuSynced))


def let_go_without_a_sync(story: Story) -> int:
    record, _ = _share(story, Share.SYNCED, facts.GpuSynced)
    sync = next(event for event in record.events if isinstance(event, facts.GpuSynced))
    return story.replace(record, sync)


def session_closed_and_copy_forgotten(story: Story) -> int:
    return story.replace(*_share(story, Share.STRANDED, facts.SessionClosed))


def process_gone_and_copy_held(story: Story) -> int:
    return story.replace(*_share(story, Share.LOST, facts.ProcessReleased))


def stranded_for_no_reason(story: Story) -> int:
    record, begun = story.first(facts.RestoreBegun)
    return story.add(record.seq, facts.ShareEnded(begun.lease, begun.rank, Share.STRANDED))


def lost_by_a_timeout(story: Story) -> int:
    record, begun = story.first(facts.RestoreBegun)
    return story.add(record.seq, facts.ShareEnded(begun.lease, begun.rank, Share.LOST))


def failed_copy_called_stopped(story: Story) -> int:
    record, failed = story.first(facts.SyncFailed, lambda event: not event.stopped)
    return story.alter(record, failed, stopped=True)


# --- restores -------------------------------------------------------------------------------------------


def in_time_called_late(story: Story) -> int:
    record, synced = story.first(facts.GpuSynced, lambda event: not event.late)
    return story.alter(record, synced, late=True)


def late_called_in_time(story: Story) -> int:
    record, synced = story.first(facts.GpuSynced, lambda event: event.late)
    return story.alter(record, synced, late=False)


def synced_beyond_the_lease(story: Story) -> int:
    record, synced = story.first(facts.GpuSynced)
    return story.alter(record, synced, ranges=(*synced.ranges, (500, 501)))


def one_page_synced_twice(story: Story) -> int:
    record, synced = story.first(facts.GpuSynced)
    return story.alter(record, synced, ranges=(*synced.ranges, (0, 1)))


def copied_more_than_there_is(story: Story) -> int:
    record, synced = story.first(facts.GpuSynced)
    return story.alter(record, synced, copied_bytes=1 << 40)


def another_boundary(story: Story) -> int:
    record, granted = story.first(facts.LeaseGranted)
    return story.alter(record, granted, boundary_tokens=granted.boundary_tokens + 64)


def synced_without_beginning(story: Story) -> int:
    record, synced = story.first(facts.GpuSynced)
    other, begun = story.first(
        facts.RestoreBegun, lambda event: (event.lease, event.rank) == (synced.lease, synced.rank)
    )
    story.replace(other, begun)
    return record.seq


LIES: dict[Lie, tuple[str, str]] = {
    two_leases_for_one_demand: ("leases", "and has one already"),
    lease_number_falls: ("leases", "lease 0 is granted after lease 1"),
    lease_ended_twice: ("leases", "ends again"),
    lease_of_nobody_ended: ("leases", "lease 9000 ends, and was never granted"),
    released_before_its_end: ("leases", "is released, and has not ended"),
    released_while_copied: ("leases", "is released, and "),
    release_forgotten: ("leases", "any more, and it is not released"),
    begun_twice: ("leases", "again"),
    begun_after_its_end: ("leases", "which has ended"),
    begun_by_a_rank_too_many: ("leases", "its instance has"),
    share_ended_twice: ("leases", "ends (synced), and was synced before"),
    consumed_by_one_of_two: ("leases", "is consumed, 1 of 2 ranks"),
    consumed_and_goes_on: ("leases", "and it has not ended"),
    synced_and_still_held: ("copy_holds", "and its share is not synced"),
    let_go_without_a_sync: ("copy_holds", "and no sync of it is reported"),
    session_closed_and_copy_forgotten: ("copy_holds", "and nothing becomes of its copy"),
    process_gone_and_copy_held: ("copy_holds", "still holds"),
    stranded_for_no_reason: ("copy_holds", "neither has its session closed"),
    lost_by_a_timeout: ("copy_holds", "its copy was not reported to have ended"),
    failed_copy_called_stopped: ("copy_holds", "is stranded, and neither"),
    in_time_called_late: ("restores", "late, which had not ended"),
    late_called_in_time: ("restores", "in time, which had ended"),
    synced_beyond_the_lease: ("restores", "syncs pages 500 to 501 of lease"),
    one_page_synced_twice: ("restores", "twice"),
    copied_more_than_there_is: ("restores", "its slices of these pages have"),
    another_boundary: ("restores", "tokens, its part 0 at"),
    synced_without_beginning: ("restores", "and did not begin to copy it"),
}
