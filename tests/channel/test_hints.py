"""The client's rules for hints, and that a hint never costs an engine's queue more than one message."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orbitkv.adapters.client import CacheManagerClient, HintRefusal
from orbitkv.adapters.client_errors import ManagerUnavailable
from orbitkv.adapters.hints import TICKETS_MAX
from orbitkv.adapters.switches import queue_warmup_enabled
from orbitkv.io import wire
from orbitkv.manager.ports import Connected, Disconnected, Request
from tests.channel.children import Child, in_child
from tests.channel.engine import KEYS, make_client, part
from tests.channel.raw import RawClient
from tests.channel.stub import StubManager

QUICK_S = 0.1
"""Far below any timeout, far above what a busy machine needs for one system call."""
LONG = [number.to_bytes(32, "big") for number in range(wire.KEYS_PER_MESSAGE_MAX)]


def _said(manager: StubManager, *kinds: type) -> list[wire.Request]:
    return [
        item.message  # type: ignore[misc]  # the port says object
        for item in manager.seen
        if isinstance(item, Request) and isinstance(item.message, kinds)
    ]


def _catch_up(client: CacheManagerClient) -> None:
    """Everything that was sent before has arrived."""
    with client._session.lock:
        client._session.ask(wire.ReadStatus, again=False)


def _hinting(manager: StubManager, client: CacheManagerClient) -> list[tuple[object, ...]]:
    """What came of hints and queries so far, in order."""
    _catch_up(client)
    said: list[tuple[object, ...]] = []
    for message in _said(manager, wire.WarmPrefix, wire.CancelHint, wire.SubmitQuery):
        if isinstance(message, wire.CancelHint):
            said.append(("cancel", message.ticket))
        elif isinstance(message, wire.WarmPrefix | wire.SubmitQuery):
            word = "hint" if isinstance(message, wire.WarmPrefix) else "query"
            said.append((word, message.request, message.revision, message.ticket))
    return said


@contextmanager
def _quickly() -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < QUICK_S


class Clock:
    """In place of the module `time` in the client's rules."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("orbitkv.adapters.hints.time", made)
    return made


# --- the rules ----------------------------------------------------------------------------------------


def test_a_hint_says_what_is_missing(socket_path: Path, descriptors: None) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        assert client.warm_prefix("request", 2, [part(*KEYS[:3])], revision=1) == 1
        _catch_up(client)
        (hint,) = _said(manager, wire.WarmPrefix)
        assert hint == wire.WarmPrefix(hint.call, "request", 2, 1, 1, [part(*KEYS[:3])])


def test_sixteen_are_accepted_a_duplicate_and_the_seventeenth_refused(
    socket_path: Path, clock: Clock
) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        for number in range(TICKETS_MAX):
            assert client.warm_prefix(f"request {number}", 0, [part(*KEYS)]) == number + 1
        assert client.warm_prefix("request 3", 0, [part(*KEYS)]) is HintRefusal.DUPLICATE
        assert client.warm_prefix("one more", 0, [part(*KEYS)]) is HintRefusal.TOO_MANY
        assert len(_hinting(manager, client)) == TICKETS_MAX
        clock.now += 4.9
        assert client.warm_prefix("one more", 0, [part(*KEYS)]) is HintRefusal.TOO_MANY
        clock.now += 0.2
        assert client.warm_prefix("one more", 0, [part(*KEYS)]) == TICKETS_MAX + 1
        assert client.warm_prefix("request 3", 0, [part(*KEYS)]) == TICKETS_MAX + 2
        counts = client.hint_counts
        assert (counts.sent, counts.refused[HintRefusal.TOO_MANY]) == (TICKETS_MAX + 2, 2)
        assert counts.refused[HintRefusal.DUPLICATE] == 1


def test_only_what_is_stale_is_retired(socket_path: Path, clock: Clock) -> None:
    with StubManager(socket_path), make_client(socket_path, hint_stale_s=2) as client:
        client.register()
        client.warm_prefix("old", 0, [part(*KEYS)])
        clock.now += 1.5
        client.warm_prefix("young", 0, [part(*KEYS)])
        clock.now += 1
        assert isinstance(client.warm_prefix("old", 0, [part(*KEYS)]), int)
        assert client.warm_prefix("young", 0, [part(*KEYS)]) is HintRefusal.DUPLICATE


