"""A rank's restores and saves: what is copied, what is reported, and what becomes of trouble."""

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest

from orbitkv.adapters.client_errors import LimitExceeded, ManagerUnavailable, OrbitError, SaveGivenUp
from orbitkv.adapters.device import BlockCopy, HostCopier, copiers_for
from orbitkv.adapters.errors import AdapterError
from orbitkv.adapters.saves import SaveResult, WantedPage
from orbitkv.adapters.vllm.counts import Counts
from orbitkv.adapters.vllm.orders import NO_BLOCK, LoadOrder, PageBlocks, SaveOrder
from orbitkv.adapters.vllm.restorer import GroupCopies, Restorer
from orbitkv.adapters.vllm.stager import Stager
from orbitkv.events.outcomes import SyncOutcome
from tests.adapters.vllm_standins import Link

LAYERS, ROW = 2, 3
BLOCK_BYTES = LAYERS * ROW


class Lane:
    """Does at once what it is given."""

    def put(self, work: Callable[[], None]) -> None:
        work()

    def finish(self, timeout_s: float) -> bool:
        return True


class Plane:
    """As a tensor of bytes on the CPU, as far as it is read here."""

    device = SimpleNamespace(type="cpu")

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    def numpy(self) -> np.ndarray:
        return self.rows


def memory(blocks: int = 4) -> list[np.ndarray]:
    """Every byte of every layer another one."""
    size = blocks * ROW
    return [np.arange(n * size, (n + 1) * size, dtype=np.uint8).reshape(blocks, ROW) for n in range(LAYERS)]


def copies(rows: Sequence[np.ndarray]) -> dict[int, GroupCopies]:
    return {0: GroupCopies(HostCopier([Plane(row) for row in rows]), BLOCK_BYTES, LAYERS)}


@attrs.define
class View:
    """Two pages of two blocks each, in the pool."""

    pool: Any = None
    content: bytes = bytes(range(100, 100 + 4 * BLOCK_BYTES))

    def page(self, position: int) -> memoryview:
        size = 2 * BLOCK_BYTES
        return memoryview(self.content)[position * size : (position + 1) * size]


@attrs.define
class Client:
    trouble: OrbitError | None = None
    wanted: Sequence[int] = (0, 1)
    refuse_commit: OrbitError | None = None
    syncs: list[tuple[Any, ...]] = attrs.Factory(list)
    slots: dict[int, bytearray] = attrs.Factory(dict)
    ended: list[str] = attrs.Factory(list)
    credits: list[int] = attrs.Factory(list)
    """Free slots at each look; plenty when there is none left here."""
    offers: list[list[bytes]] = attrs.Factory(list)

    @property
    def staging_credits(self) -> dict[int, int]:
        return {0: self.credits.pop(0) if self.credits else 100}

    def tend(self) -> bool:
        return True

    def begin_restore(self, lease: bytes) -> Any:
        if self.trouble is not None:
            raise self.trouble
        return View()

    def report_sync(self, *what: Any) -> None:
        self.syncs.append(what)

    def begin_save(self, group: int, keys: Sequence[bytes]) -> Any:
        if self.trouble is not None:
            raise self.trouble
        self.offers.append(list(keys))
        wanted = [n for n in self.wanted if n < len(keys)]
        self.slots = {n: bytearray(2 * BLOCK_BYTES + 10) for n in wanted}
        return SimpleNamespace(
            wanted=[WantedPage(n, memoryview(slot)) for n, slot in self.slots.items()], uncredited_pages=0
        )

    def commit_save(self, plan: Any) -> SaveResult:
        if self.refuse_commit is not None:
            raise self.refuse_commit
        self.ended.append("committed")
        return SaveResult(len(plan.wanted), 0)

    def abort_save(self, plan: Any) -> None:
        self.ended.append("aborted")


LOAD = LoadOrder("r", b"lease", (PageBlocks(0, 0, (NO_BLOCK, 1)), PageBlocks(1, 0, (3, 0))))
SAVE = SaveOrder(7, 0, (b"k0", b"k1"), ((1, 0), (3, 2)))


