"""Abort everywhere: a client cancels, or is killed, at each stage of a request's life."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitkv.adapters.client import CacheManagerClient, QueryPart, QueryStatus
from orbitkv.events.facts import HintAdmitted
from orbitkv.events.outcomes import SyncOutcome
from tests.channel.children import Child
from tests.faults.support import (
    Device,
    facts_of,
    forget_dram,
    held,
    is_idle,
    manager_with_device,
    only_on_ssd,
)
from tests.restart.managers import (
    GROUPS,
    NAMESPACE,
    PAGE_BYTES,
    PAGE_TOKENS,
    PATIENCE_S,
    Place,
    ask,
    key,
    restore,
    save,
    until,
)

PAGES = 12
STAGES = ("hint queued", "read submitted", "read half done", "ready", "leased", "restoring", "finished")

kept: list[CacheManagerClient] = []
"""In the child: else its connections would end when the story has been told, and not when it is killed."""


def live_until(place: Place, stage: str, name: str, numbers: range) -> Callable[[], str]:
    """A client's life up to a stage; to be run in a process of its own. Gives its operation, as hex."""

    def life() -> str:
        client = CacheManagerClient(
            place.socket, instance=name, namespace=NAMESPACE, groups=GROUPS, timeout_s=PATIENCE_S
        )
        client.register()
        kept.append(client)
        part = [QueryPart(0, PAGE_TOKENS, 0, [key(number) for number in numbers])]
        client.warm_prefix("r", 0, part)
        if stage == "hint queued":
            client.registration()  # its answer comes after the hint was looked at
            return ""
        answer = client.query("r", 0, part)
        if stage in ("read submitted", "read half done"):
            return answer.operation.hex()
        until(lambda: client.poll(answer.operation).status is not QueryStatus.LOADING)
        if stage == "ready":
            return answer.operation.hex()
        lease = client.poll(answer.operation).lease
        if stage != "leased":
            client.begin_restore(lease)
        if stage == "finished":
            pages = len(numbers)
            client.report_sync(lease, SyncOutcome.SUCCEEDED, [(0, pages)], 2, pages * PAGE_BYTES, 1)
        return answer.operation.hex()

    def life_and_cancel() -> str:
        operation = bytes.fromhex(life())
        client = kept[-1]
        client.cancel_hint("r", 0)
        client.cancel_hint("r", 0)
        if operation:
            assert client.cancel(operation) == (stage != "finished")
            assert not client.cancel(operation), "twice is harmless"
        return ""

    return life_and_cancel if name.startswith("cancelling") else life


def one_round(place: Place, device: Device, chance: random.Random, number: int) -> None:
    stage = STAGES[number % len(STAGES)]
    first = chance.randrange(PAGES - 1)
    numbers = range(first, chance.randrange(first + 1, PAGES + 1))
    if chance.random() < 0.7:
        forget_dram(place)
    if stage in ("hint queued", "read submitted"):
        device.stall()
    if stage == "read half done":
        device.stall(after=len(numbers) // 2)
    name = f"{chance.choice(('killed', 'cancelling'))} {number}"
    child = Child(live_until(place, stage, name, numbers), linger=True)
    try:
        child.answer()
    finally:
        child.kill()
    device.go_on()


@pytest.mark.parametrize("rounds", [21, pytest.param(700, marks=pytest.mark.slow)])
def test_abort_everywhere(tmp_path: Path, rounds: int) -> None:
    """tests/shell/test_faults.py does 5,000 rounds over doubles; these have processes, files and sockets."""
    place = Place(tmp_path, {"hint-lifetime": "60s"})
    chance = random.Random(rounds)
    with manager_with_device(place) as (manager, device), place.client() as client:
        save(client, range(PAGES))
        only_on_ssd(place, PAGES)
        for number in range(rounds):
            one_round(place, device, chance, number)
            until(lambda: is_idle(place))
        forget_dram(place)
        assert held(place)["used"] == 0
        part = [QueryPart(0, PAGE_TOKENS, 0, [key(number) for number in range(PAGES)])]
        assert isinstance(client.warm_prefix("afterwards", 0, part), int)
        until(lambda: held(place)["pending"] > 0 and held(place)["reads"] == 0)
        assert ask(client, range(PAGES), "afterwards").hits == (PAGES,)
        assert restore(client, range(PAGES), "and copied") == PAGES
        manager.stop()
    admitted = facts_of(place, HintAdmitted)
    assert len(admitted) > rounds // 4
    assert "verify: ok" in place.verify()
