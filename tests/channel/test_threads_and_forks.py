"""One client, many threads; a fork, and two clients that do not know of each other."""

import os
import threading
from pathlib import Path

import pytest

from orbitkv.adapters.client_errors import OrbitError
from orbitkv.events.outcomes import SyncOutcome
from orbitkv.io.wire import QueryStatus
from orbitkv.manager.ports import Connected, Disconnected, ProcessEnded
from tests.channel.children import Child, in_child
from tests.channel.engine import KEYS, make_client, part
from tests.channel.stub import StubManager


def test_threads_share_a_client_and_get_their_own_answers(socket_path: Path, descriptors: None) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        for number, key in enumerate(KEYS):
            manager.resident[key] = number * 4096
        wrong: list[object] = []

        def work(number: int) -> None:
            try:
                for attempt in range(50):
                    answer = client.query(f"request {number}", attempt, [part(KEYS[number])])
                    if answer.status is not QueryStatus.READY or answer.offsets.tolist() != [number * 4096]:
                        wrong.append(answer)
                    view = client.begin_restore(answer.lease)
                    if view.offsets.tolist() != [number * 4096]:
                        wrong.append(view)
                    client.report_sync(answer.lease, SyncOutcome.SUCCEEDED, [(0, 1)], 1, 1, 1)
                    client.report_stage(f"request {number}", attempt, "first_use")
            except OrbitError as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert len([item for item in manager.seen if isinstance(item, Connected)]) == 1


def test_threads_that_lose_the_connection_together_make_one_new_one(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        wrong: list[object] = []
        barrier = threading.Barrier(9)

        def work(number: int) -> None:
            barrier.wait()
            try:
                client.query(f"request {number}", 0, [part(KEYS[number])])
            except OrbitError as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        manager.call(lambda: manager.channel.close_session(1))
        barrier.wait()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert len([item for item in manager.seen if isinstance(item, Connected)]) == 2


def test_a_child_is_a_client_of_its_own(socket_path: Path, descriptors: None) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        manager.resident[KEYS[0]] = 0
        mine = client.query("request", 0, [part(KEYS[0])])

        def as_child() -> list[int]:
            answer = client.query("of the child", 0, [part(KEYS[0])])
            return [client.registration().session, int(answer.status)]

        assert in_child(as_child) == [2, QueryStatus.READY]
        # The parent's connection was not used, and is not closed by the child's end.
        assert client.query("of the parent", 0, [part(KEYS[0])]).status is QueryStatus.READY
        assert client.registration().session == 1
        client.begin_restore(mine.lease)
        connected = [item for item in manager.seen if isinstance(item, Connected)]
        assert len({item.process for item in connected}) == 2


def test_a_child_that_only_exits_disturbs_nothing(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        plan = client.begin_save(0, KEYS[:1])
        for _ in range(3):
            in_child(lambda: None)
        plan.wanted[0].slot[:4] = b"page"
        client.commit_save(plan)
        assert client.wait_saved(plan, 5)
        offset = manager.resident[KEYS[0]]
        assert manager.pool[offset : offset + 4] == b"page"
        assert not [item for item in manager.seen if isinstance(item, Disconnected | ProcessEnded)]


def test_a_fork_while_another_thread_is_in_a_call_does_not_hang_the_child(socket_path: Path) -> None:
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        asking = threading.Event()
        answered = threading.Event()

        def slow(request: object) -> None:
            if not asking.is_set():
                asking.set()
                answered.wait(10)

        manager.hook = slow
        thread = threading.Thread(target=lambda: client.query("slow", 0, [part(KEYS[0])]))
        thread.start()
        assert asking.wait(10)
        child = Child(lambda: int(client.query("of the child", 0, [part(KEYS[0])]).status))
        answered.set()
        assert child.answer() == QueryStatus.MISSED
        child.join()
        thread.join()


def test_a_child_does_not_send_what_its_parent_still_has_to(socket_path: Path) -> None:
    with make_client(socket_path) as client:
        with StubManager(socket_path, incarnation=3) as manager:
            client.register()
            manager.resident[KEYS[0]] = 0
            lease = client.query("request", 0, [part(KEYS[0])]).lease
            client.begin_restore(lease)
        assert not client.report_sync(lease, SyncOutcome.SUCCEEDED, [(0, 1)], 1, 1, 1).acknowledged
        assert in_child(lambda: len(client._session.unreported)) == 0
        assert len(client._session.unreported) == 1


@pytest.mark.parametrize("rounds", [20])
def test_forks_leak_no_descriptors(socket_path: Path, rounds: int, descriptors: None) -> None:
    with StubManager(socket_path), make_client(socket_path) as client:
        client.register()

        def count() -> int:
            client.close()
            return len(os.listdir("/proc/self/fd"))

        counts = {in_child(count) for _ in range(rounds)}
        assert len(counts) == 1
