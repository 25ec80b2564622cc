"""What clients can do to each other and to the manager: nothing. What they can do to themselves: end."""

import os
import socket
from pathlib import Path

import pytest
import trio
import trio.testing

from orbitkv.events.outcomes import SessionEnd
from orbitkv.io import wire
from orbitkv.io.channel import ChannelLimits
from orbitkv.io.framing import encode_message
from orbitkv.manager.ports import Connected, Disconnected, Inbound, Request
from tests.channel.raw import RawClient
from tests.channel.serving import connect, settle, take
from tests.channel.stub import make_channel
from tests.channel.test_framing import HANDLE, KEYS


def _registration(call: int, staging_bytes: int = 0) -> wire.RegisterRank:
    return wire.RegisterRank(call, "engine", 0, 1, "host", b"d" * 16, "{}", False, (), staging_bytes)


def _requests(inbound: list[Inbound]) -> list[tuple[int, object]]:
    return [(item.session, item.message) for item in inbound if isinstance(item, Request)]


def test_requests_come_in_order_and_replies_go_back(socket_path: Path, descriptors: None) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        client = RawClient(socket_path)
        session = await connect(channel, client)
        for _ in range(3):
            client.status()
        assert _requests(await take(channel, 3)) == [(session, wire.ReadStatus(n)) for n in (1, 2, 3)]
        channel.send(session, wire.StatusReport(1, "{}"))
        assert client.receive() == wire.StatusReport(1, "{}")
        client.close()
        assert await take(channel, 1) == [Disconnected(session, SessionEnd.BROKEN, "the connection ended")]
        channel.send(session, wire.Done(2))  # to nobody
        await channel.aclose()

    trio.run(main)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"\xc1garbage", "does not decode"),
        (b"\0" * (wire.MESSAGE_BYTES_MAX + 1), "more than 196608 bytes"),
        (
            encode_message(wire.SubmitQuery(1, "r", 0, 1, 0, [wire.QueryPart(0, 64, 0, KEYS)]))[:-1],
            "does not decode",
        ),
        (encode_message(wire.ReadStatus(2)), "number 2 after 0: out of order"),
        (encode_message(wire.ReadStatus(0)), "number 0 after 0: out of order"),
        (
            encode_message(wire.SubmitQuery(1, "r", 0, 1, 0, [wire.QueryPart(0, 64, 0, KEYS)], 1)),
            "did not come",
        ),
        (encode_message(wire.Done(1)), "does not decode"),
    ],
)
def test_a_bad_frame_poisons_its_session_and_no_other(
    socket_path: Path, frame: bytes, why: str, descriptors: None
) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        bad, good = RawClient(socket_path), RawClient(socket_path)
        bad_session, good_session = await connect(channel, bad), await connect(channel, good)
        bad.send_bytes(frame)
        bad.status()  # what follows the bad frame does not count
        good.status()
        inbound = await settle(channel)
        assert _requests(inbound) == [(good_session, wire.ReadStatus(1))]
        (ended,) = [item for item in inbound if isinstance(item, Disconnected)]
        assert (ended.session, ended.cause) == (bad_session, SessionEnd.POISONED)
        assert why in ended.detail
        last = bad.receive()
        assert isinstance(last, wire.ErrorReply)
        assert (last.call, last.name) == (0, "POISONED")
        assert "Reconnect required" in last.sentence
        assert bad.ended()
        channel.send(good_session, wire.StatusReport(1, "{}"))
        assert good.receive() == wire.StatusReport(1, "{}")
        assert channel.poisoned_sessions == 1
        again = RawClient(socket_path)
        assert await connect(channel, again) > good_session
        for client in (bad, good, again):
            client.close()
        await channel.aclose()

    trio.run(main)


def test_a_number_said_twice_poisons(socket_path: Path) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        client = RawClient(socket_path)
        session = await connect(channel, client)
        client.status()
        client.send(wire.ReadStatus(1))
        inbound = await settle(channel)
        assert _requests(inbound) == [(session, wire.ReadStatus(1))]
        assert isinstance(inbound[-1], Disconnected)
        client.close()
        await channel.aclose()

    trio.run(main)


