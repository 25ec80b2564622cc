"""A crowd that talks well-formed nonsense to a real manager that checks all its rules after every record."""

from pathlib import Path

import pytest

from tests.channel.children import in_child
from tests.faults.fuzzing import talk
from tests.faults.support import altered_manager, descriptors_of, is_idle
from tests.restart.managers import Place, restore, save, until

CHECKING = """
    from orbitkv.manager.kernel import invariants
    from orbitkv.manager.shell.loop import Loop
    Loop._check_if_due = lambda self: invariants.check(self.state)
"""
SHORT_LIVES = {
    "demand-lifetime": "200ms",
    "hint-lifetime": "100ms",
    "lease-lifetime": "300ms",
    "save-lifetime": "400ms",
    "operations-per-session-max": "20",
    "ssd-bytes": "32MiB",
}


@pytest.mark.parametrize(
    ("seed", "messages"),
    [
        (1, 2_500),
        (2, 2_500),
        *(pytest.param(seed, 12_000, marks=pytest.mark.slow) for seed in range(3, 9)),
    ],
)
def test_nonsense_costs_nobody_else_anything(tmp_path: Path, seed: int, messages: int) -> None:
    place = Place(tmp_path, SHORT_LIVES)
    with altered_manager(place, CHECKING) as manager:
        with place.client("honest") as client:
            save(client, range(9_000, 9_005))
        until(lambda: place.status()["sessions"] == 1)
        before = descriptors_of(manager.process)
        heard = in_child(talk(place, seed, messages))
        assert isinstance(heard, dict)
        assert sum(heard.values()) > messages * 0.9
        for reached in ("BeginRestore RestoreBegun", "ReportSync SyncTaken", "CommitSave SaveCommitted"):
            assert heard.get(reached), heard
        until(lambda: is_idle(place))
        until(lambda: descriptors_of(manager.process) <= before)
        with place.client("honest") as client:
            assert save(client, range(9_100, 9_103)) == 3
            assert restore(client, range(9_100, 9_103), "served") == 3
        assert manager.stop() == ""
    assert "verify: ok" in place.verify()
