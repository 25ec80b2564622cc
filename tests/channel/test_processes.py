"""Telling processes apart, and knowing when one is gone: a page may be reused only then."""

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from orbitkv.events.outcomes import SessionEnd
from orbitkv.io import wire
from orbitkv.io.framing import encode_greeting
from orbitkv.io.host import started_ticks
from orbitkv.io.peers import ProcessTable, is_over
from orbitkv.manager.ports import Connected, Disconnected, ProcessEnded, Request
from tests.channel.children import Child
from tests.channel.raw import RawClient
from tests.channel.serving import connect, serve_while, take
from tests.channel.stub import make_channel

TABLES: dict[str, Callable[[], ProcessTable]] = {
    "SO_PEERPIDFD": ProcessTable,
    "pidfd_open": lambda: ProcessTable(peer_pidfd=False),
}


@pytest.mark.parametrize("table", TABLES)
def test_connections_of_one_process_are_one_process(socket_path: Path, table: str, descriptors: None) -> None:
    async def main() -> None:
        channel = make_channel(socket_path, processes=TABLES[table]())
        clients = [RawClient(socket_path) for _ in range(2)]
        for client in clients:
            client.hello()
        child = Child(lambda: _greet(socket_path), linger=True)
        connected = [item for item in await take(channel, 3) if isinstance(item, Connected)]
        here = {item.process for item in connected if item.pid == os.getpid()}
        there = {item.process for item in connected if item.pid == child.pid}
        assert len(here) == len(there) == 1
        assert here != there
        assert all(item.end_observable for item in connected)
        child.kill()
        await take(channel, 2)
        for client in clients:
            client.close()
        await channel.aclose()

    trio.run(main)


def _greet(path: Path, requests: int = 0) -> RawClient | None:
    client = RawClient(path)
    client.hello()
    client.welcome()
    for _ in range(requests):
        client.status()
    _kept.append(client)
    return None


_kept: list[RawClient] = []


@pytest.mark.parametrize("table", TABLES)
def test_a_killed_process_is_heard_out_then_reported(
    socket_path: Path, table: str, descriptors: None
) -> None:
    async def main() -> None:
        channel = make_channel(socket_path, processes=TABLES[table]())
        child = Child(lambda: _greet(socket_path, requests=5), linger=True)
        connected, _ = await serve_while(channel, child.answer)
        assert isinstance(connected[0], Connected)
        # What it said and was not yet read is heard after its death.
        child2 = Child(lambda: _greet(socket_path, requests=0), linger=True)
        await serve_while(channel, child2.answer)
        child.kill()
        inbound = connected[1:] + await take(channel, 7 - (len(connected) - 1))
        assert [type(item) for item in inbound] == [Request] * 5 + [Disconnected, ProcessEnded]
        assert inbound[-1] == ProcessEnded(connected[0].process)
        child2.kill()
        await take(channel, 2)
        assert repr(channel).endswith("connections=0, sessions=0, processes=0)")
        await channel.aclose()

    trio.run(main)


def test_a_socket_that_lives_on_in_a_grandchild_ends_with_its_process(
    socket_path: Path, descriptors: None
) -> None:
    """The grandchild holds the descriptor, but it is not who was let in: nothing it holds counts."""
    read_end, write_end = os.pipe()

    def connect_and_fork() -> int:
        _greet(socket_path, requests=2)
        grandchild = os.fork()
        if grandchild == 0:
            kept = {read_end, _kept[-1].socket.fileno()}
            for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
                if fd > 2 and fd not in kept:
                    try:
                        os.close(fd)
                    except OSError:
                        pass  # the listing's own
            os.read(read_end, 1)
            os._exit(0)
        return grandchild

    async def main() -> None:
        channel = make_channel(socket_path)
        child = Child(connect_and_fork, linger=True)
        inbound, _grandchild = await serve_while(channel, child.answer)
        child.kill()
        inbound += await take(channel, 5 - len(inbound))
        assert [type(item) for item in inbound] == [Connected, Request, Request, Disconnected, ProcessEnded]
        ended = inbound[3]
        assert isinstance(ended, Disconnected)
        assert ended.cause is SessionEnd.PROCESS_GONE
        await channel.aclose()

    trio.run(main)
    os.close(write_end)
    os.close(read_end)


