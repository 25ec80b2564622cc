"""Who is let in, and what those who are not are told."""

import mmap
import os
import resource
import socket
import struct
import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from orbitkv.adapters.client_errors import ChannelPoisoned, ConnectionLost, ManagerUnavailable, NotWelcome
from orbitkv.adapters.handshake import shake_hands
from orbitkv.io import wire
from orbitkv.io.channel import ChannelLimits
from orbitkv.io.framing import encode_greeting
from orbitkv.io.host import this_host
from orbitkv.manager.ports import Connected, Disconnected, Inbound
from tests.channel.raw import RawClient
from tests.channel.serving import settle
from tests.channel.stub import POOL_BYTES, StubManager, make_channel


def test_the_welcome_brings_pool_board_and_numbers(socket_path: Path, descriptors: None) -> None:
    with StubManager(socket_path, incarnation=7) as manager:
        greeted = shake_hands(str(socket_path), 5)
        assert greeted.welcome == wire.Welcome("0.test", 7, 1, POOL_BYTES, 64)
        manager.pool[100:105] = b"hello"
        with mmap.mmap(greeted.pool_fd, POOL_BYTES, prot=mmap.PROT_READ) as pool:
            assert pool[100:105] == b"hello"
        second = shake_hands(str(socket_path), 5)
        assert second.welcome.session == 2
        first = manager.seen[0]
        assert isinstance(first, Connected)
        assert (first.session, first.pid, first.uid, first.host) == (1, os.getpid(), os.getuid(), this_host())
        assert first.end_observable
        for one in (greeted, second):
            one.socket.close()
            os.close(one.pool_fd)
            os.close(one.board_fd)


@pytest.mark.parametrize("abi", [4, 6])
def test_another_abi_is_refused_with_both_numbers(socket_path: Path, abi: int, descriptors: None) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        client = RawClient(socket_path)
        client.send_bytes(struct.pack("<8sI", wire.MAGIC, abi) + b"\x93\x01")
        assert await settle(channel) == []
        answer = client.welcome()
        assert isinstance(answer, wire.NotWelcome)
        assert answer.name == "OTHER_ABI"
        assert "ABI 5" in answer.sentence
        assert f"ABI {abi}" in answer.sentence
        assert client.ended()
        assert channel.connections == 0
        client.close()
        await channel.aclose()

    trio.run(main)


@pytest.mark.parametrize(
    "greeting",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        struct.pack("<8sI", b"OrbitKW\0", 5) + b"\x93\x01\x01\xa1h",
        struct.pack("<8sI", wire.MAGIC, 5),
        struct.pack("<8sI", wire.MAGIC, 5) + b"\xc1" * 40,
        b"\0" * (wire.MESSAGE_BYTES_MAX + 1),
    ],
)
def test_what_is_no_greeting_closes_the_connection(socket_path: Path, greeting: bytes) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        client = RawClient(socket_path)
        client.send_bytes(greeting)
        assert await settle(channel) == []
        answer = client.welcome()
        assert isinstance(answer, wire.NotWelcome)
        assert answer.name == "POISONED"
        assert client.ended()
        assert channel.connections == 0
        client.close()
        await channel.aclose()

    trio.run(main)


def test_a_stream_socket_does_not_get_in(socket_path: Path) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stray, pytest.raises(OSError):
            stray.connect(str(socket_path))
        assert await settle(channel) == []
        await channel.aclose()

    trio.run(main)


def test_who_says_nothing_is_dropped(socket_path: Path) -> None:
    clock = trio.testing.MockClock()

    async def main() -> None:
        channel = make_channel(socket_path, limits=ChannelLimits(greeting_seconds_max=5))
        inbound: list[Inbound] = []

        async def serve() -> None:
            while True:
                inbound.extend(await channel.receive())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            silent = RawClient(socket_path)
            while channel.connections < 1:
                await trio.testing.wait_all_tasks_blocked(0.001)
            clock.jump(3)
            talking = RawClient(socket_path)
            talking.hello()
            while len(inbound) < 1:
                await trio.testing.wait_all_tasks_blocked(0.001)
            assert channel.connections == 2
            clock.jump(3)
            while channel.connections > 1:
                await trio.testing.wait_all_tasks_blocked(0.001)
            nursery.cancel_scope.cancel()
        assert silent.ended()
        assert isinstance(talking.welcome(), wire.Welcome)
        silent.close()
        talking.close()
        await channel.aclose()

    trio.run(main, clock=clock)


