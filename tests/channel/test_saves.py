"""Staging slots are credits: taken when a page is wanted, back when the manager has fetched it."""

import itertools
from pathlib import Path

import pytest

from orbitkv.adapters.client_errors import LimitExceeded, RequestRefused, SaveGivenUp
from orbitkv.adapters.staging import StagingWindow
from orbitkv.events.geometry import GroupGeometry, SliceGeometry
from orbitkv.events.outcomes import CopyOutcome, Refusal, SaveDrop
from orbitkv.io import wire
from orbitkv.manager.ports import Request
from tests.channel.engine import GROUP, KEYS, SLICE_BYTES, SLOT_BYTES, make_client, part
from tests.channel.stub import StubManager


def _messages(manager: StubManager, kind: type) -> list[wire.Request]:
    return [
        item.message  # type: ignore[misc]  # the port says object
        for item in manager.seen
        if isinstance(item, Request) and isinstance(item.message, kind)
    ]


def test_a_saved_page_comes_back_byte_for_byte(socket_path: Path, descriptors: None) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        manager.resident[KEYS[1]] = 3 << 20
        plan = client.begin_save(0, KEYS[:3])
        assert [wanted.position for wanted in plan.wanted] == [0, 2]
        for position, slot in plan.wanted:
            assert len(slot) == SLOT_BYTES
            slot[:SLICE_BYTES] = bytes([1 + position]) * SLICE_BYTES
            slot[8192 : 8192 + SLICE_BYTES] = bytes([101 + position]) * SLICE_BYTES
        result = client.commit_save(plan)
        assert (result.accepted_pages, result.given_up_pages) == (2, 0)
        assert client.wait_saved(plan, 5)
        answer = client.query("request", 0, [part(KEYS[0], KEYS[2])])
        view = client.begin_restore(answer.lease)
        for page, position in enumerate((0, 2)):
            assert view.page(page) == bytes([1 + position]) * SLICE_BYTES
            assert view.page(page, slice=1) == bytes([101 + position]) * SLICE_BYTES
        del view, slot, plan


