"""The client against a manager that answers as it should, and as it should not."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from orbitkv.adapters.client import CacheManagerClient
from orbitkv.adapters.client_errors import (
    CallTimedOut,
    ChannelPoisoned,
    ClientClosed,
    HandleRefused,
    LimitExceeded,
    ManagerUnavailable,
    RequestRefused,
)
from orbitkv.adapters.operator import OperatorClient
from orbitkv.events.outcomes import Refusal, SyncOutcome
from orbitkv.io import wire
from orbitkv.io.wire import QueryPart, QueryStatus
from orbitkv.manager.ports import Request
from tests.channel.engine import GROUP, KEYS, NAMESPACE, SLICE_BYTES, make_client, part
from tests.channel.stub import POOL_BYTES, StubManager


def _messages(manager: StubManager, kind: type) -> list[wire.Request]:
    return [
        item.message  # type: ignore[misc]  # the port says object
        for item in manager.seen
        if isinstance(item, Request) and isinstance(item.message, kind)
    ]


def test_registration_says_who_this_rank_is(socket_path: Path, descriptors: None) -> None:
    with StubManager(socket_path, incarnation=3) as manager, make_client(socket_path) as client:
        registration = client.register()
        assert registration.sealed
        assert (registration.session, registration.incarnation) == (1, 3)
        assert registration.footprints == {0: 2 * 8192}
        (message,) = _messages(manager, wire.RegisterRank)
        assert isinstance(message, wire.RegisterRank)
        assert (message.instance, message.rank, message.world_size) == ("engine", 0, 1)
        assert (message.namespace_digest, message.namespace_document) == (
            NAMESPACE.digest,
            NAMESPACE.document,
        )
        assert message.groups == (GROUP,)
        assert client.wait_until_sealed(1) == registration


def test_a_hit_is_read_from_the_pool_and_reported(socket_path: Path, descriptors: None) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        for number, key in enumerate(KEYS[:3]):
            offset = number * 20480
            manager.resident[key] = offset
            manager.pool[offset : offset + SLICE_BYTES] = bytes([10 + number]) * SLICE_BYTES
            manager.pool[offset + 8192 : offset + 8192 + SLICE_BYTES] = bytes([20 + number]) * SLICE_BYTES
        answer = client.query("request", 0, [part(*KEYS[:4])])
        assert answer.status is QueryStatus.READY
        assert (answer.boundary_tokens, answer.hits) == (192, (3,))
        assert answer.offsets.tolist() == [0, 20480, 40960]
        view = client.begin_restore(answer.lease)
        assert len(view) == 3
        for page in range(3):
            assert view.page(page) == bytes([10 + page]) * SLICE_BYTES
            assert view.page(page, slice=1) == bytes([20 + page]) * SLICE_BYTES
            assert not view.array(page).flags.writeable
        offsets, slice_bytes = view.slice_offsets(0, slice=1)
        assert (offsets.tolist(), slice_bytes) == ([8192, 28672, 49152], SLICE_BYTES)
        assert view.pool.address % (2 << 20) == 0
        receipt = client.report_sync(answer.lease, SyncOutcome.SUCCEEDED, [(0, 3)], 8, 30000, 123)
        assert receipt.acknowledged
        assert not receipt.repeated
        with pytest.raises(IndexError):
            view.page(3)
        del view


def test_the_pool_cannot_be_written_through_a_view(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        manager.resident[KEYS[0]] = 0
        view = client.begin_restore(client.query("request", 0, [part(KEYS[0])]).lease)
        with pytest.raises(TypeError):
            view.page(0)[0] = 1
        with pytest.raises(ValueError, match="read-only"):
            view.array(0)[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            view.array(0).flags.writeable = True


def test_every_rank_may_ask_and_scheduler_handles_work_elsewhere(socket_path: Path) -> None:
    """vLLM: the scheduler asks, workers restore. SGLang: every rank asks. Both end at one lease."""
    with StubManager(socket_path) as manager:
        manager.resident[KEYS[0]] = 4096
        scheduler, worker = (
            make_client(socket_path, rank=-1, staging_bytes=0, groups=()),
            make_client(socket_path),
        )
        for client in (scheduler, worker):
            client.register()
        asked = [client.query("request", 1, [part(KEYS[0])]) for client in (scheduler, worker)]
        assert asked[0].lease == asked[1].lease != b""
        assert asked[0].operation == asked[1].operation
        view = worker.begin_restore(asked[0].lease)
        assert view.offsets.tolist() == [4096]
        scheduler.close()
        worker.close()


def test_a_miss_and_a_busy_manager_are_answers(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        assert client.query("request", 0, [part(*KEYS)]).status is QueryStatus.MISSED

        def busy(request: Request) -> wire.Reply | None:
            if isinstance(request.message, wire.SubmitQuery):
                return wire.ErrorReply(request.message.call, Refusal.BUSY, "BUSY", "Full.", True)
            return None

        manager.hook = busy
        assert client.query("request", 1, [part(*KEYS)]).status is QueryStatus.BUSY


def test_polling_a_waiting_operation_is_a_memory_read(
    socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitkv.adapters.client.BOARD_REFRESH_SECONDS", 3600)
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        manager.resident[KEYS[0]] = 0
        operation = 1 << 32 | 1
        manager.loading.add(operation)
        answer = client.query("request", 0, [part(KEYS[0])])
        assert answer.status is QueryStatus.LOADING
        for _ in range(1000):
            assert client.poll(answer.operation) is answer
        assert _messages(manager, wire.PollQuery) == []
        manager.loading.discard(operation)
        manager.call(lambda: manager.board.moved(operation))
        ready = client.poll(answer.operation)
        assert ready.status is QueryStatus.READY
        assert len(_messages(manager, wire.PollQuery)) == 1
        assert client.poll(answer.operation) == ready  # no longer on the board: asked each time
        assert len(_messages(manager, wire.PollQuery)) == 2


def test_the_board_alone_is_not_believed_for_long(socket_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        manager.loading.add(1 << 32 | 1)
        answer = client.query("request", 0, [part(KEYS[0])])
        now = time.monotonic()
        monkeypatch.setattr("orbitkv.adapters.client.time.monotonic", lambda: now + 0.5)
        client.poll(answer.operation)
        assert len(_messages(manager, wire.PollQuery)) == 1


def test_cancel_and_release_twice_are_harmless(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        manager.resident[KEYS[0]] = 0
        answer = client.query("request", 0, [part(KEYS[0])])
        assert client.cancel(answer.operation)
        assert client.release(answer.lease)

        def retired(request: Request) -> wire.Reply | None:
            if isinstance(request.message, wire.CancelQuery | wire.ReleaseLease | wire.PollQuery):
                return wire.ErrorReply(request.message.call, Refusal.RETIRED, "RETIRED", "Ended.", False)
            return None

        manager.hook = retired
        assert not client.cancel(answer.operation)
        assert not client.release(answer.lease)
        assert client.poll(answer.operation).status is QueryStatus.RETIRED


def test_forged_and_mistaken_handles_are_refused(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        manager.resident[KEYS[0]] = 0
        answer = client.query("request", 0, [part(KEYS[0])])
        forged = answer.lease[:-1] + bytes([answer.lease[-1] ^ 1])
        for handle in (forged, answer.operation):
            with pytest.raises(HandleRefused, match="never gave out"):
                client.begin_restore(handle)


def test_stages_are_told_one_way(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        for stage in ("queued", "first_use"):
            assert client.report_stage("request", 0, stage, 1, 2)
        client.registration()
        client.query("request", 0, [part(KEYS[0])])  # in order behind them
        assert [
            (message.stage, message.at_unix_ns, message.monotonic_ns)
            for message in _messages(manager, wire.ReportStage)
            if isinstance(message, wire.ReportStage)
        ] == [("queued", 1, 2), ("first_use", 1, 2)]


def test_an_operator_is_answered_without_registering(socket_path: Path, descriptors: None) -> None:
    with StubManager(socket_path) as manager:
        operator = OperatorClient(socket_path)
        assert operator.status() == "{}"
        assert operator.drop_dram() == 7
        operator.release_process(5)
        assert _messages(manager, wire.ReleaseProcess) == [wire.ReleaseProcess(3, 5)]
        assert _messages(manager, wire.RegisterRank) == []
        operator.close()
        operator.close()


# --- trouble ------------------------------------------------------------------------------------------------


def test_every_call_is_bounded_in_time(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path, timeout_s=0.2) as client:
        client.register()
        manager.resident[KEYS[0]] = 0
        silent = True
        manager.hook = lambda request: True if silent else None
        started = time.monotonic()
        with pytest.raises(CallTimedOut, match=r"did not answer within 0\.2 s"):
            client.query("request", 0, [part(KEYS[0])])
        assert 0.15 < time.monotonic() - started < 2
        silent = False
        # The late answer to the first question is not taken for that to the second.
        call = 2
        manager.call(lambda: manager.channel.send(1, wire.QueryAnswered(call, QueryStatus.MISSED)))
        assert client.query("request", 0, [part(KEYS[0])]).status is QueryStatus.READY


def test_notices_do_not_stretch_a_call(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path, timeout_s=0.2) as client:
        client.register()

        def chatter(request: Request) -> wire.Reply | bool | None:
            if not isinstance(request.message, wire.SubmitQuery):
                return None
            for _ in range(200):
                manager.channel.send(request.session, wire.PagesSealed(b""))
            return True

        manager.hook = chatter
        started = time.monotonic()
        with pytest.raises(CallTimedOut):
            client.query("request", 0, [part(KEYS[0])])
        assert time.monotonic() - started < 2


def _query(client: CacheManagerClient, lease: bytes) -> object:
    return client.query("another request", 0, [part(KEYS[0])])


def _restore(client: CacheManagerClient, lease: bytes) -> object:
    return client.begin_restore(lease)


def _save(client: CacheManagerClient, lease: bytes) -> object:
    return client.begin_save(0, KEYS[1:3])


END_OF_POOL = POOL_BYTES.to_bytes(8, "little")


@pytest.mark.parametrize(
    ("act", "lie"),
    [
        # another kind than was asked for
        (_query, lambda call: wire.Done(call)),
        # of a call that was not made
        (_query, lambda call: wire.QueryAnswered(call + 1, QueryStatus.MISSED)),
        (_query, lambda call: wire.QueryAnswered(-1, QueryStatus.MISSED)),
        # contrary in itself
        (_query, lambda call: wire.QueryAnswered(call, QueryStatus.READY, hits=(2,), offsets=b"\0" * 8)),
        # the manager's last word
        (_query, lambda call: wire.ErrorReply(0, 104, "POISONED", "Out of order. Reconnect required.", True)),
        # beyond the pool
        (_restore, lambda call: wire.RestoreBegun(call, ((0, 1),), END_OF_POOL)),
        # a page that was not offered
        (_save, lambda call: wire.SaveBegun(call, b"\x02\0\0\0", b"\x01\0\0\0", b"\0" * 8)),
        (_save, lambda call: wire.SaveBegun(call, b"\0" * 4, b"\0" * 8, b"\0" * 8)),
    ],
)
def test_a_malformed_answer_poisons_and_is_never_taken_for_one(
    socket_path: Path,
    act: Callable[[CacheManagerClient, bytes], object],
    lie: Callable[[int], wire.Reply],
    descriptors: None,
) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        manager.resident[KEYS[0]] = 0
        lease = client.query("request", 0, [part(KEYS[0])]).lease
        asked = wire.SubmitQuery | wire.BeginRestore | wire.BeginSave
        manager.hook = lambda request: (
            lie(request.message.call) if isinstance(request.message, asked) else None
        )
        with pytest.raises(ChannelPoisoned, match="Reconnect required"):
            act(client, lease)
        manager.hook = lambda request: None
        assert client.query("request", 2, [part(KEYS[0])]).status is QueryStatus.READY
        assert client.registration().session > 1


def test_a_refusal_keeps_its_name_number_and_hope(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        sentence = "Not sealed yet. Rank 1 is missing. Start it."

        def refuse(request: Request) -> wire.Reply | None:
            if isinstance(request.message, wire.SubmitQuery):
                return wire.ErrorReply(
                    request.message.call, Refusal.NOT_REGISTERED, "NOT_REGISTERED", sentence, True
                )
            return None

        manager.hook = refuse
        with pytest.raises(RequestRefused, match=sentence) as caught:
            client.query("request", 0, [part(KEYS[0])])
        assert (caught.value.name, caught.value.refusal) == ("NOT_REGISTERED", Refusal.NOT_REGISTERED)
        assert caught.value.retry_helps


def test_an_engine_mistake_costs_an_error_not_the_connection(socket_path: Path) -> None:
    with StubManager(socket_path), make_client(socket_path) as client:
        client.register()
        session = client.registration().session
        mistakes: list[Callable[[], object]] = [
            lambda: client.query("", 0, [part(KEYS[0])]),
            lambda: client.query("r" * 513, 0, [part(KEYS[0])]),
            lambda: client.query("r", 0, []),
            lambda: client.query("r", 0, [part(b"")]),
            lambda: client.query("r", 0, [part(b"k" * 33)]),
            lambda: client.query("r", 0, [part("hex")]),  # type: ignore[arg-type]  # the mistake in question
            lambda: client.query("r", 0, [QueryPart(0, 64, 0, [KEYS[0]] * 25_000)]),
            lambda: client.begin_save(0, [b""]),
            lambda: client.begin_save(9, KEYS),
        ]
        for mistake in mistakes:
            with pytest.raises(LimitExceeded):
                mistake()
        assert client.query("r", 0, [part(KEYS[0])]).status is QueryStatus.MISSED
        assert client.registration().session == session


@pytest.mark.parametrize(
    "counts", [(4096,), (4097,), (20_480,), (3000, 3000), (0, 9000, 1), (4096, 4096, 4096)]
)
def test_long_queries_arrive_whole(socket_path: Path, counts: tuple[int, ...]) -> None:
    keys = [number.to_bytes(8, "little") * 4 for number in range(sum(counts))]
    parts, first = [], 0
    for group, count in enumerate(counts):
        parts.append(QueryPart(group, 16, 0, keys[first : first + count]))
        first += count
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        manager.resident = {key: 4096 * (number % 100) for number, key in enumerate(keys)}
        answer = client.query("long", 0, parts)
        assert answer.hits == counts
        assert np.array_equal(answer.offsets, 4096 * (np.arange(sum(counts)) % 100))
        (message,) = _messages(manager, wire.SubmitQuery)
        assert isinstance(message, wire.SubmitQuery)
        assert message.parts == parts


def test_a_closed_client_says_so(socket_path: Path, descriptors: None) -> None:
    with StubManager(socket_path):
        client = make_client(socket_path)
        client.register()
        client.close()
        client.close()
        with pytest.raises(ClientClosed):
            client.query("request", 0, [part(KEYS[0])])
        assert not client.tend()
        assert "closed" in repr(client)


def test_without_a_manager_calls_fail_at_once(socket_path: Path, descriptors: None) -> None:
    client = make_client(socket_path, timeout_s=5)
    started = time.monotonic()
    for _ in range(50):
        with pytest.raises(ManagerUnavailable, match="there is no such socket"):
            client.query("request", 0, [part(KEYS[0])])
        assert not client.tend()
        assert not client.report_stage("request", 0, "queued")
    assert time.monotonic() - started < 1


def test_registering_waits_for_a_predecessor_to_end(socket_path: Path, descriptors: None) -> None:
    refused = 0

    def occupied(request: Request) -> wire.Reply | None:
        nonlocal refused
        if not isinstance(request.message, wire.RegisterRank) or refused == 2:
            return None
        refused += 1
        os.close(request.descriptor)
        reason = Refusal.RANK_OCCUPIED
        return wire.ErrorReply(request.message.call, reason, reason.name, "Process 9 holds it.", True)

    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        manager.hook = occupied
        assert client.register().sealed
        assert refused == 2


def test_a_registration_that_cannot_succeed_fails_at_once(socket_path: Path, descriptors: None) -> None:
    def mismatch(request: Request) -> wire.Reply | None:
        if not isinstance(request.message, wire.RegisterRank):
            return None
        os.close(request.descriptor)
        reason = Refusal.MISMATCH
        return wire.ErrorReply(request.message.call, reason, reason.name, "Rank 1 says otherwise.", False)

    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        manager.hook = mismatch
        with pytest.raises(RequestRefused, match="Rank 1 says otherwise"):
            client.register()
        # Nor does any later call hide it.
        with pytest.raises(RequestRefused, match="Rank 1 says otherwise"):
            client.query("request", 0, [part(KEYS[0])])
        assert len(_messages(manager, wire.RegisterRank)) == 1


def test_registering_waits_for_a_manager_but_not_for_ever(socket_path: Path) -> None:
    client = make_client(socket_path, timeout_s=0.3)
    started = time.monotonic()
    with pytest.raises(ManagerUnavailable):
        client.register()
    assert time.monotonic() - started < 2
