"""Who lets go of what, with a real manager, real processes and a device that can stand still."""

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orbitkv.adapters.client import QueryPart, QueryStatus
from orbitkv.events.facts import GpuSynced, LeaseEnded, QueryEnded, ReadsSubmitted
from orbitkv.events.outcomes import LeaseEnd, QueryEnd, SyncOutcome
from tests.faults.support import facts_of, forget_dram, held, is_idle, manager_with_device, only_on_ssd
from tests.restart.managers import (
    PAGE_BYTES,
    PAGE_TOKENS,
    ROOT,
    Place,
    ask,
    content,
    key,
    restore,
    save,
    until,
)


def part(numbers: range) -> list[QueryPart]:
    return [QueryPart(0, PAGE_TOKENS, 0, [key(number) for number in numbers])]


@contextmanager
def other_engine(place: Place, story: str, name: str = "other") -> Iterator["subprocess.Popen[str]"]:
    """Another process with a client that does what `story` says and then waits; killed in the end."""
    program = f"""
        import sys, time
        from pathlib import Path
        sys.path.insert(0, {str(ROOT)!r})
        from tests.restart.managers import *
        from tests.faults.test_ownership import part
        with Place(Path({str(place.path)!r})).client({name!r}) as client:
    """
    lines = textwrap.indent(textwrap.dedent(story).strip(), "    ")
    waiting = "    print('done', flush=True)\n    time.sleep(60)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{textwrap.dedent(program)}{lines}\n{waiting}"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        yield process
    finally:
        process.kill()
        process.communicate()


# --- A1, A3: reads ------------------------------------------------------------------------------------------


