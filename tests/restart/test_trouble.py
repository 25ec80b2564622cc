"""What is wrong with the place: said clearly at the start, survived afterwards."""

import resource
import socket
from pathlib import Path

from orbitkv.adapters.client import CacheManagerClient, QueryStatus
from tests.restart.managers import PATIENCE_S, Place, ask, restore, save, until

MISTAKE = 2


def refused(place: Place, **changed: str) -> str:
    """What a manager says that does not start."""
    process = place.start(**changed)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == MISTAKE, said
    assert "Traceback" not in said
    return said


def test_a_second_manager_is_refused_whatever_it_shares(tmp_path: Path) -> None:
    place = Place(tmp_path)
    elsewhere = {
        "socket-path": str(tmp_path / "other.sock"),
        "log-path": str(tmp_path / "other-log"),
        "ssd-path": str(tmp_path / "other-ssd"),
    }
    with place.manager() as manager, place.client() as client:
        pid = str(manager.process.pid)
        for shared, remedy in (
            ("socket-path", "--socket-path"),
            ("log-path", "log_path"),
            ("ssd-path", "ssd_path"),
        ):
            apart = {name: value for name, value in elsewhere.items() if name != shared}
            said = refused(place, **apart)
            assert pid in said, said
            assert remedy in said, said
        assert not (tmp_path / "other.sock").exists()
        assert save(client, range(3)) == 3, "the first one noticed nothing"
        manager.stop()


def test_what_a_killed_manager_leaves_is_taken_over(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.manager() as manager:
        manager.kill()
    assert place.leftovers() == {"orbitkv.sock", "orbitkv.sock.lock"}
    with place.manager() as manager:
        manager.stop()
    assert place.leftovers() == set()


def test_a_socket_path_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.socket.write_text("precious")
    assert "no socket" in refused(place)
    assert place.socket.read_text() == "precious"


def test_places_and_sizes_that_cannot_work_are_named_with_their_remedy(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (tmp_path / "file").write_text("")
    assert "ssd_path" in refused(place, **{"ssd-path": str(tmp_path / "file")})
    assert "log_path" in refused(place, **{"log-path": str(tmp_path / "file")})
    assert "pool_bytes" in refused(place, **{"pool-bytes": "8TiB"})
    assert "query_keys_max" in refused(place, **{"query-keys-max": "1000000"})
    assert place.leftovers() == {"file"}


def test_an_http_port_that_is_taken_is_named(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "http_listen" in refused(place, **{"http-listen": f"127.0.0.1:{port}"})
    assert place.leftovers() == set()
    with place.manager() as manager:
        assert "incarnation 2," in manager.lines[0]
        manager.stop()
    place.verify()


def test_the_first_line_says_what_is_in_force_and_why(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.manager(**{"io-engine": "threads", "io-direct": "off"}) as manager, place.client() as client:
        assert manager.lines[0].startswith("OrbitKV ")
        assert f"incarnation 1, at {place.socket}; SSD by threads: " in manager.lines[0]
        assert 'io_engine = "threads"' in manager.lines[0]
        assert 'io_direct = "off"' in manager.lines[0]
        save(client, range(3))
        until(lambda: place.pages_on_ssd() == 3)
        manager.kill()
    with place.manager(**{"io-engine": "auto"}) as manager, place.client() as client:
        assert restore(client, range(3), "r") == 3, "one engine reads what the other wrote"


def test_a_log_disk_that_is_full_stops_admission_until_it_has_room(tmp_path: Path) -> None:
    """A limit on file sizes stands for the full disk: the write fails in the same place."""
    place = Place(tmp_path)
    with place.manager(**{"ssd-path": ""}) as manager, place.client() as client:
        save(client, range(5))
        kept = ask(client, range(5), "before")
        pid = manager.process.pid
        written = sum(path.stat().st_size for path in place.log.glob("*.orbitlog"))
        limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (written, limits[1]))
        numbers = iter(range(10_000))
        until(lambda: _is_stopped(place, client, next(numbers)))
        assert "File too large" in place.status()["degradations"]["log"]
        assert ask(client, range(5), "before").lease == kept.lease
        assert ask(client, range(5), "during").status is QueryStatus.MISSED
        client.release(kept.lease)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
        until(lambda: place.status()["status"] == "ok")
        assert restore(client, range(5), "after") == 5
        said = manager.stop()
        assert "degraded (log)" in said
        assert "recovered (log)" in said
    assert "verify: ok" in place.verify()


def test_a_stop_while_the_log_disk_is_full_says_what_is_lost(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.manager() as manager, place.client() as client:
        save(client, range(5))
        until(lambda: place.pages_on_ssd() == 5)
        written = sum(path.stat().st_size for path in place.log.glob("*.orbitlog"))
        limits = resource.prlimit(manager.process.pid, resource.RLIMIT_FSIZE)
        # The page file is longer than this already: only what grows is concerned.
        resource.prlimit(manager.process.pid, resource.RLIMIT_FSIZE, (written, limits[1]))
        numbers = iter(range(10_000))
        until(lambda: _is_stopped(place, client, next(numbers)))
        manager.process.terminate()
        _, said = manager.process.communicate(timeout=PATIENCE_S)
        assert manager.process.returncode == 70
        assert "the last records are not in the log" in said
        assert "Traceback" not in said
    assert place.leftovers() == set()
    with place.manager() as manager, place.client() as client:
        assert restore(client, range(5), "after") == 5
        manager.stop()
    assert "verify: ok" in place.verify()


def _is_stopped(place: Place, client: CacheManagerClient, number: int) -> bool:
    """Asking writes the log, and so finds out that it cannot be written."""
    ask(client, range(5), f"probe {number}")
    return bool(place.status()["status"] == "degraded")
