"""When the manager is asked, when it is left alone, and how it comes back."""

import gc
import threading
import weakref

import attrs
import pytest

from orbitkv.adapters.answers import Registration
from orbitkv.adapters.client_errors import (
    CallTimedOut,
    LimitExceeded,
    ManagerUnavailable,
    OrbitError,
    RequestRefused,
)
from orbitkv.adapters.vllm.link import ManagerLink
from orbitkv.events.outcomes import Refusal
from orbitkv.io.wire import ErrorReply


@attrs.define
class Client:
    sealed: bool = True
    trouble: list[OrbitError] = attrs.Factory(list)
    """Of the next registrations, in order."""
    alive: bool = True
    calls: list[str] = attrs.Factory(list)
    closed: threading.Event = attrs.Factory(threading.Event)
    asked: threading.Semaphore = attrs.Factory(lambda: threading.Semaphore(0))

    def register(self) -> Registration:
        self.calls.append("register")
        self.asked.release()
        if self.trouble:
            raise self.trouble.pop(0)
        return self.registration()

    def registration(self) -> Registration:
        return Registration(1, 1, 1, self.sealed, {})

    def tend(self) -> bool:
        self.calls.append("tend")
        return self.alive

    def reconnect(self) -> None:
        self.calls.append("reconnect")

    def close(self) -> None:
        self.closed.set()


def refused(refusal: Refusal) -> RequestRefused:
    return RequestRefused(ErrorReply(1, refusal, refusal.name, "no", True))


def linked(client: Client) -> ManagerLink:
    """Up or down as its registration went, with no thread beside the test."""
    link = ManagerLink(client, "test")
    link.mend()
    return link


def failing(error: OrbitError):
    def call() -> None:
        raise error

    return call


def test_it_is_up_when_all_ranks_are_there():
    client = Client(sealed=False)
    link = linked(client)
    assert not link.up
    client.sealed = True
    link.mend()
    assert link.up


@pytest.mark.parametrize(
    "error", [ManagerUnavailable(""), CallTimedOut(""), refused(Refusal.NOT_REGISTERED)], ids=str
)
def test_a_manager_that_does_not_serve_is_left_alone_until_it_was_mended(error):
    link = linked(Client())
    with pytest.raises(OrbitError):
        link.ask(failing(error))
    assert not link.up and link.epoch == 1
    link.mend()
    assert link.up and link.epoch == 1


@pytest.mark.parametrize("error", [LimitExceeded(""), refused(Refusal.RETIRED)], ids=str)
def test_trouble_of_one_call_is_no_absence(error):
    link = linked(Client())
    with pytest.raises(OrbitError):
        link.ask(failing(error))
    assert link.up and link.epoch == 0


def test_a_manager_that_hangs_loses_its_connection_so_that_nothing_late_is_taken_for_an_answer():
    client = Client()
    with pytest.raises(CallTimedOut):
        linked(client).ask(failing(CallTimedOut("")))
    assert client.calls[-1] == "reconnect"


def test_a_manager_that_died_in_an_idle_time_is_noticed():
    client = Client()
    link = linked(client)
    client.alive = False
    link.mend()
    assert not link.up and link.epoch == 1


def test_a_restarted_manager_that_waits_for_other_ranks_is_not_asked():
    client = Client()
    link = linked(client)
    client.sealed = False
    link.mend()
    assert not link.up


def test_at_start_trouble_is_refused_or_served_around():
    with pytest.raises(ManagerUnavailable):
        ManagerLink(Client(trouble=[ManagerUnavailable("")]), "test").open(refuse=True)
    client = Client(trouble=[ManagerUnavailable("")])
    link = ManagerLink(client, "test")
    link.open(refuse=False)
    # Once when it was opened, and again by the keeper.
    assert client.asked.acquire(timeout=30) and client.asked.acquire(timeout=30)
    link.close()
    assert client.closed.is_set() and not link.up


def test_a_predecessor_that_ends_is_waited_for():
    client = Client(trouble=[refused(Refusal.RANK_OCCUPIED)] * 3)
    link = ManagerLink(client, "test")
    link.open(refuse=True)
    assert link.up
    link.close()


def test_the_keeper_lets_a_dropped_engine_go():
    client = Client()
    link = ManagerLink(client, "test")
    link.open(refuse=True)
    keeper = link._keeper
    gone = weakref.ref(link)
    del link
    gc.collect()
    assert keeper is not None
    keeper.join(30)
    assert not keeper.is_alive() and gone() is None
