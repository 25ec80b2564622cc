"""Full disks, disks for reading only, hosts that refuse: the manager says so and serves, or says why not."""

import errno
import os
import re
import urllib.request
from pathlib import Path

import pytest

from orbitkv.adapters.client import CacheManagerClient, QueryStatus
from orbitkv.events.commands import Start
from tests.disks import make_read_only, small_disk
from tests.faults.support import (
    altered_manager,
    only_on_ssd,
    records_of,
)
from tests.restart.managers import (
    PATIENCE_S,
    Place,
    ask,
    restore,
    save,
    until,
)

MISTAKE = 2
PAGES = 6


EAGER = """
    from orbitkv.manager.shell import ssd
    ssd.RETRY_INTERVAL_S = 0.3
"""


def seen_by_others(disk: Path) -> Path:
    """A disk of this process, which is mounted nowhere, as another process finds it."""
    return Path(f"/proc/{os.getpid()}/fd/{disk.name}")


def _degradation(place: Place, component: str) -> str:
    """Wait for one; what it says."""
    told: list[str] = []

    def is_degraded() -> bool:
        told.extend(filter(None, [place.status()["degradations"].get(component)]))
        return bool(told)

    until(is_degraded)
    return told[0]


def test_an_ssd_that_is_full_takes_no_more_and_everything_else_goes_on(tmp_path: Path) -> None:
    """Room for two segments of eight; then for three, when somebody has cleaned up."""
    with small_disk(26 << 20) as disk:
        filler = disk / "filler"
        filler.write_bytes(bytes(8 << 20))
        place = Place(tmp_path, {"ssd-path": str(seen_by_others(disk))})
        with altered_manager(place, EAGER) as manager, place.client() as client:
            for first in range(0, 240, 30):
                assert save(client, range(first, first + 30)) == 30
            why = _degradation(place, "ssd")
            assert "no space" in why
            assert "lower ssd_bytes" in why, "and what mends it"
            assert place.status()["serving"]
            assert restore(client, range(30), "from what is there") == 30
            before = place.pages_on_ssd()
            filler.unlink()
            until(lambda: bool(place.status()["ssd"]["writable"]))
            assert save(client, range(1000, 1030)) == 30
            until(lambda: place.pages_on_ssd() > before)
            until(lambda: place.status()["status"] == "ok")
            said = manager.stop()
            assert "degraded (ssd)" in said
            assert "recovered (ssd)" in said
        assert "verify: ok" in place.verify()


def test_an_ssd_or_a_log_on_a_disk_for_reading_only_is_named(tmp_path: Path) -> None:
    with small_disk(16 << 20) as disk:
        make_read_only(disk)
        path = str(seen_by_others(disk))
        for setting in ("ssd-path", "log-path"):
            process = Place(tmp_path).start(**{setting: path})
            _, said = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == MISTAKE, said
            assert "Traceback" not in said
            assert setting.replace("-", "_") in said
            assert "read-only" in said.lower()
    assert Place(tmp_path).leftovers() == set()


def test_no_room_for_the_log_at_the_start_is_named(tmp_path: Path) -> None:
    with small_disk(1 << 20) as disk:
        (disk / "filler").touch()
        with (disk / "filler").open("wb", buffering=0) as filler:
            while os.fstatvfs(filler.fileno()).f_bavail:
                filler.write(bytes(4096))
        process = Place(tmp_path).start(**{"log-path": str(seen_by_others(disk))})
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == MISTAKE, said
        assert "Traceback" not in said
        assert "log_path" in said
    assert Place(tmp_path).leftovers() == set()


def test_a_log_disk_that_really_is_full_stops_admission_until_there_is_room(tmp_path: Path) -> None:
    with small_disk(2 << 20) as disk:
        place = Place(tmp_path, {"log-path": str(seen_by_others(disk)), "ssd-path": ""})
        with place.manager() as manager, place.client() as client:
            save(client, range(5))
            kept = ask(client, range(5), "before")
            filler = disk / "filler"
            with filler.open("wb", buffering=0) as file:
                while os.fstatvfs(file.fileno()).f_bavail:
                    file.write(bytes(4096))
            numbers = iter(range(100_000))
            until(lambda: _is_stopped(place, client, next(numbers)))
            assert "No space left" in place.status()["degradations"]["log"]
            assert ask(client, range(5), "before").lease == kept.lease, "promises are kept"
            assert ask(client, range(5), "new").status is QueryStatus.MISSED
            filler.unlink()
            until(lambda: place.status()["status"] == "ok")
            assert restore(client, range(5), "after") == 5
            manager.stop()
        assert "verify: ok" in place.verify()


def _is_stopped(place: Place, client: CacheManagerClient, number: int) -> bool:
    """Asking writes the log, and so finds out that it cannot be written."""
    ask(client, range(5), f"probe {number}")
    return bool(place.status()["status"] == "degraded")


# --- B14: a host that refuses -------------------------------------------------------------------------------

REFUSING_HOST = """
    from tests.io.refusing_host import refuse
    refuse(io_uring_errno={number}, direct={direct})
"""


@pytest.mark.parametrize(
    ("number", "direct", "engine", "is_direct"),
    [
        (errno.EPERM, False, "threads", True),
        (errno.ENOSYS, False, "threads", True),
        (0, True, "io_uring", False),
        (errno.EPERM, True, "threads", False),
    ],
)
def test_a_host_that_refuses_io_uring_or_o_direct_is_served_all_the_same(
    tmp_path: Path, number: int, direct: bool, engine: str, is_direct: bool
) -> None:
    """Refused for real, by a seccomp filter. Afterwards it is killed and leaves nothing that hinders."""
    place = Place(tmp_path, {"http-listen": "127.0.0.1:0"})
    alteration = REFUSING_HOST.format(number=number, direct=direct)
    with altered_manager(place, alteration) as manager, place.client() as client:
        assert f"SSD by {engine}{' with O_DIRECT' if is_direct else ''}: " in manager.lines[0]
        if number:
            assert errno.errorcode[number] in manager.lines[0] or os.strerror(number) in manager.lines[0]
        save(client, range(PAGES))
        only_on_ssd(place, PAGES)
        assert restore(client, range(PAGES), "r") == PAGES
        shown = {"engine": engine, "direct": is_direct}
        assert place.status()["io"].items() >= shown.items()
        url = manager.lines[1].split("metrics at ")[1].strip()
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as response:
            metrics = response.read().decode()
        flag = str(is_direct).lower()
        assert re.search(
            rf'orbitkv_ssd_engine_info{{direct="{flag}",engine="{engine}",reason=".+"}} 1', metrics
        )
        manager.kill()
    started = [record.cause for record in records_of(place) if isinstance(record.cause, Start)]
    assert [(start.io_engine, start.io_direct) for start in started] == [(engine, is_direct)]
    with place.manager() as manager, place.client() as client:
        assert restore(client, range(PAGES), "by another engine") == PAGES
        manager.stop()
    assert place.leftovers() == set()
    assert "verify: ok" in place.verify()
