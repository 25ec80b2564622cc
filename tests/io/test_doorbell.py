"""The doorbell never loses a ring, whichever way its two ends interleave."""

import os
import select
import threading
from collections import deque

import pytest

from orbitkv.io.doorbell import Doorbell


def is_readable(doorbell: Doorbell) -> bool:
    return bool(select.select([doorbell.fileno()], [], [], 0)[0])


def test_it_is_readable_from_the_ring_to_the_answer() -> None:
    doorbell = Doorbell()
    assert not is_readable(doorbell)
    doorbell.ring()
    doorbell.ring()
    assert is_readable(doorbell)
    doorbell.answer()
    assert not is_readable(doorbell)
    doorbell.answer()
    doorbell.ring()
    assert is_readable(doorbell)
    doorbell.close()


def test_the_flag_is_up_before_the_loop_can_wake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the woken loop sees no ring to answer and wakes again and again until the ringer runs on."""
    doorbell, seen = Doorbell(), []
    write = os.eventfd_write
    monkeypatch.setattr(os, "eventfd_write", lambda *to: (seen.append(doorbell._rung), write(*to)))
    doorbell.ring()
    assert seen == [True]
    doorbell.close()


def test_everything_put_down_before_a_ring_is_collected() -> None:
    doorbell, left = Doorbell(), deque[int]()

    def put_down() -> None:
        for number in range(2000):
            left.append(number)
            doorbell.ring()

    threads = [threading.Thread(target=put_down) for _ in range(3)]
    for thread in threads:
        thread.start()
    collected = 0
    while collected < 3 * 2000:
        assert select.select([doorbell.fileno()], [], [], 5)[0], f"silent after {collected}"
        doorbell.answer()
        while left:
            left.popleft()
            collected += 1
    for thread in threads:
        thread.join()
    doorbell.close()
