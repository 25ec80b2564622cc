"""`/health` of a running manager: what a probe is told while parts of it cannot do their work."""

import json
import re
import resource
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.restart.managers import Manager, Place, ask, restore, save, until

SEGMENT_DOES_NOT_FIT = 4 << 20
"""Longest file: the log is far shorter, a segment of the page file twice as long."""


def health(manager: Manager) -> tuple[int, dict[str, Any]]:
    url = re.search(r"http://[^/]+", manager.lines[1])
    assert url is not None
    try:
        with urllib.request.urlopen(f"{url[0]}/health", timeout=20) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def limit_files(manager: Manager, size_bytes: int) -> None:
    _, hard = resource.prlimit(manager.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(manager.process.pid, resource.RLIMIT_FSIZE, (size_bytes, hard))


def test_a_degraded_manager_is_sent_requests_until_it_can_serve_none(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.manager(**{"http-listen": "127.0.0.1:0"}) as manager, place.client() as client:
        code, told = health(manager)
        assert (code, told["status"], told["serving"], told["degradations"]) == (200, "ok", True, {})

        limit_files(manager, SEGMENT_DOES_NOT_FIT)
        assert save(client, range(5)) == 5
        until(lambda: "ssd" in health(manager)[1]["degradations"])
        code, told = health(manager)
        assert (code, told["status"], told["serving"]) == (200, "degraded", True)
        assert "saved in DRAM only" in told["degradations"]["ssd"]
        assert restore(client, range(5), "while degraded") == 5

        limit_files(manager, sum(file.stat().st_size for file in place.log.glob("*.orbitlog")))
        numbers = iter(range(10_000))

        def turned_away() -> bool:
            ask(client, range(5), f"probe {next(numbers)}")
            return health(manager)[0] == 503

        until(turned_away)
        code, told = health(manager)
        assert (told["status"], told["serving"]) == ("degraded", False)
        assert set(told["degradations"]) == {"log", "ssd"}

        limit_files(manager, SEGMENT_DOES_NOT_FIT)
        until(lambda: health(manager)[0] == 200)
        assert set(health(manager)[1]["degradations"]) == {"ssd"}
        assert restore(client, range(5), "afterwards") == 5
        said = manager.stop()
    assert [line.split(":")[1].strip() for line in said.splitlines()] == [
        "degraded (ssd)",
        "degraded (log)",
        "recovered (log)",
    ]
    assert "verify: ok" in place.verify()