def test_a_demand_cancels_its_hint_then_submits(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        for attempt in (0, 1):
            client.warm_prefix("request", attempt, [part(*KEYS)])
        client.query("request", 0, [part(*KEYS)])
        client.query("request", 0, [part(*KEYS)], revision=1)
        assert not client.cancel_hint("request", 0)
        assert _hinting(manager, client) == [
            ("hint", "request", 0, 1),
            ("hint", "request", 0, 2),
            ("cancel", 1),
            ("query", "request", 0, 3),
            ("query", "request", 1, 4),
        ]


def test_a_second_cancel_is_a_no_op_and_the_place_is_free_again(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        assert not client.cancel_hint("request", 0)
        client.warm_prefix("request", 0, [part(*KEYS)])
        assert client.cancel_hint("request", 0)
        assert not client.cancel_hint("request", 0)
        client.warm_prefix("request", 0, [part(*KEYS)])
        assert _hinting(manager, client) == [
            ("hint", "request", 0, 1),
            ("cancel", 1),
            ("hint", "request", 0, 2),
        ]


def test_a_higher_revision_takes_its_predecessors_place(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        for number in range(TICKETS_MAX):
            client.warm_prefix(f"request {number}", 0, [part(*KEYS)])
        assert client.warm_prefix("request 0", 0, [part(*KEYS)], revision=2) == TICKETS_MAX + 1
        assert client.warm_prefix("request 0", 0, [part(*KEYS)], revision=1) is HintRefusal.DUPLICATE
        assert client.cancel_hint("request 0", 0)
        assert _hinting(manager, client)[-1] == ("cancel", TICKETS_MAX + 1)


def test_what_cannot_be_a_hint_is_not_sent(socket_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        assert client.warm_prefix("request", 0, []) is HintRefusal.NOTHING_MISSING
        assert client.warm_prefix("request", 0, [part()]) is HintRefusal.NOTHING_MISSING
        assert caplog.records == []
        assert client.warm_prefix("request", 0, [part(*LONG, b"one more")]) is HintRefusal.UNFIT
        assert "hints are not cut" in caplog.text
        assert client.warm_prefix("", 0, [part(*KEYS)]) is HintRefusal.UNFIT
        assert client.warm_prefix("request", 0, [part(b"k" * 33)]) is HintRefusal.UNFIT
        assert client.warm_prefix("request", 0, [part(b"")]) is HintRefusal.UNFIT
        assert isinstance(client.warm_prefix("request", 0, [part(*LONG)]), int)
        assert len(_hinting(manager, client)) == 1


def test_a_group_of_which_nothing_is_missing_is_left_out(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        whole = wire.QueryPart(1, 64, 0, [])
        client.warm_prefix("request", 0, [whole, part(*KEYS)])
        _catch_up(client)
        (hint,) = _said(manager, wire.WarmPrefix)
        assert isinstance(hint, wire.WarmPrefix)
        assert hint.parts == [part(*KEYS)]


def test_hints_are_sent_whatever_the_switch_says(socket_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORBITKV_QUEUE_WARMUP", raising=False)
    with StubManager(socket_path), make_client(socket_path) as client:
        client.register()
        assert not queue_warmup_enabled()
        assert client.warm_prefix("request", 0, [part(*KEYS)]) == 1
        for value, on in (("1", True), ("0", False), ("On", True), ("false", False), ("", False)):
            monkeypatch.setenv("ORBITKV_QUEUE_WARMUP", value)
            assert queue_warmup_enabled() is on
        assert client.warm_prefix("request", 1, [part(*KEYS)]) == 2


def test_a_frame_that_is_too_long_ends_its_session_and_no_other(socket_path: Path) -> None:
    """The client does not send such; whoever does is no client."""
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        raw = RawClient(socket_path)
        raw.hello()
        raw.welcome()
        raw.send(wire.WarmPrefix(1, "request", 0, 1, 0, [part(*KEYS)]))
        raw.send(wire.WarmPrefix(2, "request", 0, 2, 0, [part(*LONG), part(*KEYS)]))
        poisoned = raw.receive()
        assert isinstance(poisoned, wire.ErrorReply)
        assert (poisoned.call, poisoned.refusal) == (0, wire.ChannelRefusal.POISONED)
        assert "4112 keys in one message" in poisoned.sentence
        assert raw.ended()
        raw.close()
        assert len(_said(manager, wire.WarmPrefix)) == 1
        assert isinstance(client.warm_prefix("request", 0, [part(*KEYS)]), int)
        assert len(_hinting(manager, client)) == 2


# --- trouble ------------------------------------------------------------------------------------------


def test_without_a_connection_nothing_is_tried(socket_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    client = make_client(socket_path)
    with StubManager(socket_path) as manager:
        for _ in range(3):
            assert client.warm_prefix("request", 0, [part(*KEYS)]) is HintRefusal.NOT_CONNECTED
        assert not client.cancel_hint("request", 0)
        assert manager.seen == []
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert client.hint_counts.refused[HintRefusal.NOT_CONNECTED] == 3
    client.close()
    assert client.warm_prefix("request", 0, [part(*KEYS)]) is HintRefusal.NOT_CONNECTED


def test_a_dead_socket_is_harmless_and_quick(
    socket_path: Path, descriptors: None, caplog: pytest.LogCaptureFixture
) -> None:
    with make_client(socket_path) as client:
        with StubManager(socket_path):
            client.register()
            client.warm_prefix("hinted", 0, [part(*KEYS)])
        with _quickly():
            for number in range(100):
                reason = client.warm_prefix(f"request {number}", 0, [part(*KEYS)])
                assert reason is HintRefusal.CONNECTION_LOST
            assert not client.cancel_hint("hinted", 0)
            assert not client.report_stage("request", 0, "queued")
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert "served without it" in caplog.text
        with pytest.raises(ManagerUnavailable):
            client.query("request", 0, [part(*KEYS)])
        with StubManager(socket_path, incarnation=2) as manager:
            client._session.retry_now()
            assert client.tend()
            assert isinstance(client.warm_prefix("hinted", 0, [part(*KEYS)]), int), "old tickets are gone"
            assert len(_hinting(manager, client)) == 1


def test_a_full_socket_drops_and_counts(socket_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        goes_on = threading.Event()
        manager.hook = lambda request: goes_on.wait(10) and None
        client.report_stage("request", 0, "queued")
        with _quickly():
            requests = [f"request {number}" for number in range(TICKETS_MAX)]
            came_of = [client.warm_prefix(request, 0, [part(*LONG)]) for request in requests]
        sent = [ticket for ticket in came_of if isinstance(ticket, int)]
        assert 0 < len(sent) < TICKETS_MAX
        assert set(came_of) == {*sent, HintRefusal.NO_ROOM}
        assert client.hint_counts.refused[HintRefusal.NO_ROOM] == TICKETS_MAX - len(sent)
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        goes_on.set()
        assert len(_hinting(manager, client)) == len(sent), "the connection is in order"
        assert isinstance(client.warm_prefix("afterwards", 0, [part(*LONG)]), int)


def test_a_hint_does_not_wait_for_another_threads_question(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        asked, goes_on = threading.Event(), threading.Event()

        def hold(request: Request) -> None:
            if isinstance(request.message, wire.SubmitQuery):
                asked.set()
                goes_on.wait(10)

        manager.hook = hold
        answers: list[object] = []
        thread = threading.Thread(target=lambda: answers.append(client.query("asked", 0, [part(*KEYS)])))
        thread.start()
        assert asked.wait(10)
        with _quickly():
            assert isinstance(client.warm_prefix("hinted", 0, [part(*KEYS)]), int)
            assert client.cancel_hint("hinted", 0)
            assert client.report_stage("hinted", 0, "queued")
        goes_on.set()
        thread.join()
        assert len(answers) == 1
        words = [word for word, *_ in _hinting(manager, client)]
        assert words == ["query", "hint", "cancel"]


def test_a_hint_never_comes_between_the_pieces_of_a_query(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        prefix = [number.to_bytes(32, "big") for number in range(5000)]
        ended = threading.Event()

        def hint() -> None:
            number = 0
            while not ended.is_set():
                client.warm_prefix(f"hinted {number}", 0, [part(*KEYS)])
                client.cancel_hint(f"hinted {number}", 0)
                number += 1

        thread = threading.Thread(target=hint)
        thread.start()
        for attempt in range(40):
            client.query("long", attempt, [part(*prefix)])
        ended.set()
        thread.join()
        assert client.hint_counts.sent > 0
        assert not [item for item in manager.seen if isinstance(item, Disconnected)]


def test_threads_hint_and_ask_over_one_connection(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        wrong: list[object] = []
        left: set[tuple[str, int]] = set()

        def work(number: int) -> None:
            try:
                for attempt in range(60):
                    key = (f"request {number}", attempt)
                    hinted = client.warm_prefix(*key, [part(*KEYS)]) is None
                    if attempt % 3:
                        client.query(*key, [part(*KEYS)])
                    elif not client.cancel_hint(*key) and hinted:
                        left.add(key)  # another thread was sending, and a hint's end waits for nobody
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert len([item for item in manager.seen if isinstance(item, Connected)]) == 1
        said = _hinting(manager, client)
        tickets = [int(str(words[-1])) for words in said if words[0] != "cancel"]
        assert tickets == sorted(set(tickets)), "tickets rise in the order in which they arrive"
        counts = client.hint_counts
        hinted = [words for words in said if words[0] == "hint"]
        assert counts.sent == len(hinted)
        assert counts.sent + sum(counts.refused.values()) == 4 * 60
        assert client._session.connection.hints.keys() == left  # type: ignore[union-attr]  # there is one


def test_connections_that_end_meanwhile_confuse_nobody(socket_path: Path, descriptors: None) -> None:
    """A hint goes out on the connection it was meant for, or not at all; no other file is written to."""
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        ended = threading.Event()
        wrong: list[BaseException] = []

        def hint() -> None:
            try:
                number = 0
                while not ended.is_set():
                    client.warm_prefix(f"request {number}", 0, [part(*KEYS)])
                    client.cancel_hint(f"request {number}", 0)
                    number += 1
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=hint) for _ in range(2)]
        for thread in threads:
            thread.start()
        for session in range(1, 21):
            manager.call(lambda session=session: manager.channel.close_session(session))  # type: ignore[misc]  # mypy#15459
            client.query("request", session, [part(*KEYS)])
        ended.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert client.hint_counts.sent > 0
        assert len([item for item in manager.seen if isinstance(item, Connected)]) == 21
        assert manager.channel.poisoned_sessions == 0


def test_a_child_hints_nothing_before_it_has_a_connection_of_its_own(socket_path: Path) -> None:
    with StubManager(socket_path), make_client(socket_path) as client:
        client.register()
        client.warm_prefix("request", 0, [part(*KEYS)])

        def as_child() -> list[object]:
            before = client.warm_prefix("request", 0, [part(*KEYS)])
            client.registration()
            return [str(before), client.warm_prefix("request", 0, [part(*KEYS)])]

        assert in_child(as_child) == [str(HintRefusal.NOT_CONNECTED), 2]
        assert client.warm_prefix("request", 0, [part(*KEYS)]) is HintRefusal.DUPLICATE


def test_a_fork_while_a_long_query_is_sent_does_not_hang_the_child(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        client.warm_prefix("request", 0, [part(*KEYS)])
        asked, goes_on = threading.Event(), threading.Event()

        def hold(request: Request) -> None:
            if isinstance(request.message, wire.SubmitQuery):
                asked.set()
                goes_on.wait(10)

        manager.hook = hold
        prefix = [number.to_bytes(32, "big") for number in range(5000)]
        thread = threading.Thread(target=lambda: client.query("long", 0, [part(*prefix)]))
        thread.start()
        assert asked.wait(10)
        with _quickly():
            assert client.warm_prefix("meanwhile", 0, [part(*KEYS)]) is HintRefusal.NO_ROOM
        child = Child(lambda: str(client.warm_prefix("of the child", 0, [part(*KEYS)])))
        assert child.answer() == str(HintRefusal.NOT_CONNECTED)
        child.join()
        goes_on.set()
        thread.join()
