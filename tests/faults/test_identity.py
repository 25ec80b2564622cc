"""What two engines must have in common to share a page, and what must not matter."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from orbitkv.adapters.client import CacheManagerClient, QueryPart, QueryStatus
from orbitkv.adapters.client_errors import RequestRefused
from orbitkv.adapters.namespace import Namespace
from orbitkv.events.geometry import GroupGeometry, SliceGeometry
from orbitkv.events.outcomes import Refusal
from tests.restart.managers import (
    GROUPS,
    NAMESPACE,
    PAGE_BYTES,
    PAGE_TOKENS,
    PATIENCE_S,
    ROOT,
    STAGING_BYTES,
    Place,
    ask,
    content,
    key,
    save,
)

PROMPT = range(6)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A manager that holds six pages of an engine with NAMESPACE and GROUPS."""
    place = Place(tmp_path_factory.mktemp("identity"))
    with place.manager() as manager:
        with place.client("first") as client:
            assert save(client, PROMPT) == len(PROMPT)
        yield place
        assert manager.stop() == ""
    place.verify()


def found(place: Place, namespace: Namespace, groups: tuple[GroupGeometry, ...], world_size: int = 1) -> int:
    """Pages of the prompt that an engine of this identity is given."""
    ranks = [
        CacheManagerClient(
            place.socket,
            instance="second",
            namespace=namespace,
            groups=groups if world_size == 1 else (groups[rank],),
            rank=rank,
            world_size=world_size,
            timeout_s=PATIENCE_S,
        )
        for rank in range(world_size)
    ]
    try:
        for client in ranks:
            client.register()
        part = QueryPart(0, groups[0].page_tokens, 0, [key(number) for number in PROMPT])
        answer = ranks[0].query("r", 0, [part])
        assert answer.status in (QueryStatus.READY, QueryStatus.MISSED), "DRAM answers at once"
        return sum(answer.hits)
    finally:
        for client in ranks:
            client.close()


# --- B11: same name, other identity -------------------------------------------------------------------------


def other(value: object) -> object:
    """Another value of the same kind, as near as can be."""
    match value:
        case int():
            return value + 1
        case str():
            return f"{value}2"
        case _:
            return {"rope_scaling": "yarn"}


def test_the_same_identity_hits(place: Place) -> None:
    """Without this the misses below would show nothing."""
    assert found(place, attrs.evolve(NAMESPACE), GROUPS) == len(PROMPT)


@pytest.mark.parametrize("field", [field.name for field in attrs.fields(Namespace)])
def test_each_difference_of_identity_is_a_miss(place: Place, field: str) -> None:
    changed = {field: other(getattr(NAMESPACE, field))}
    assert found(place, attrs.evolve(NAMESPACE, **changed), GROUPS) == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "Test"),
        ("model", "test "),
        ("dtype", "BF16"),
        ("revision", ""),
        ("extras", {"": ""}),
        ("adapter_fingerprint", "unknown"),
        ("tenant", " "),
    ],
)
def test_differences_that_are_hard_to_see_are_misses(place: Place, field: str, value: object) -> None:
    assert found(place, attrs.evolve(NAMESPACE, **{field: value}), GROUPS) == 0