def test_a_cancelled_read_is_owned_until_it_drains(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with manager_with_device(place) as (manager, device), place.client() as client:
        save(client, range(8))
        only_on_ssd(place, 8)
        save(client, range(100, 103))
        device.stall()
        paused = client.query("paused", 0, part(range(8)))
        assert paused.status is QueryStatus.LOADING
        client.cancel(paused.operation)
        assert client.poll(paused.operation).status is QueryStatus.RETIRED
        assert held(place)["reads"] == 8
        assert held(place)["reserved"] > 0, "the permit stays with the reads"
        assert forget_dram(place) == 3, "the unrelated pages go, the reads' memory does not"
        save(client, range(100, 103))
        assert restore(client, range(100, 103), "unrelated") == 3, "answered meanwhile"
        device.go_on()
        until(lambda: is_idle(place))
        assert restore(client, range(8), "the same again") == 8
        manager.stop()
    place.verify()


def test_a_revised_query_never_gets_what_its_predecessor_waited_for(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with manager_with_device(place) as (manager, device), place.client() as client:
        save(client, range(8))
        only_on_ssd(place, 8)
        device.stall()
        first = client.query("r", 0, part(range(4)))
        revised = client.query("r", 0, part(range(4, 8)), revision=1)
        assert revised.operation != first.operation
        device.go_on()
        until(lambda: client.poll(first.operation).status is QueryStatus.RETIRED)
        until(lambda: client.poll(revised.operation).status is not QueryStatus.LOADING)
        view = client.begin_restore(client.poll(revised.operation).lease)
        assert [bytes(view.page(n)) for n in range(len(view))] == [content(key(n)) for n in range(4, 8)]
        client.report_sync(view.lease, SyncOutcome.SUCCEEDED, [(0, 4)], 2, 4 * PAGE_BYTES, 1)
        until(lambda: is_idle(place))
        manager.stop()
    assert [ended.end for ended in facts_of(place, QueryEnded)] == [QueryEnd.REVISED, QueryEnd.CONSUMED]
    place.verify()


def test_who_started_a_shared_read_may_leave_and_the_others_get_it_whole(tmp_path: Path) -> None:
    """By cancelling, and by being killed: two starters, and who joined both."""
    place = Place(tmp_path)
    with manager_with_device(place) as (manager, device), place.client() as client:
        save(client, range(8))
        only_on_ssd(place, 8)
        device.stall()
        with other_engine(place, "client.query('r', 0, part(range(0, 4)))") as starter:
            cancelled = client.query("cancelled", 0, part(range(8)))
            joined = client.query("joined", 0, part(range(8)))
            client.cancel(cancelled.operation)
            starter.kill()
            starter.wait()
            until(lambda: len(place.status()["processes"]) == 1)
            device.go_on()
            until(lambda: client.poll(joined.operation).status is not QueryStatus.LOADING)
        assert client.poll(joined.operation).hits == (8,)
        assert restore(client, range(8), "joined, restored") == 8
        client.release(client.poll(joined.operation).lease)
        until(lambda: is_idle(place))
        manager.stop()
    assert sum(len(read.reads) // 4 for read in facts_of(place, ReadsSubmitted)) == 8, "each page once"
    place.verify()


# --- A5, A10: syncs -----------------------------------------------------------------------------------------


def test_a_sync_that_was_delayed_lost_and_sent_again_counts_once(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.manager() as manager, place.client() as client:
        save(client, range(5))
        answer = ask(client, range(5), "r")
        view = client.begin_restore(answer.lease)
        assert forget_dram(place) == 0, "delayed: nothing is handed over"
        connection = client._session.connection
        assert connection is not None
        connection._socket.shutdown(0)  # what it sends arrives; what it is told does not
        receipt = client.report_sync(answer.lease, SyncOutcome.SUCCEEDED, [(0, 5)], 2, 5 * PAGE_BYTES, 1)
        assert (receipt.acknowledged, receipt.repeated or bool(receipt.refused)) == (True, True)
        assert client._session.connection is not connection
        until(lambda: is_idle(place))
        assert forget_dram(place) == len(view) == 5
        manager.stop()
    synced = facts_of(place, GpuSynced)
    assert [(sync.copied_bytes, sync.late) for sync in synced] == [(5 * PAGE_BYTES, False)]
    place.verify()


def test_a_lease_that_expires_under_a_copy_keeps_its_pages_and_tells_the_late_sync(tmp_path: Path) -> None:
    place = Place(tmp_path, {"lease-lifetime": "300ms"})
    with place.manager() as manager, place.client() as client:
        save(client, range(5))
        answer = ask(client, range(5), "r")
        view = client.begin_restore(answer.lease)
        until(lambda: client.poll(answer.operation).status is QueryStatus.RETIRED)
        save(client, range(1000, 1400))
        assert [bytes(view.page(n)) for n in range(5)] == [content(key(n)) for n in range(5)]
        receipt = client.report_sync(answer.lease, SyncOutcome.SUCCEEDED, [(0, 5)], 2, 5 * PAGE_BYTES, 1)
        assert (receipt.acknowledged, receipt.late) == (True, True)
        until(lambda: is_idle(place))
        manager.stop()
    assert [ended.end for ended in facts_of(place, LeaseEnded)] == [LeaseEnd.EXPIRED]
    place.verify()


def test_a_copy_whose_end_is_unknown_holds_its_pages_until_the_process_is_gone(tmp_path: Path) -> None:
    place = Place(tmp_path)
    story = """
        view = client.begin_restore(ask(client, range(5), "r").lease)
        client.report_sync(view.lease, SyncOutcome.UNKNOWN, [(0, 5)], 2, 0, 1)
    """
    with place.manager() as manager, place.client() as client:
        save(client, range(5))
        with other_engine(place, story) as other:
            assert held(place)["restores"] == 1
            assert forget_dram(place) == 0
            other.send_signal(signal.SIGSTOP)
            assert forget_dram(place) == 0, "a stopped process holds"
            other.kill()
            other.wait()
            until(lambda: is_idle(place))
        assert forget_dram(place) == 5
        manager.stop()
    place.verify()


# --- A9: an engine that is killed ---------------------------------------------------------------------------

EVERYTHING_OPEN = """
    save(client, range(50, 55))
    client.begin_save(0, [key(number) for number in range(200, 205)])
    plan = client.begin_save(0, [key(number) for number in range(300, 305)])
    client.commit_save(plan)
    ready = ask(client, range(50, 55), "ready")
    copying = client.begin_restore(ask(client, range(50, 53), "copying").lease)
    client.query("loading", 0, part(range(8)))
    client.warm_prefix("queued", 0, part(range(8, 12)))
"""


def test_an_engine_that_is_killed_with_everything_open(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with manager_with_device(place) as (manager, device), place.client() as client:
        save(client, range(12))
        only_on_ssd(place, 12)
        device.stall()
        with other_engine(place, EVERYTHING_OPEN) as other:
            counts = held(place)
            assert (counts["leases"], counts["restores"], counts["reads"]) == (2, 1, 8), counts
            assert counts["saves"] >= 5
            other.kill()
            other.wait()
        until(lambda: held(place)["leases"] == 0)
        assert held(place)["reads"] == 8, "what was submitted drains, nobody takes it back"
        assert held(place)["reserved"] > 0
        device.go_on()
        until(lambda: is_idle(place))
        assert restore(client, range(12), "after") == 12
        assert ask(client, range(200, 205), "half saved").status is QueryStatus.MISSED
        with other_engine(place, EVERYTHING_OPEN):
            pass  # its name is free, and it can do it all again
        until(lambda: is_idle(place))
        manager.stop()
    place.verify()