def test_a_stopped_process_has_not_ended(socket_path: Path) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        child = Child(lambda: _greet(socket_path), linger=True)
        await serve_while(channel, child.answer)
        os.kill(child.pid, signal.SIGSTOP)
        with trio.move_on_after(0.2):
            raise AssertionError(await channel.receive())
        os.kill(child.pid, signal.SIGCONT)
        child.kill()
        assert [type(item) for item in await take(channel, 2)] == [Disconnected, ProcessEnded]
        await channel.aclose()

    trio.run(main)


def test_a_process_that_closed_its_connections_is_still_watched(socket_path: Path) -> None:
    """It may still be copying: only its end says that it is not."""

    def greet_and_leave() -> None:
        _greet(socket_path)
        _kept.pop().close()

    async def main() -> None:
        channel = make_channel(socket_path)
        child = Child(greet_and_leave, linger=True)
        inbound, _ = await serve_while(channel, child.answer)
        inbound += await take(channel, 2 - len(inbound))
        assert [type(item) for item in inbound] == [Connected, Disconnected]
        child.kill()
        (ended,) = await take(channel, 1)
        assert isinstance(ended, ProcessEnded)
        await channel.aclose()

    trio.run(main)


def test_without_pidfds_the_end_is_unknown_and_said_to_be(socket_path: Path) -> None:
    async def main() -> None:
        channel = make_channel(socket_path, processes=ProcessTable(peer_pidfd=False, pidfd_open=False))
        child = Child(lambda: _greet(socket_path), linger=True)
        client = RawClient(socket_path)
        client.hello()
        inbound, _ = await serve_while(channel, child.answer)
        inbound += await take(channel, 2 - len(inbound))
        connected = [item for item in inbound if isinstance(item, Connected)]
        assert [item.end_observable for item in connected] == [False, False]
        again = RawClient(socket_path)
        again.hello()
        (second,) = await take(channel, 1)
        assert isinstance(second, Connected)
        assert second.process in {item.process for item in connected if item.pid == os.getpid()}
        child.kill()
        assert [type(item) for item in await take(channel, 1)] == [Disconnected]
        client.close()
        again.close()
        await channel.aclose()

    trio.run(main)


@pytest.mark.parametrize("told", [0, 1])
def test_a_pid_whose_start_time_is_not_the_told_one_is_not_believed(socket_path: Path, told: int) -> None:
    """Without SO_PEERPIDFD the pid may have been reused between connect() and pidfd_open()."""

    async def main() -> None:
        channel = make_channel(socket_path, processes=ProcessTable(peer_pidfd=False))
        client = RawClient(socket_path)
        client.send_bytes(encode_greeting(wire.Hello(os.getpid(), "here", told)))
        (connected,) = await take(channel, 1)
        assert isinstance(connected, Connected)
        assert not connected.end_observable
        client.close()
        await channel.aclose()

    trio.run(main)


def test_a_process_that_is_gone_already_is_not_let_in(socket_path: Path, descriptors: None) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        keep, passed = socket.socketpair()

        def connect_and_pass_on() -> None:
            client = RawClient(socket_path)
            client.hello()
            socket.send_fds(passed, [b"x"], [client.socket.fileno()])

        child = Child(connect_and_pass_on)
        child.answer()
        child.join()
        _, (fd,), _, _ = socket.recv_fds(keep, 1, 1)
        with trio.move_on_after(0.1):
            raise AssertionError(await channel.receive())
        assert channel.connections == 0
        for one in (keep, passed):
            one.close()
        os.close(fd)
        await channel.aclose()

    trio.run(main)


def test_pids_that_are_used_again_are_other_processes() -> None:
    assert started_ticks(os.getpid()) == started_ticks() > 0
    assert started_ticks(1 << 22) == 0
    child = Child(lambda: None, linger=True)
    pidfd = os.pidfd_open(child.pid)
    assert not is_over(pidfd)
    child.kill()
    assert is_over(pidfd)
    os.close(pidfd)


def test_many_processes_leave_nothing_behind(socket_path: Path, descriptors: None) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        for _ in range(10):
            child = Child(lambda: _greet(socket_path))
            inbound, _ = await serve_while(channel, child.answer)
            inbound += await take(channel, 3 - len(inbound))
            assert isinstance(inbound[-1], ProcessEnded)
            child.join()
        client = RawClient(socket_path)
        await connect(channel, client)
        assert repr(channel).endswith("connections=1, sessions=1, processes=1)")
        client.close()
        await channel.aclose()

    started = time.monotonic()
    trio.run(main)
    assert time.monotonic() - started < 10
