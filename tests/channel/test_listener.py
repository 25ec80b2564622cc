"""One path, one living manager; leftovers are replaced, everything else is a clear error."""

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from orbitkv.io.listener import Listener, ListenError


def test_only_its_user_may_connect_and_nothing_is_left(socket_path: Path) -> None:
    old = os.umask(0)
    try:
        listener = Listener(socket_path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(socket_path.stat().st_mode) == 0o600
    listener.close()


def test_a_leftover_of_a_killed_manager_is_replaced(socket_path: Path) -> None:
    code = (
        "import os, sys; from orbitkv.io.listener import Listener; "
        "l = Listener(sys.argv[1]); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(socket_path)], check=False)
    assert sorted(os.listdir(socket_path.parent)) == ["manager.sock", "manager.sock.lock"]
    listener = Listener(socket_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(socket_path))
    listener.close()


def test_a_living_manager_is_named(socket_path: Path) -> None:
    first = Listener(socket_path)
    with pytest.raises(ListenError, match=f"another manager \\(pid {os.getpid()}\\) lives there"):
        Listener(socket_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(socket_path))  # the first is unharmed
    first.close()
    Listener(socket_path).close()


@pytest.mark.parametrize(
    ("kind", "why"),
    [(socket.SOCK_SEQPACKET, "another manager answers there"), (socket.SOCK_STREAM, "not of this kind")],
)
def test_a_living_listener_without_a_lock_is_left_alone(socket_path: Path, kind: int, why: str) -> None:
    with socket.socket(socket.AF_UNIX, kind) as other:
        other.bind(str(socket_path))
        other.listen()
        with pytest.raises(ListenError, match=why):
            Listener(socket_path)
        assert socket_path.exists()
    socket_path.unlink()


def test_what_is_no_socket_is_not_removed(socket_path: Path) -> None:
    socket_path.write_text("precious")
    with pytest.raises(ListenError, match="no socket stands there"):
        Listener(socket_path)
    assert socket_path.read_text() == "precious"
    socket_path.unlink()


def test_a_long_path_and_a_missing_folder_are_said(socket_path: Path) -> None:
    with pytest.raises(ListenError, match="at most 107 bytes"):
        Listener(socket_path.parent / ("x" * 108))
    with pytest.raises(ListenError, match="Make the folder exist"):
        Listener(socket_path.parent / "missing" / "manager.sock")


def test_a_path_taken_over_meanwhile_is_not_taken_away(socket_path: Path) -> None:
    listener = Listener(socket_path)
    socket_path.unlink()
    socket_path.write_text("of somebody else")
    listener.close()
    assert socket_path.read_text() == "of somebody else"
    socket_path.unlink()