def test_credits_return_when_the_manager_has_fetched(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        manager.hold_copies = True
        assert client.staging_credits == {0: 4}
        first = client.begin_save(0, KEYS[:3])
        assert client.staging_credits == {0: 1}
        client.commit_save(first)
        assert client.staging_credits == {0: 1}  # the manager may be reading them
        second = client.begin_save(0, KEYS[3:6])
        assert len(second.wanted) == 1
        assert client.staging_credits == {0: 0}
        manager.fetch()
        client.tend()
        assert client.staging_credits == {0: 3}
        assert first.sealed
        client.abort_save(second)
        assert client.staging_credits == {0: 4}


def test_pages_without_a_slot_are_dropped_counted_and_told_once(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        manager.hold_copies = True
        first = client.begin_save(0, KEYS[:6])
        assert (len(first.wanted), first.uncredited_pages) == (4, 0)  # the manager heard: four at most
        client.commit_save(first)
        second = client.begin_save(0, KEYS[6:9])
        assert (len(second.wanted), second.uncredited_pages) == (0, 3)
        assert client.commit_save(second).accepted_pages == 0
        assert len(_messages(manager, wire.BeginSave)) == 1  # nothing was asked for what has no place
        manager.fetch()
        client.begin_save(0, KEYS[9:10])
        client.begin_save(0, KEYS[10:11])
        told = [
            (message.credit_pages, message.uncredited_pages)
            for message in _messages(manager, wire.BeginSave)
            if isinstance(message, wire.BeginSave)
        ]
        assert told == [(4, 0), (4, 3), (3, 0)]


def test_a_manager_that_wants_more_than_there_is_room_for_is_told(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()

        def greedy(request: Request) -> wire.Reply | None:
            if not isinstance(request.message, wire.BeginSave):
                return None
            numbers = b"".join(n.to_bytes(4, "little") for n in range(6))
            wide = b"".join(n.to_bytes(8, "little") for n in range(6))
            dropped = ((int(SaveDrop.RESIDENT), 10),)
            return wire.SaveBegun(request.message.call, numbers, numbers, wide, dropped)

        manager.hook = greedy
        plan = client.begin_save(0, KEYS)
        assert [wanted.position for wanted in plan.wanted] == [0, 1, 2, 3]
        assert plan.uncredited_pages == 2
        assert plan.dropped == {SaveDrop.RESIDENT: 10}
        (abort,) = _messages(manager, wire.AbortSave)
        assert isinstance(abort, wire.AbortSave)
        assert abort.buffers == b"\x04\0\0\0\x05\0\0\0"


def test_a_buffer_that_is_given_out_again_leaves_its_older_plan(socket_path: Path) -> None:
    """The manager gave the older save up (300 s went by): its plan must not commit into another page."""
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()

        def same_buffer(request: Request) -> wire.Reply | None:
            if not isinstance(request.message, wire.BeginSave):
                return None
            return wire.SaveBegun(request.message.call, b"\0" * 4, b"\x05\0\0\0", b"\x01" + b"\0" * 7)

        manager.hook = same_buffer
        older, newer = client.begin_save(0, KEYS[:1]), client.begin_save(0, KEYS[1:2])
        assert client.staging_credits == {0: 3}
        assert client.commit_save(older).accepted_pages == 0
        manager._wanted[5] = KEYS[1]
        assert client.commit_save(newer).accepted_pages == 1
        assert client.wait_saved(newer, 5)
        assert client.staging_credits == {0: 4}


def test_what_the_manager_gave_up_is_said_and_its_slots_are_free(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()

        def half(request: Request) -> wire.Reply | bool | None:
            if isinstance(request.message, wire.CommitSave):
                buffers = request.message.buffers[:4]
                manager.channel.send(request.session, wire.SaveCommitted(request.message.call, buffers))
                gone = bytes([CopyOutcome.SOURCE_GONE])
                manager.channel.send(request.session, wire.SlicesCopied(buffers, gone))
                manager.hold_copies = True
                return True
            return None

        manager.hook = half
        plan = client.begin_save(0, KEYS[:2])
        result = client.commit_save(plan)
        assert (result.accepted_pages, result.given_up_pages) == (1, 1)
        assert client.wait_saved(plan, 5)  # nothing of it is under way any more
        assert client.staging_credits == {0: 4}


def test_a_refused_commit_frees_its_slots(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()

        def refuse(request: Request) -> wire.Reply | None:
            if isinstance(request.message, wire.CommitSave):
                manager.hold_copies = True
                return wire.ErrorReply(request.message.call, Refusal.RETIRED, "RETIRED", "Ended.", False)
            return None

        manager.hook = refuse
        plan = client.begin_save(0, KEYS[:2])
        with pytest.raises(RequestRefused):
            client.commit_save(plan)
        assert client.staging_credits == {0: 4}
        with pytest.raises(SaveGivenUp):
            client.commit_save(plan)


def test_large_saves_are_offered_in_pieces(socket_path: Path) -> None:
    keys = [number.to_bytes(8, "little") for number in range(10_000)]
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        manager.resident = dict.fromkeys(keys, 0)
        for key in (keys[1], keys[5000], keys[9999]):
            del manager.resident[key]
        plan = client.begin_save(0, keys)
        assert [wanted.position for wanted in plan.wanted] == [1, 5000, 9999]
        assert len(_messages(manager, wire.BeginSave)) == 3


def test_waiting_for_a_save_ends(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        manager.hold_copies = True
        plan = client.begin_save(0, KEYS[:2])
        client.commit_save(plan)
        assert not client.wait_saved(plan, 0.05)
        manager.fetch()
        assert client.wait_saved(plan, 5)


def test_without_a_window_there_is_nothing_to_save_through(socket_path: Path) -> None:
    with StubManager(socket_path), make_client(socket_path, staging_bytes=0) as client:
        client.register()
        with pytest.raises(LimitExceeded, match="staging_bytes"):
            client.begin_save(0, KEYS)


# --- the window itself --------------------------------------------------------------------------------------

SMALL = GroupGeometry(1, 64, (SliceGeometry("state", 100),))


def test_groups_share_a_window_without_starving_each_other(descriptors: None) -> None:
    window = StagingWindow((GROUP, SMALL), 2 * 4 * SLOT_BYTES)
    assert window.slots == {0: 4, 1: 16}
    offsets = {window.take(0) for _ in range(4)} | {window.take(1) for _ in range(16)}
    assert len(offsets) == 20
    assert window.credits(0) == window.credits(1) == window.credits(7) == 0
    with pytest.raises(IndexError):
        window.take(0)
    window.close()
    window.close()


def test_slots_do_not_overlap_and_lie_within() -> None:
    window = StagingWindow((GROUP, SMALL), 8 * SLOT_BYTES)
    taken = []
    for group, size in ((0, SLOT_BYTES), (1, 4096)):
        while window.credits(group):
            offset = window.take(group)
            assert len(window.slot(group, offset)) == size
            taken.append((offset, offset + size))
    taken.sort()
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(taken))
    assert taken[-1][1] <= window.staging_bytes
    window.close()


def test_a_window_too_small_for_one_page_says_how_much_it_takes() -> None:
    with pytest.raises(LimitExceeded, match=f"Set staging_bytes to {2 * SLOT_BYTES} at least"):
        StagingWindow((GROUP, SMALL), 2 * SLOT_BYTES - 4096)