def test_an_empty_packet_is_the_end(socket_path: Path) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        client = RawClient(socket_path)
        session = await connect(channel, client)
        client.send_bytes(b"")
        assert await settle(channel) == [Disconnected(session, SessionEnd.BROKEN, "the connection ended")]
        client.close()
        await channel.aclose()

    trio.run(main)


# --- descriptors ----------------------------------------------------------------------------------------


def test_the_staging_window_comes_with_the_registration(socket_path: Path, descriptors: None) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        client = RawClient(socket_path)
        session = await connect(channel, client)
        window = os.memfd_create("window")
        os.write(window, b"of the client")
        client.send(_registration(1, 4096), [window])
        (request,) = await take(channel, 1)
        assert isinstance(request, Request)
        assert os.pread(request.descriptor, 20, 0) == b"of the client"
        assert not os.get_inheritable(request.descriptor)
        os.close(request.descriptor)
        channel.send(session, wire.Registered(1, 1, True))
        client.receive()
        # Once registered, a descriptor that comes uninvited goes nowhere.
        client.send(wire.ReadStatus(2), [window])
        assert await take(channel, 1) == [Request(session, wire.ReadStatus(2))]
        os.close(window)
        client.close()
        await take(channel, 1)
        await channel.aclose()

    trio.run(main)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_descriptors_where_none_belong_poison_and_do_not_leak(
    socket_path: Path, count: int, descriptors: None
) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        client = RawClient(socket_path)
        await connect(channel, client)
        window = os.memfd_create("window")
        request = wire.ReadStatus(1) if count == 1 else _registration(1, 4096)
        client.send(request, [window] * count)
        (ended,) = await take(channel, 1)
        assert isinstance(ended, Disconnected)
        assert ended.cause is SessionEnd.POISONED
        assert "descriptor" in ended.detail
        os.close(window)
        client.close()
        await channel.aclose()

    trio.run(main)


def test_nothing_leaks_over_many_connections(socket_path: Path, descriptors: None) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        for round_number in range(60):
            client = RawClient(socket_path)
            if round_number % 4 == 0:
                client.close()
                continue
            await connect(channel, client)
            if round_number % 4 == 1:
                client.send_bytes(b"\xc1")
            elif round_number % 4 == 2:
                client.status()
            client.close()
            await settle(channel) if round_number % 10 == 0 else None
        await settle(channel)
        assert channel.connections == 0
        await channel.aclose()

    trio.run(main)


# --- fairness and back-pressure -------------------------------------------------------------------------


def test_a_flood_gets_one_turn_in_each_round_like_everybody(socket_path: Path) -> None:
    async def main() -> None:
        channel = make_channel(socket_path, limits=ChannelLimits(batch_messages_max=64))
        clients = [RawClient(socket_path) for _ in range(5)]
        sessions = [await connect(channel, client) for client in clients]
        for _ in range(100):
            clients[0].status()
        for client in clients[1:]:
            client.status()
        first = await channel.receive()
        assert sorted(session for session, _ in _requests(first)) == sessions
        second = await channel.receive()
        assert [session for session, _ in _requests(second)] == sessions[:1]
        for client in clients:
            client.close()
        await channel.aclose()

    trio.run(main)


def test_a_round_is_bounded_and_nobody_waits_for_ever(socket_path: Path) -> None:
    async def main() -> None:
        channel = make_channel(socket_path, limits=ChannelLimits(batch_messages_max=4))
        clients = [RawClient(socket_path) for _ in range(10)]
        sessions = [await connect(channel, client) for client in clients]
        for _ in range(5):
            for client in clients:
                client.status()
        turns: list[int] = []
        while len(turns) < 50:
            batch = _requests(await channel.receive())
            assert len(batch) <= 4
            turns += [session for session, _ in batch]
        for start in range(0, 50, 10):
            # With ten clients always ready, each gets a turn before any gets two more than another.
            counts = [turns[: start + 10].count(session) for session in sessions]
            assert max(counts) - min(counts) <= 1
        for client in clients:
            client.close()
        await channel.aclose()

    trio.run(main)


