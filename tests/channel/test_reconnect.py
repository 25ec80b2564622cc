"""Managers come and go behind one path; the client follows, and nothing old is taken for something new."""

import itertools
import time
from pathlib import Path

import pytest

from orbitkv.adapters.client import CacheManagerClient
from orbitkv.adapters.client_errors import ConnectionLost, ManagerUnavailable, OtherIncarnation, SaveGivenUp
from orbitkv.events.outcomes import Refusal, SyncOutcome
from orbitkv.io import wire
from orbitkv.io.wire import QueryStatus
from orbitkv.manager.ports import Request
from tests.channel.engine import KEYS, SLOT_BYTES, make_client, part
from tests.channel.stub import StubManager

SYNC = (SyncOutcome.SUCCEEDED, [(0, 1)], 8, 1000, 5)


def _requests(manager: StubManager, kind: type) -> list[Request]:
    return [item for item in manager.seen if isinstance(item, Request) and isinstance(item.message, kind)]


def _retry_now(client: CacheManagerClient) -> None:
    """As if the back-off had run out; tests do not wait for clocks."""
    client._session.retry_now()


def test_old_handles_are_refused_by_name_after_a_restart(socket_path: Path, descriptors: None) -> None:
    with make_client(socket_path) as client:
        with StubManager(socket_path, incarnation=3) as manager:
            client.register()
            manager.resident[KEYS[0]] = 0
            old = client.query("request", 0, [part(KEYS[0])])
        with StubManager(socket_path, incarnation=4) as manager:
            with pytest.raises(OtherIncarnation, match="lease of incarnation 3; this is incarnation 4"):
                client.begin_restore(old.lease)
            with pytest.raises(OtherIncarnation, match="operation of incarnation 3"):
                client.poll(old.operation)
            assert not client.cancel(old.operation)
            assert not client.release(old.lease)
            (registration,) = _requests(manager, wire.RegisterRank)
            assert registration.descriptor >= 0  # with a staging window of its own
            assert client.registration().incarnation == 4
            manager.resident[KEYS[0]] = 0
            assert client.query("request", 0, [part(KEYS[0])]).status is QueryStatus.READY


def test_the_pool_is_mapped_once_for_each_incarnation(socket_path: Path) -> None:
    with make_client(socket_path) as client:
        with StubManager(socket_path, incarnation=3) as manager:
            client.register()
            manager.resident[KEYS[0]] = 0
            first = client.begin_restore(client.query("request", 0, [part(KEYS[0])]).lease)
            manager.call(lambda: manager.channel.close_session(1))
            again = client.begin_restore(client.query("request", 1, [part(KEYS[0])]).lease)
            assert again.pool is first.pool
            manager.pool[0:4] = b"mine"
        with StubManager(socket_path, incarnation=4) as manager:
            manager.resident[KEYS[0]] = 0
            manager.pool[0:4] = b"new."
            later = client.begin_restore(client.query("request", 2, [part(KEYS[0])]).lease)
            assert later.pool is not first.pool
            assert bytes(later.page(0)[:4]) == b"new."
            assert bytes(first.page(0)[:4]) == b"mine"  # still memory, though nobody's any more


def test_a_manager_that_counts_its_incarnations_anew_has_another_pool(socket_path: Path) -> None:
    """Its log was removed, so its number is its predecessor's; its memory is not."""
    with make_client(socket_path) as client:
        for content in (b"mine", b"new."):
            with StubManager(socket_path, incarnation=1) as manager:
                client.register()
                manager.resident[KEYS[0]] = 0
                manager.pool[0:4] = content
                view = client.begin_restore(client.query("request", 0, [part(KEYS[0])]).lease)
                assert bytes(view.page(0)[:4]) == content


def test_a_lost_connection_is_made_anew_without_being_noticed(socket_path: Path, descriptors: None) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        manager.resident[KEYS[0]] = 0
        for session in range(1, 6):
            assert client.query(f"request {session}", 0, [part(KEYS[0])]).status is QueryStatus.READY
            manager.call(lambda: manager.channel.close_session(client.registration().session))
        assert client.tend() is False
        assert client.tend() is True


def test_what_may_have_happened_is_not_done_twice(socket_path: Path) -> None:
    """A query may be asked again; beginning a restore or a save may not, once it was sent."""
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        manager.resident[KEYS[0]] = 0
        lease = client.query("request", 0, [part(KEYS[0])]).lease

        def hang_up(request: Request) -> bool | None:
            if not isinstance(request.message, wire.BeginRestore | wire.BeginSave):
                return None
            manager.channel.close_session(request.session)
            return True

        manager.hook = hang_up
        with pytest.raises(ConnectionLost, match="The next call reconnects"):
            client.begin_restore(lease)
        with pytest.raises(ConnectionLost):
            client.begin_save(0, KEYS)
        assert len(_requests(manager, wire.BeginRestore)) == 1
        assert len(_requests(manager, wire.BeginSave)) == 1


def test_calls_fail_at_once_while_there_is_no_manager_and_go_on_after(socket_path: Path) -> None:
    with make_client(socket_path) as client:
        with StubManager(socket_path):
            client.register()
        started = time.monotonic()
        for _ in range(100):
            with pytest.raises(ManagerUnavailable, match="orbitkv serve"):
                client.query("request", 0, [part(KEYS[0])])
        assert time.monotonic() - started < 1
        with StubManager(socket_path, incarnation=2):
            _retry_now(client)
            assert client.query("request", 0, [part(KEYS[0])]).status is QueryStatus.MISSED