class TestRestoring:
    def run(self, client: Client, rows: list[np.ndarray]) -> tuple[set[str], dict[str, set[int]], Counts]:
        counts = Counts()
        restorer = Restorer(client, Link(), copies(rows), counts, Lane())  # type: ignore[arg-type]
        restorer.start(LOAD)
        return (*restorer.take_ended(), counts)

    def test_each_part_of_a_page_goes_to_its_block_layer_by_layer(self):
        rows, before, client = memory(), memory(), Client()
        ended, failed, counts = self.run(client, rows)
        part = [
            np.arange(100 + n * BLOCK_BYTES, 100 + (n + 1) * BLOCK_BYTES, dtype=np.uint8) for n in range(4)
        ]
        for layer in range(LAYERS):
            ours = slice(layer * ROW, (layer + 1) * ROW)
            assert [rows[layer][block].tolist() for block in (1, 3, 0)] == [
                part[n][ours].tolist() for n in (1, 2, 3)
            ]
            assert rows[layer][2].tolist() == before[layer][2].tolist()
        assert (ended, failed) == ({"r"}, {})
        (sync,) = client.syncs
        assert sync[:5] == (b"lease", SyncOutcome.SUCCEEDED, [(0, 2)], LAYERS, 3 * BLOCK_BYTES)
        assert counts.take()["load_bytes"] == 3 * BLOCK_BYTES

    def test_a_lease_that_cannot_be_begun_is_a_failed_load_and_no_sync(self):
        rows = memory()
        client = Client(trouble=ManagerUnavailable("nobody"))
        ended, failed, counts = self.run(client, rows)
        assert (ended, failed) == ({"r"}, {"r": {0, 1, 3}})
        assert client.syncs == []
        assert [row.tolist() for row in rows] == [row.tolist() for row in memory()]
        assert counts.take() == {"load_failures": 1}

    def test_a_copy_that_breaks_off_is_reported_as_stopped(self, caplog):
        client = Client()
        ended, failed, _ = self.run(client, memory(blocks=2))  # block 3 does not exist
        assert (ended, failed) == ({"r"}, {"r": {0, 1, 3}})
        assert [sync[:3] for sync in client.syncs] == [(b"lease", SyncOutcome.STOPPED, [])]
        assert "computed instead of restored" in caplog.text

    def test_each_end_is_told_once(self):
        restorer = Restorer(Client(), Link(), copies(memory()), Counts(), Lane())  # type: ignore[arg-type]
        restorer.start(LOAD)
        restorer.take_ended()
        assert restorer.take_ended() == (set(), {})


class TestSaving:
    def run(self, client: Client, link: Link | None = None) -> tuple[dict[int, int], dict[str, int]]:
        counts = Counts()
        stager = Stager(client, link or Link(), copies(memory()), counts, Lane())  # type: ignore[arg-type]
        stager.start([SAVE])
        return stager.take_ended().saves, counts.take()

    def test_wanted_pages_are_put_into_their_slots_block_after_block(self):
        client, rows = Client(wanted=(1,)), memory()
        saves, counts = self.run(client)
        image = b"".join(row[block].tobytes() for block in (3, 2) for row in rows)
        assert bytes(client.slots[1]) == image + bytes(10)
        assert saves == {7: 1} and client.ended == ["committed"]
        assert counts == {"saved_pages": 1, "save_bytes": 2 * BLOCK_BYTES, "known_pages": 1}

    def test_staging_space_is_waited_for_and_used_as_it_comes(self):
        client = Client(credits=[0, 0, 1, 0, 5])
        saves, counts = self.run(client)
        assert client.offers == [[b"k0"], [b"k1"]] and saves == {7: 1}
        assert counts["saved_pages"] == 2 and client.credits == []

    def test_what_nobody_wants_is_given_back_at_once(self):
        client = Client(wanted=())
        saves, counts = self.run(client)
        assert saves == {7: 1} and client.ended == ["aborted"] and counts == {"known_pages": 2}

    @pytest.mark.parametrize(
        "client",
        [Client(trouble=ManagerUnavailable("")), Client(refuse_commit=SaveGivenUp(""))],
        ids=["no manager", "connection lost before the commit"],
    )
    def test_trouble_costs_the_save_only(self, client):
        saves, counts = self.run(client)
        assert saves == {7: 1} and counts == {"unsaved_pages": 2}

    def test_while_the_manager_is_away_nothing_is_tried(self):
        client = Client()
        saves, counts = self.run(client, Link(up=False))
        assert saves == {7: 1} and counts == {"unsaved_pages": 2} and client.slots == {}

    def test_a_rank_without_a_layer_of_the_group_lets_go_at_once(self):
        stager = Stager(Client(), Link(), {}, Counts(), Lane())  # type: ignore[arg-type]
        stager.start([SAVE])
        assert stager.take_ended().saves == {7: 1}


def test_a_device_without_a_copier_is_refused_by_name():
    plane = SimpleNamespace(device=SimpleNamespace(type="npu"))
    with pytest.raises(AdapterError, match="npu"):
        copiers_for([[plane]])


def test_block_copies_carry_bytes_both_ways():
    rows, image = memory(), bytearray(BLOCK_BYTES)
    (copier,) = copiers_for([[Plane(row) for row in rows]])
    copier.store([BlockCopy(2, memoryview(image))], copier.fence())
    assert bytes(image) == b"".join(row[2].tobytes() for row in rows)
    copier.load([BlockCopy(0, memoryview(bytes(image)))])
    assert all(row[0].tolist() == row[2].tolist() for row in rows)


def test_a_lane_survives_a_piece_of_work_that_raises(caplog):
    from orbitkv.adapters.vllm.lane import Lane as RealLane

    lane, done = RealLane("test"), threading.Event()

    def broken() -> None:
        raise LimitExceeded("broken")

    lane.put(broken)
    lane.put(done.set)
    assert done.wait(30) and lane.finish(30)
    assert "a piece of work of the test failed" in caplog.text