@pytest.mark.parametrize(
    "groups",
    [
        (GroupGeometry(0, PAGE_TOKENS, (SliceGeometry("all", PAGE_BYTES - 1),)),),
        (GroupGeometry(0, PAGE_TOKENS, (SliceGeometry("all", PAGE_BYTES + 4096),)),),
        (GroupGeometry(0, PAGE_TOKENS, (SliceGeometry("All", PAGE_BYTES),)),),
        (GroupGeometry(0, PAGE_TOKENS, (SliceGeometry("all", PAGE_BYTES, True),)),),
        (GroupGeometry(0, PAGE_TOKENS * 2, (SliceGeometry("all", PAGE_BYTES),)),),
        (GroupGeometry(0, PAGE_TOKENS, (SliceGeometry("k", PAGE_BYTES // 2), SliceGeometry("v", 50_000))),),
    ],
)
def test_another_layout_under_the_same_name_is_a_miss(
    place: Place, groups: tuple[GroupGeometry, ...]
) -> None:
    """Also when the engine's own description of itself does not mention it."""
    assert found(place, NAMESPACE, groups) == 0


def test_the_same_page_cut_among_two_ranks_is_a_miss(place: Place) -> None:
    halves = [
        GroupGeometry(0, PAGE_TOKENS, (SliceGeometry(name, PAGE_BYTES // 2),)) for name in ("low", "high")
    ]
    assert found(place, NAMESPACE, tuple(halves), world_size=2) == 0


# --- B10: independence of the process -----------------------------------------------------------------------

ENGINE = """
    import sys
    from pathlib import Path
    sys.path.insert(0, {root!r})
    from orbitkv.adapters.client import CacheManagerClient, QueryPart
    from orbitkv.adapters.embedded.block_hash import block_keys
    from tests.faults.test_identity import restored_by, saved_by
    print({what}(Path({socket!r}), block_keys(range(1000, 1012))), hash("a page"))
"""


def _client(socket: Path) -> CacheManagerClient:
    # Another order of the extras, which is no difference: a mapping has none.
    extras = dict(sorted({"a": "1", "b": "2", "ü": "3"}.items(), key=lambda item: hash(item)))
    client = CacheManagerClient(
        socket,
        instance=f"engine {os.getpid()}",
        namespace=attrs.evolve(NAMESPACE, extras=extras),
        groups=GROUPS,
        staging_bytes=STAGING_BYTES,
        timeout_s=PATIENCE_S,
    )
    client.register()
    return client


def saved_by(socket: Path, keys: tuple[bytes, ...]) -> int:
    client = _client(socket)
    plan = client.begin_save(0, keys)
    for position, slot in plan.wanted:
        slot[:PAGE_BYTES] = content(keys[position])
    client.commit_save(plan)
    assert client.wait_saved(plan, PATIENCE_S)
    client.close()
    return len(plan.wanted)


def restored_by(socket: Path, keys: tuple[bytes, ...]) -> int:
    client = _client(socket)
    answer = client.query("r", 0, [QueryPart(0, PAGE_TOKENS, 0, list(keys))])
    view = client.begin_restore(answer.lease)
    assert [bytes(view.page(page)) for page in range(len(view))] == [content(each) for each in keys]
    client.close()
    return len(view)


def run_engine(place: Place, what: str, **environment: str) -> list[str]:
    program = textwrap.dedent(ENGINE.format(root=str(ROOT), what=what, socket=str(place.socket)))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_processes_of_other_hash_seeds_and_locales_share_pages(place: Place) -> None:
    pages, first = run_engine(place, "saved_by", PYTHONHASHSEED="1", LC_ALL="C", TZ="UTC")
    assert pages == "12"
    turkish = {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "PYTHONUTF8": "0", "TZ": "Asia/Tokyo"}
    for seed, surroundings in (("2", turkish), ("random", {"LC_ALL": "C.UTF-8"})):
        pages, second = run_engine(place, "restored_by", PYTHONHASHSEED=seed, **surroundings)
        assert pages == "12"
        assert second != first, "the seeds do make a difference to Python"
    assert run_engine(place, "saved_by", PYTHONHASHSEED="3")[0] == "0", "all of it is there"


def test_the_order_in_which_ranks_start_makes_no_difference(tmp_path: Path) -> None:
    """Two ranks and a scheduler, in every order of two: the pages of one run are found by the next."""
    place = Place(tmp_path, {"ssd-path": ""})
    halves = (
        GroupGeometry(0, PAGE_TOKENS, (SliceGeometry("low", PAGE_BYTES // 2),)),
        GroupGeometry(0, PAGE_TOKENS, (SliceGeometry("high", PAGE_BYTES // 2),)),
    )
    with place.manager() as manager:
        for turn, order in enumerate([(0, 1, -1), (-1, 1, 0), (1, -1, 0), (0, -1, 1)]):
            clients = {}
            for rank in order:
                clients[rank] = CacheManagerClient(
                    place.socket,
                    instance="engine",
                    namespace=NAMESPACE,
                    groups=() if rank < 0 else (halves[rank],),
                    rank=rank,
                    world_size=2,
                    staging_bytes=0 if rank < 0 else STAGING_BYTES,
                    timeout_s=PATIENCE_S,
                )
                clients[rank].register()
            if turn == 0:
                plans = {rank: clients[rank].begin_save(0, [key(n) for n in PROMPT]) for rank in (0, 1)}
                for rank, plan in plans.items():
                    clients[rank].commit_save(plan)
                assert all(clients[rank].wait_saved(plan, PATIENCE_S) for rank, plan in plans.items())
            assert ask(clients[-1], PROMPT, f"turn {turn}").hits == (len(PROMPT),)
            for client in clients.values():
                client.close()
        manager.stop()
    place.verify()


def test_an_engine_whose_hashes_depend_on_its_process_is_refused_with_the_remedy(place: Place) -> None:
    client = CacheManagerClient(
        place.socket, instance="hasty", namespace=NAMESPACE, groups=GROUPS, hash_process_dependent=True
    )
    with pytest.raises(RequestRefused) as refused:
        client.register()
    assert refused.value.refusal == Refusal.PROCESS_DEPENDENT_HASH
    assert not refused.value.retry_helps
    assert "--prefix-caching-hash-algo sha256" in str(refused.value)
    client.close()
