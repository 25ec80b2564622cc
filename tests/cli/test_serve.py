"""A real manager from the command line: what it says, its endpoint, the operator's commands, its ends."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest

from orbitkv.__main__ import MISTAKE

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("ORBITKV_")}


@attrs.frozen
class Running:
    process: "subprocess.Popen[str]"
    socket_path: Path
    said: list[str]
    """Its first two lines."""
    url: str

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        request = urllib.request.Request(self.url + path, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


def arguments(folder: Path, **settings: str) -> list[str]:
    settings = {
        "socket_path": str(folder / "manager.sock"),
        "log_path": str(folder / "log"),
        "ssd_path": str(folder / "ssd"),
        "ssd_bytes": "64MiB",
        "ssd_segment_bytes": "32MiB",
        "pool_bytes": "32MiB",
        "http_listen": "127.0.0.1:0",
    } | settings
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    return [sys.executable, "-m", "orbitkv", "serve", *flags]


def refused(folder: Path, **settings: str) -> str:
    done = subprocess.run(
        arguments(folder, **settings), capture_output=True, text=True, timeout=60, cwd=ROOT, env=ENVIRONMENT
    )
    assert done.returncode == MISTAKE, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@contextmanager
def started(folder: Path) -> Iterator[Running]:
    with subprocess.Popen(
        arguments(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=ENVIRONMENT,
    ) as process:
        try:
            assert process.stdout is not None
            said = [process.stdout.readline(), process.stdout.readline()]
            found = re.search(r"(http://127\.0\.0\.1:\d+)/metrics", "".join(said))
            assert found, said
            yield Running(process, folder / "manager.sock", said, found[1])
        finally:
            process.kill()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with started(tmp_path_factory.mktemp("manager")) as manager:
        yield manager


def test_it_says_how_it_reads_the_ssd(running: Running) -> None:
    assert re.search(r"SSD by (io_uring|threads)", running.said[0])


def test_the_endpoint(running: Running) -> None:
    status, health = running.get("/health")
    assert (status, json.loads(health)["status"]) == (200, "ok")
    status, metrics = running.get("/metrics")
    assert status == 200
    assert "orbitkv_pool_capacity_bytes 3.3554432e+07\n" in metrics
    assert 'orbitkv_ssd_engine_info{direct="' in metrics
    status, cleaned = running.get("/cache/memory/cleanup", "POST")
    assert status == 200
    assert isinstance(json.loads(cleaned), dict)


def admin(running: Running, *words: str) -> str:
    command = [sys.executable, "-m", "orbitkv", "admin", "--socket-path", str(running.socket_path), *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd=ROOT, env=ENVIRONMENT, check=True
    )
    return done.stdout


def test_the_operators_commands(running: Running) -> None:
    assert json.loads(admin(running, "status"))["status"] == "ok"
    assert admin(running, "drop-dram") == "dropped 0 pages\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_clean(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path) as manager:
        manager.process.send_signal(number)
        _, complaints = manager.process.communicate(timeout=30)
    assert manager.process.returncode == 0, complaints
    assert complaints == ""
    assert not manager.socket_path.exists()


def test_a_second_manager_is_refused(running: Running, tmp_path: Path) -> None:
    assert "manager.sock" in refused(tmp_path, socket_path=str(running.socket_path))
    assert running.get("/health")[0] == 200


def test_what_cannot_be_had_is_told_with_its_setting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "set http_listen to another port" in refused(tmp_path, http_listen=f"127.0.0.1:{port}")
    assert "pool_bytes" in refused(tmp_path, pool_bytes="8TiB")
    (tmp_path / "file").touch()
    assert "ssd_path" in refused(tmp_path, ssd_path=str(tmp_path / "file"))
    assert "log" in refused(tmp_path, log_path=str(tmp_path / "file"))
    assert not (tmp_path / "manager.sock").exists()
