"""An engine that calls its client wrongly: an error that says so, and nothing else is lost by it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitkv.adapters.client import CacheManagerClient, HintRefusal, QueryPart
from orbitkv.adapters.client_errors import LimitExceeded, OrbitError
from orbitkv.adapters.session import POISONINGS_MAX
from orbitkv.adapters.staging import StagingWindow
from orbitkv.events.outcomes import SyncOutcome
from orbitkv.io import wire
from tests.channel.engine import KEYS, make_client
from tests.channel.engine import part as stub_part
from tests.channel.stub import StubManager
from tests.faults.support import is_idle
from tests.restart.managers import GROUPS, NAMESPACE, PAGE_TOKENS, Place, ask, key, restore, save, until


def part(**changed: object) -> QueryPart:
    fields: dict[str, object] = {
        "group": 0,
        "page_tokens": PAGE_TOKENS,
        "trailing": 0,
        "keys": [key(0)],
    }
    return QueryPart(**(fields | changed))  # type: ignore[arg-type]  # wrong on purpose


Call = Callable[[CacheManagerClient, bytes], object]

MISTAKES: dict[str, Call] = {
    "key of text": lambda client, lease: client.query("r", 0, [part(keys=["x"])]),
    "key too long": lambda client, lease: client.query("r", 0, [part(keys=[bytes(33)])]),
    "no part": lambda client, lease: client.query("r", 0, []),
    "too many parts": lambda client, lease: client.query("r", 0, [part(group=n) for n in range(65)]),
    "too many keys": lambda client, lease: client.query("r", 0, [part(keys=[key(n) for n in range(20_481)])]),
    "huge request id": lambda client, lease: client.query("r" * 10**6, 0, [part()]),
    "half a character": lambda client, lease: client.query("\ud800", 0, [part()]),
    "negative attempt": lambda client, lease: client.query("r", -1, [part()]),
    "negative revision": lambda client, lease: client.query("r", 0, [part()], -1),
    "negative group": lambda client, lease: client.query("r", 0, [part(group=-1)]),
    "negative trailing": lambda client, lease: client.query("r", 0, [part(trailing=-1)]),
    "attempt beyond 64 bits": lambda client, lease: client.query("r", 1 << 70, [part()]),
    "poll of junk": lambda client, lease: client.poll(b"junk"),
    "cancel of nothing": lambda client, lease: client.cancel(b""),
    "release of junk": lambda client, lease: client.release(b"x"),
    "restore of a forged lease": lambda client, lease: client.begin_restore(bytes(24)),
    "save of text": lambda client, lease: client.begin_save(0, ["x"]),  # type: ignore[list-item]
    "save of a foreign group": lambda client, lease: client.begin_save(9, [key(9)]),
    "sync backwards": lambda client, lease: sync(client, lease, ranges=[(2, 1)]),
    "sync of negative bytes": lambda client, lease: sync(client, lease, copied_bytes=-1),
    "sync of absurd bytes": lambda client, lease: sync(client, lease, copied_bytes=1 << 60),
    "sync in halves": lambda client, lease: sync(client, lease, layers=1.5),
    "sync beyond 64 bits": lambda client, lease: sync(client, lease, elapsed_us=1 << 70),
}


def sync(client: CacheManagerClient, lease: bytes, **changed: object) -> object:
    fields = {"ranges": [(0, 3)], "layers": 2, "copied_bytes": 1, "elapsed_us": 1} | changed
    return client.report_sync(lease, SyncOutcome.SUCCEEDED, **fields)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, CacheManagerClient]]:
    place = Place(tmp_path_factory.mktemp("mistakes"))
    with place.manager() as manager:
        with place.client() as client:
            save(client, range(3))
            yield place, client
        until(lambda: is_idle(place))
        assert manager.stop() == ""
    place.verify()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_costs_an_error_and_nothing_else(
    engine: tuple[Place, CacheManagerClient], mistake: str
) -> None:
    _, client = engine
    lease = ask(client, range(3), mistake).lease
    view = client.begin_restore(lease)
    connection = client._session.connection
    with pytest.raises(OrbitError) as told:
        MISTAKES[mistake](client, lease)
    assert str(told.value).count(". ") >= 1, "what happened, and what to do"
    assert client._session.connection is connection, "leases and saves are still there"
    assert client.report_sync(lease, SyncOutcome.SUCCEEDED, [(0, len(view))], 2, 1, 1).acknowledged
    assert not client._session.unreported


def test_hints_and_stages_that_cannot_be_meant_are_not_sent(engine: tuple[Place, CacheManagerClient]) -> None:
    _, client = engine
    connection = client._session.connection
    for hint in (("r", -1, [part()]), ("r", 0, [part(keys=["x"])]), ("r" * 10**6, 0, [part()])):
        assert client.warm_prefix(*hint) is HintRefusal.UNFIT
    assert client.warm_prefix("r", 0, [part(group=-1), part(group=1)]) is HintRefusal.UNFIT
    for stage in (("r", -1, "queued"), ("r", 0, ""), ("r", 0, "x" * 65), ("r" * 600, 0, "queued")):
        assert not client.report_stage(*stage)
    assert client.report_stage("r", 0, "queued")
    assert client._session.connection is connection
    assert restore(client, range(3), "and is served") == 3


@pytest.mark.parametrize(
    "changed",
    [
        {"instance": ""},
        {"instance": "x" * 600},
        {"rank": -5},
        {"world_size": 0},
        {"staging_bytes": -1},
        {"staging_bytes": 100},
        {"staging_bytes": 1 << 50},
        {"groups": ()},
    ],
    ids=str,
)
def test_an_identity_that_cannot_be_meant_fails_at_once(
    engine: tuple[Place, CacheManagerClient], changed: dict[str, object]
) -> None:
    place, _ = engine
    fields: dict[str, object] = {"instance": "wrong", "namespace": NAMESPACE, "groups": GROUPS} | changed
    client = CacheManagerClient(place.socket, **fields)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(OrbitError) as told:
        client.register()
    assert not told.value.retry_helps
    client.close()


def test_a_staging_window_costs_nothing_before_it_is_used() -> None:
    window = StagingWindow(GROUPS, 1 << 44)
    assert window.credits(0) == (1 << 44) // 102_400
    first, second = window.take(0), window.take(0)
    assert (first, second) == (0, 102_400)
    window.give_back(0, first)
    assert window.take(0) == first
    window.close()


def test_a_sync_that_no_manager_takes_is_given_up_in_the_end(socket_path: Path) -> None:
    """Else it would take every later connection with it."""
    with StubManager(socket_path) as manager, make_client(socket_path) as client:
        client.register()
        manager.resident[KEYS[0]] = 0
        lease = client.query("r", 0, [stub_part(KEYS[0])]).lease
        client.begin_restore(lease)

        def poisoned(request: object) -> wire.Reply | None:
            if isinstance(request.message, wire.ReportSync):  # type: ignore[attr-defined]
                return wire.ErrorReply(0, wire.ChannelRefusal.POISONED, "POISONED", "It is odd.", True)
            return None

        manager.hook = poisoned
        receipt = client.report_sync(lease, SyncOutcome.SUCCEEDED, [(0, 1)], 2, 1, 1)
        assert not receipt.acknowledged
        for _ in range(POISONINGS_MAX):
            client._session.retry_now()
            client.tend()
        assert not client._session.unreported
        manager.hook = lambda request: None
        client._session.retry_now()
        assert client.query("r", 1, [stub_part(KEYS[0])]).lease


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    return tmp_path / "manager.sock"


def test_what_is_refused_locally_names_the_value() -> None:
    with pytest.raises(LimitExceeded, match=r"the number -1 .* Correct what the caller gave"):
        make_client(Path("/nonexistent.sock")).query("r", -1, [stub_part(KEYS[0])])
