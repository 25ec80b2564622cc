"""Stopping: by signal at any moment, with clients at work, and what is left behind (nothing)."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from orbitkv.adapters.client_errors import OrbitError
from orbitkv.adapters.operator import OperatorClient
from tests.faults.support import altered_manager
from tests.restart.managers import PATIENCE_S, ROOT, Place, ask, ended, restore, save, until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    place = Place(tmp_path)
    shared_memory = set(os.listdir("/dev/shm"))
    with place.manager() as manager, place.client() as client:
        save(client, range(20))
        assert manager.stop(number) == ""
    assert place.leftovers() == set()
    assert set(os.listdir("/dev/shm")) == shared_memory
    assert "closed" in place.verify()
    with place.manager() as manager:
        assert manager.recovered_pages == 20, "what was queued for the SSD was written before it left"


@pytest.mark.slow
def test_signals_at_random_moments(tmp_path: Path) -> None:
    """From before it has opened anything until it is in full work."""
    moments = random.Random(20240607)
    place = Place(tmp_path)
    for turn in range(8):
        number = moments.choice([signal.SIGTERM, signal.SIGINT])
        with ended(place.start()) as process:
            time.sleep(moments.uniform(0.02, 1.6))
            process.send_signal(number)
            said = process.communicate(timeout=PATIENCE_S)
        # Until Python runs its first line of ours, the signal's own action is what happens.
        assert process.returncode in (0, 1, 130, -number), f"turn {turn}: {said}"
        assert place.leftovers() == set(), f"turn {turn}: {said}"
    with place.manager() as manager, place.client() as client:
        save(client, range(3))
        manager.stop()
    place.verify()


@pytest.mark.slow
def test_a_signal_in_the_middle_of_work(tmp_path: Path) -> None:
    moments = random.Random(7)
    place = Place(tmp_path)
    for turn in range(3):
        with place.manager() as manager, place.client() as client:
            started = time.monotonic()
            stop_after_s = moments.uniform(0.0, 0.3)
            number, asked_to_stop = 0, False
            try:
                while time.monotonic() - started < PATIENCE_S:
                    save(client, range(1000 * turn + 10 * number, 1000 * turn + 10 * number + 10))
                    restore(client, range(1000 * turn, 1000 * turn + 10), f"{turn}-{number}")
                    number += 1
                    if not asked_to_stop and time.monotonic() - started > stop_after_s:
                        # Once: a second signal means at once, and not cleanly.
                        manager.process.send_signal(signal.SIGTERM)
                        asked_to_stop = True
            except (OrbitError, AssertionError):
                pass  # it admits nothing more, or is gone
            manager.process.communicate(timeout=PATIENCE_S)
            assert manager.process.returncode == 0
        assert place.leftovers() == set()
    assert "verify: ok" in place.verify()


def test_a_client_that_copies_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.manager() as manager, place.client() as client:
        save(client, range(5))
        view = client.begin_restore(ask(client, range(5), "r").lease)
        before = bytes(view.page(3))
        begun = time.monotonic()
        manager.stop()
        assert time.monotonic() - begun < 5
        assert bytes(view.page(3)) == before, "its mapping outlives the manager"
    place.verify()


def test_a_client_that_is_killed_while_it_copies_gives_its_pages_back(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.manager() as manager, place.client() as client:
        save(client, range(5))
        story = f"""
            import sys, time
            from pathlib import Path
            sys.path.insert(0, {str(ROOT)!r})
            from tests.restart.managers import Place, ask
            with Place(Path({str(tmp_path)!r})).client("other") as client:
                client.begin_restore(ask(client, range(5), "r").lease)
                print("copying", flush=True)
                time.sleep(60)
        """
        copying = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(story)], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        with ended(copying) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "copying\n"
            assert place.status()["outstanding"]["restores"] == 1
        until(lambda: place.status()["outstanding"]["restores"] == 0)
        assert [process["pid"] for process in place.status()["processes"]].count(other.pid) == 0
        manager.stop()
    place.verify()


def test_a_broken_rule_stops_it_with_the_log_intact(tmp_path: Path) -> None:
    place = Place(tmp_path)
    broken = """
        from orbitkv.events.commands import DropDram
        from orbitkv.manager.shell import loop
        honest = loop.step
        def broken(state, at_ns, command):
            assert not isinstance(command, DropDram), "the books do not balance"
            return honest(state, at_ns, command)
        loop.step = broken
    """
    with altered_manager(place, broken) as manager:
        with place.client() as client:
            save(client, range(5))
            until(lambda: place.pages_on_ssd() == 5)
            with pytest.raises(OrbitError):
                _drop_dram(place)
        _, said = manager.process.communicate(timeout=PATIENCE_S)
    assert manager.process.returncode == 70
    assert "the books do not balance" in said
    assert "orbitkv replay verify" in said
    assert place.leftovers() == set()
    assert "not closed" in place.verify()
    with place.manager() as manager, place.client() as client:
        assert restore(client, range(5), "after") == 5
        manager.stop()
    assert "verify: ok" in place.verify()


def test_a_second_signal_leaves_at_once_and_takes_the_socket_along(tmp_path: Path) -> None:
    place = Place(tmp_path)
    endless_drain = """
        import trio
        from orbitkv.manager.shell.manager import Manager
        async def endless(self, timeout_s):
            print("draining", flush=True)
            await trio.sleep_forever()
        Manager.drain = endless
    """
    with altered_manager(place, endless_drain) as draining:
        process = draining.process
        assert process.stdout is not None
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "draining\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGINT
    assert "second signal" in said
    assert place.leftovers() == set()
    with place.manager() as manager:
        manager.stop()
    place.verify()


def test_a_device_that_never_answers_cannot_keep_it_from_leaving(tmp_path: Path) -> None:
    place = Place(tmp_path)
    endless_close = """
        import trio
        from orbitkv.io.store import SsdStore
        from orbitkv.serve import stopping
        async def endless(self):
            with trio.CancelScope(shield=True):
                await trio.sleep_forever()
        SsdStore.aclose = endless
        stopping.CLOSE_SECONDS_MAX = 0.2
    """
    with altered_manager(place, endless_close) as closing:
        closing.process.send_signal(signal.SIGTERM)
        _, said = closing.process.communicate(timeout=PATIENCE_S)
    assert closing.process.returncode == 75
    assert "a device hangs" in said
    assert place.leftovers() == set()
    assert "closed" in place.verify()
    with place.manager() as manager:
        manager.stop()


def _drop_dram(place: Place) -> None:
    operator = OperatorClient(place.socket)
    try:
        operator.drop_dram()
    finally:
        operator.close()