def test_above_its_cap_the_manager_says_so_and_serves_the_others(socket_path: Path) -> None:
    async def main() -> None:
        channel = make_channel(socket_path, limits=ChannelLimits(connections_max=2))
        clients = [RawClient(socket_path) for _ in range(3)]
        for client in clients[:2]:
            client.hello()
        assert len(await settle(channel)) == 2
        answer = clients[2].welcome()
        assert isinstance(answer, wire.NotWelcome)
        assert answer.name == "TOO_MANY_CONNECTIONS"
        assert answer.retry_helps
        clients[0].close()
        assert [type(item) for item in await settle(channel)] == [Disconnected]
        late = RawClient(socket_path)
        late.hello()
        assert len(await settle(channel)) == 1
        for client in (*clients, late):
            client.close()
        await channel.aclose()

    trio.run(main)


def test_without_descriptors_it_refuses_and_goes_on(socket_path: Path) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        # Sockets first: afterwards this process has no descriptor for one either.
        sockets = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        filling = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        try:
            while True:
                try:
                    filling.append(os.open("/dev/null", os.O_RDONLY))
                except OSError:
                    break
            sockets[0].connect(str(socket_path))
            assert await settle(channel) == []
            assert channel.refused_connections == 1
        finally:
            for fd in filling:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert b"no file descriptors" in sockets[0].recv(4096)
        sockets[1].connect(str(socket_path))
        sockets[1].send(encode_greeting(wire.Hello(os.getpid(), "here")))
        assert [type(item) for item in await settle(channel)] == [Connected]
        for sock in sockets:
            sock.close()
        await channel.aclose()

    trio.run(main)


def test_a_door_without_even_a_reserve_is_shut_for_a_while(socket_path: Path, descriptors: None) -> None:
    clock = trio.testing.MockClock()

    async def main() -> None:
        channel = make_channel(socket_path)
        door = channel._door
        inbound: list[Inbound] = []

        def shut() -> bool:
            return door.shut

        async def serve() -> None:
            while True:
                inbound.extend(await channel.receive())

        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        filling = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            await trio.testing.wait_all_tasks_blocked()
            resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
            try:
                os.close(door._reserve)  # somebody else was faster the last time
                door._reserve = -1
                while True:
                    try:
                        filling.append(os.open("/dev/null", os.O_RDONLY))
                    except OSError:
                        break
                sock.connect(str(socket_path))
                sock.send(encode_greeting(wire.Hello(os.getpid(), "here")))
                while not shut():
                    await trio.testing.wait_all_tasks_blocked(0.001)
                assert inbound == []
            finally:
                for fd in filling:
                    os.close(fd)
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            clock.jump(1.5)
            while not inbound:
                await trio.testing.wait_all_tasks_blocked(0.001)
            assert not shut()
            nursery.cancel_scope.cancel()
        assert [type(item) for item in inbound] == [Connected]
        sock.close()
        await channel.aclose()

    trio.run(main, clock=clock)


# --- what the client makes of the other end -------------------------------------------------------------


def _one_answer(path: Path, answer: bytes) -> threading.Thread:
    """A listener that answers the first greeting with these bytes, and closes."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        with listener:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                if answer:
                    connection.send(answer)
            path.unlink()

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@pytest.mark.parametrize("abi", [4, 6])
def test_the_client_names_both_abis_too(socket_path: Path, abi: int, descriptors: None) -> None:
    thread = _one_answer(socket_path, struct.pack("<8sI", wire.MAGIC, abi) + b"of another age")
    with pytest.raises(NotWelcome, match=f"ABI {abi}, this client ABI 5") as caught:
        shake_hands(str(socket_path), 5)
    assert not caught.value.retry_helps
    thread.join()


def test_the_client_distrusts_what_is_no_welcome(socket_path: Path, descriptors: None) -> None:
    thread = _one_answer(socket_path, b"220 mail.example.org ESMTP")
    with pytest.raises(ChannelPoisoned, match="something else is talking"):
        shake_hands(str(socket_path), 5)
    thread.join()


def test_the_client_distrusts_a_welcome_without_a_pool(socket_path: Path, descriptors: None) -> None:
    thread = _one_answer(socket_path, encode_greeting(wire.Welcome("1", 1, 1, 1 << 20, 4)))
    with pytest.raises(ChannelPoisoned, match="without the pool"):
        shake_hands(str(socket_path), 5)
    thread.join()


def test_the_client_says_when_it_is_hung_up_on(socket_path: Path, descriptors: None) -> None:
    thread = _one_answer(socket_path, b"")
    with pytest.raises(ConnectionLost, match="closed it instead of a welcome"):
        shake_hands(str(socket_path), 5)
    thread.join()


def test_no_manager_is_named_with_path_and_command(socket_path: Path, descriptors: None) -> None:
    with pytest.raises(ManagerUnavailable) as caught:
        shake_hands(str(socket_path), 5)
    message = str(caught.value)
    assert str(socket_path) in message
    assert "there is no such socket" in message
    assert f"orbitkv serve --socket-path {socket_path}" in message
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(socket_path))
    with pytest.raises(ManagerUnavailable, match="nobody listens there any more"):
        shake_hands(str(socket_path), 5)
    socket_path.unlink()