def test_other_tasks_get_their_turn_under_a_flood(socket_path: Path) -> None:
    async def main() -> None:
        channel = make_channel(socket_path, limits=ChannelLimits(rounds_unyielded_max=8))
        client = RawClient(socket_path)
        await connect(channel, client)
        for _ in range(100):
            client.status()
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            for _ in range(100):
                await channel.receive()
            nursery.cancel_scope.cancel()
        assert turns >= 100 // 8 - 1
        client.close()
        await channel.aclose()

    trio.run(main)


def test_a_slow_reader_is_not_read_until_it_reads(socket_path: Path) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        slow, quick = RawClient(socket_path), RawClient(socket_path)
        slow_session, quick_session = await connect(channel, slow), await connect(channel, quick)
        report = wire.StatusReport(1, "x" * 100_000)
        sent = 0
        while channel.outbox_messages(slow_session) < 3:
            channel.send(slow_session, report)
            sent += 1
        slow.status()
        quick.status()
        assert _requests(await settle(channel)) == [(quick_session, wire.ReadStatus(1))]
        for _ in range(sent - 3):
            assert slow.receive() == report
        assert _requests(await settle(channel)) == [(slow_session, wire.ReadStatus(1))]
        for _ in range(3):
            assert slow.receive() == report
        slow.close()
        quick.close()
        await channel.aclose()

    trio.run(main)


def test_replies_keep_their_order_over_a_full_socket(socket_path: Path) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        client = RawClient(socket_path)
        session = await connect(channel, client)
        for call in range(1, 31):
            channel.send(session, wire.StatusReport(call, "x" * 100_000))
        calls: list[int] = []
        while len(calls) < 30:
            reply = client.receive()
            assert isinstance(reply, wire.StatusReport)
            calls.append(reply.call)
            with trio.move_on_after(0.01):
                await channel.receive()
        assert calls == list(range(1, 31))
        client.close()
        await channel.aclose()

    trio.run(main)


@pytest.mark.parametrize(
    "limits", [ChannelLimits(outbox_messages_max=5), ChannelLimits(outbox_bytes_max=1_000_000)]
)
def test_who_never_reads_is_ended(socket_path: Path, limits: ChannelLimits, descriptors: None) -> None:
    async def main() -> None:
        channel = make_channel(socket_path, limits=limits)
        client = RawClient(socket_path)
        session = await connect(channel, client)
        ended: list[Inbound] = []

        async def serve() -> None:
            ended.extend(await channel.receive())

        async with trio.open_nursery() as nursery:
            # The channel's task is already waiting when another task sends too much.
            nursery.start_soon(serve)
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(60):
                channel.send(session, wire.StatusReport(1, "x" * 100_000))
        (end,) = ended
        assert isinstance(end, Disconnected)
        assert end.cause is SessionEnd.POISONED
        assert "does not read its replies" in end.detail
        client.close()
        await channel.aclose()

    trio.run(main)


def test_what_was_sent_before_the_end_is_heard(socket_path: Path) -> None:
    """A client that leaves without reading its replies may have reported a sync just before."""

    async def main() -> None:
        channel = make_channel(socket_path)
        client = RawClient(socket_path)
        session = await connect(channel, client)
        channel.send(session, wire.PagesSealed(b""))
        client.status()
        client.status()
        client.close()  # with an unread reply: the system calls that a reset
        inbound = await settle(channel)
        assert _requests(inbound) == [(session, wire.ReadStatus(1)), (session, wire.ReadStatus(2))]
        assert inbound[-1] == Disconnected(session, SessionEnd.BROKEN, "the connection ended")
        await channel.aclose()

    trio.run(main)


def test_a_reply_to_one_that_left_does_not_lose_its_last_words(socket_path: Path) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        client = RawClient(socket_path)
        session = await connect(channel, client)
        client.status()
        client.status()
        client.close()
        channel.send(session, wire.Done(1))  # fails, for the peer is gone
        inbound = await settle(channel)
        assert len(_requests(inbound)) == 2
        assert isinstance(inbound[-1], Disconnected)
        await channel.aclose()

    trio.run(main)


def test_closing_a_session_delivers_what_was_said_and_reports_nothing(socket_path: Path) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        client = RawClient(socket_path)
        session = await connect(channel, client)
        client.status()
        channel.send(session, wire.Done(1))
        channel.close_session(session)
        channel.close_session(session)
        assert client.receive() == wire.Done(1)
        assert client.ended()
        assert await settle(channel) == []
        client.close()
        await channel.aclose()

    trio.run(main)