def test_attempts_to_connect_grow_rarer(socket_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("orbitkv.adapters.session.time.monotonic", lambda: now)
    attempts: list[float] = []

    def connect(path: str, timeout_s: float) -> None:
        attempts.append(now)
        raise ManagerUnavailable("There is none. Start one.")

    monkeypatch.setattr("orbitkv.adapters.session.Connection", connect)
    client = make_client(socket_path)
    for _ in range(3000):
        client.tend()
        now += 0.01
    gaps = [round(later - earlier, 2) for earlier, later in itertools.pairwise(attempts)]
    assert gaps[:7] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2], abs=0.02)
    assert gaps[7:] == pytest.approx([5.0] * len(gaps[7:]), abs=0.02)


# --- syncs ------------------------------------------------------------------------------------------------


def _restoring(manager: StubManager, client: CacheManagerClient) -> bytes:
    client.register()
    manager.resident[KEYS[0]] = 0
    lease = client.query("request", 0, [part(KEYS[0])]).lease
    client.begin_restore(lease)
    return lease


def test_a_sync_whose_acknowledgement_was_lost_is_sent_again_and_counts_once(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        lease = _restoring(manager, client)
        dropped = False

        def lose_the_answer(request: Request) -> bool | None:
            nonlocal dropped
            if isinstance(request.message, wire.ReportSync) and not dropped:
                dropped = True
                manager._reply(request)  # it took effect
                manager.channel.close_session(request.session)
                return True
            return None

        manager.hook = lose_the_answer
        receipt = client.report_sync(lease, *SYNC)
        assert receipt.acknowledged
        assert receipt.repeated
        assert [request.session for request in _requests(manager, wire.ReportSync)] == [1, 2]
        (second,) = _requests(manager, wire.RegisterRank)[1:]
        # The rank is registered again before its sync is.
        assert manager.seen.index(second) < manager.seen.index(_requests(manager, wire.ReportSync)[1])


def test_syncs_wait_for_the_manager_in_order(socket_path: Path) -> None:
    with make_client(socket_path) as client:
        with StubManager(socket_path, incarnation=3) as manager:
            lease = _restoring(manager, client)
        for layers in (1, 2):
            receipt = client.report_sync(lease, SyncOutcome.SUCCEEDED, [(0, 1)], layers, 0, 0)
            assert not receipt.acknowledged
        # The new manager holds nothing for the old lease, says so, and that is the end of it.
        with StubManager(socket_path, incarnation=4) as manager:
            _retry_now(client)
            assert client.tend()
            assert [request.message.layers for request in _requests(manager, wire.ReportSync)] == [1, 2]  # type: ignore[attr-defined]  # filtered by kind
            assert client.tend()
            assert len(_requests(manager, wire.ReportSync)) == 2
        late = client.report_sync(lease, *SYNC)
        assert not late.acknowledged


def test_a_sync_that_is_refused_for_now_is_kept(socket_path: Path) -> None:
    """After a restart the other ranks may not have come back yet: then the instance is not served."""
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        lease = _restoring(manager, client)
        refusal = Refusal.NOT_REGISTERED

        def not_yet(request: Request) -> wire.Reply | None:
            if isinstance(request.message, wire.ReportSync):
                return wire.ErrorReply(request.message.call, refusal, refusal.name, "Not yet.", True)
            return None

        manager.hook = not_yet
        assert not client.report_sync(lease, *SYNC).acknowledged
        manager.hook = lambda request: None
        assert client.tend()
        assert not client._session.unreported


def test_a_sync_is_never_an_error_for_the_engine(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path, timeout_s=0.1) as client:
        lease = _restoring(manager, client)
        manager.hook = lambda request: True if isinstance(request.message, wire.ReportSync) else None
        assert not client.report_sync(lease, *SYNC).acknowledged
        manager.hook = lambda request: None
        assert client.tend()
        assert len(_requests(manager, wire.ReportSync)) == 2


# --- saves ------------------------------------------------------------------------------------------------


def test_a_save_does_not_outlive_its_connection(socket_path: Path, descriptors: None) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        plan = client.begin_save(0, KEYS[:2])
        old = plan.wanted[0].slot
        manager.call(lambda: manager.channel.close_session(1))
        assert not client.tend()
        with pytest.raises(SaveGivenUp, match="Offer the pages again"):
            client.commit_save(plan)
        client.abort_save(plan)
        # The manager may still be reading the old window: what follows must go to other memory.
        fresh = client.begin_save(0, KEYS[:4])
        assert len(fresh.wanted) == 4
        old[:] = b"\xee" * SLOT_BYTES
        for wanted in fresh.wanted:
            assert bytes(wanted.slot[:4]) == b"\0\0\0\0"
            wanted.slot[:] = b"\x11" * SLOT_BYTES
        client.commit_save(fresh)
        assert client.wait_saved(fresh, 5)
        offset = manager.resident[KEYS[0]]
        assert manager.pool[offset : offset + SLOT_BYTES] == b"\x11" * SLOT_BYTES
        old.release()