# --- long queries ---------------------------------------------------------------------------------------


def test_pieces_of_a_query_come_out_whole(socket_path: Path) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        client = RawClient(socket_path)
        session = await connect(channel, client)
        a, b, c, d = (bytes([n]) * 32 for n in range(4))
        client.send(wire.ExtendQuery(1, 1, [c]))
        client.send(wire.ExtendQuery(2, 0, [a]))
        client.send(
            wire.SubmitQuery(
                3, "r", 0, 1, 0, [wire.QueryPart(0, 64, 0, [b]), wire.QueryPart(1, 64, 0, [d])], 2
            )
        )
        (request,) = _requests(await take(channel, 1))
        assert request == (
            session,
            wire.SubmitQuery(
                3, "r", 0, 1, 0, [wire.QueryPart(0, 64, 0, [a, b]), wire.QueryPart(1, 64, 0, [c, d])]
            ),
        )
        assert [client.receive(), client.receive()] == [wire.Done(1), wire.Done(2)]
        client.close()
        await channel.aclose()

    trio.run(main)


PART = wire.QueryPart(0, 64, 0, KEYS)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([wire.ExtendQuery(1, 0, KEYS), wire.ReadStatus(2)], "and then not that query"),
        (
            [wire.ExtendQuery(1, 0, KEYS), wire.SubmitQuery(2, "r", 0, 1, 0, [PART])],
            "and then not that query",
        ),
        (
            [wire.ExtendQuery(1, 0, KEYS), wire.SubmitQuery(2, "r", 0, 1, 0, [PART], 2)],
            "and then not that query",
        ),
        ([wire.ExtendQuery(1, 1, KEYS), wire.SubmitQuery(2, "r", 0, 1, 0, [PART], 1)], "piece of part 1"),
        (
            [wire.ExtendQuery(call, 0, KEYS) for call in range(1, wire.QUERY_PIECES_MAX + 2)],
            "more than 5 pieces",
        ),
    ],
)
def test_pieces_out_of_order_poison(socket_path: Path, messages: list[wire.Request], why: str) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        client = RawClient(socket_path)
        await connect(channel, client)
        for message in messages:
            client.send(message)
        inbound = await settle(channel)
        assert _requests(inbound) == []
        (ended,) = inbound
        assert isinstance(ended, Disconnected)
        assert ended.cause is SessionEnd.POISONED
        assert why in ended.detail
        client.close()
        await channel.aclose()

    trio.run(main)


def test_many_sessions_interleave_without_mixing(socket_path: Path) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        clients = [RawClient(socket_path) for _ in range(8)]
        owner = {await connect(channel, client): client for client in clients}
        for call in range(1, 21):
            for number, client in enumerate(clients):
                client.send(wire.PollQuery(call, HANDLE[:-1] + bytes([number])))
        served = 0
        while served < 160:
            for item in await channel.receive():
                assert isinstance(item, Request)
                assert isinstance(item.message, wire.PollQuery)
                assert owner[item.session] is clients[item.message.operation[-1]]
                channel.send(item.session, wire.StatusReport(item.message.call, str(item.session)))
                served += 1
        for session, client in owner.items():
            for call in range(1, 21):
                assert client.receive() == wire.StatusReport(call, str(session))
            client.close()
        await channel.aclose()

    trio.run(main)


def test_closing_leaves_nothing(socket_path: Path, descriptors: None) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        greeted, ungreeted = RawClient(socket_path), RawClient(socket_path)
        await connect(channel, greeted)
        await settle(channel)
        assert repr(channel).endswith("connections=2, sessions=1, processes=1)")
        await channel.aclose()
        assert greeted.ended()
        assert ungreeted.ended()
        greeted.close()
        ungreeted.close()

    trio.run(main)


def test_connected_comes_first(socket_path: Path) -> None:
    async def main() -> None:
        channel = make_channel(socket_path)
        client = RawClient(socket_path)
        client.hello()
        client.status()
        client.socket.shutdown(socket.SHUT_WR)
        kinds = [type(item) for item in await settle(channel)]
        assert kinds == [Connected, Request, Disconnected]
        client.close()
        await channel.aclose()

    trio.run(main)
