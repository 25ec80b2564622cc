"""One client process of the channel bench.

    python -m benches.channel_client TRANSPORT SOCKET NUMBER PAGES

Registers, prints "ready", then runs one order a line of standard input. {"keys": N, "seconds": S} asks
queries of N keys one after the other (each lease is released outside the measured time) and prints the
times in nanoseconds; N = 0 asks for the status instead, which is the transport and next to nothing else.
{"polls": N} polls a waiting operation so often, by the board and by asking.

A query's keys are a run of pages that were saved one after the other, as a prompt's prefix is, from a
random place; every key is a new object to the manager.

`channel` is the engine's own client. `zmq` says the same messages over a pyzmq DEALER and makes the same
answer of the reply, with nothing else around it.
"""

import itertools
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from benches.channel_server import FOOTPRINT_BYTES, GROUP, NAMESPACE_DIGEST, page_keys
from orbitkv.adapters import client as client_module
from orbitkv.adapters.answers import QueryAnswer, read_answer
from orbitkv.adapters.client import CacheManagerClient
from orbitkv.adapters.namespace import Namespace
from orbitkv.io import wire
from orbitkv.io.framing import decode_reply, encode_message
from orbitkv.io.host import this_host
from orbitkv.io.wire import QueryPart, QueryStatus

QUERIES = 64
"""Prepared in advance, so that making them is not measured."""


class Transport(Protocol):
    def query(self, request: str, attempt: int, parts: list[QueryPart]) -> QueryAnswer: ...

    def release(self, lease: bytes) -> object: ...

    def status(self) -> str: ...


class FillersNamespace(Namespace):
    """The bench's pages lie in a namespace that no document stands for."""

    @property
    def digest(self) -> bytes:
        return NAMESPACE_DIGEST

    @property
    def document(self) -> str:
        return "{}"


class ChannelClient(CacheManagerClient):
    """An engine that also asks what an operator asks."""

    def status(self) -> str:
        with self._session.lock:
            return self._session.expect(
                self._session.ask(wire.ReadStatus, again=True), wire.StatusReport
            ).document


def through_channel(path: str, number: int) -> ChannelClient:
    namespace = FillersNamespace(
        model="bench",
        dtype="none",
        kv_dtype="none",
        page_tokens=64,
        layers=1,
        kv_heads=1,
        head_size=FOOTPRINT_BYTES,
        layout="none",
        engine="bench",
        engine_version="1",
        hash_algorithm="none",
        key_scheme="none",
    )
    client = ChannelClient(path, instance=f"engine {number}", namespace=namespace, groups=(GROUP,))
    client.register()
    return client


class DealerClient:
    def __init__(self, path: str, number: int) -> None:
        import zmq

        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.connect(f"ipc://{path}")
        self._calls = 0
        self._ticket = 0
        registered = self._ask(
            lambda call: wire.RegisterRank(
                call, f"engine {number}", 0, 1, this_host(), NAMESPACE_DIGEST, "{}", False, (GROUP,)
            )
        )
        assert isinstance(registered, wire.Registered), registered
        assert registered.sealed

    def query(self, request: str, attempt: int, parts: list[QueryPart]) -> QueryAnswer:
        self._ticket += 1
        ticket = self._ticket
        reply = self._ask(lambda call: wire.SubmitQuery(call, request, attempt, ticket, 0, parts))
        assert isinstance(reply, wire.QueryAnswered), reply
        return read_answer(reply)

    def release(self, lease: bytes) -> object:
        return self._ask(lambda call: wire.ReleaseLease(call, lease))

    def status(self) -> str:
        reply = self._ask(wire.ReadStatus)
        assert isinstance(reply, wire.StatusReport), reply
        return reply.document

    def _ask(self, build: Callable[[int], wire.Request]) -> wire.Reply:
        self._calls += 1
        self._socket.send(encode_message(build(self._calls)))
        return decode_reply(self._socket.recv())


class Asker:
    def __init__(self, client: Transport, number: int, pages: int) -> None:
        self._client = client
        self._source = random.Random(number)
        self._keys = page_keys(pages)
        self._attempts = itertools.count()
        self._prepared: dict[int, list[list[QueryPart]]] = {}

    def queries(self, keys: int, seconds: float) -> list[int]:
        """Times of queries, in nanoseconds, for so long."""
        if not keys:
            return self._statuses(seconds)
        prepared = self._prepare(keys)
        client = self._client
        clock = time.perf_counter_ns
        taken: list[int] = []
        end = clock() + int(seconds * 1e9)
        for parts in itertools.cycle(prepared):
            attempt = next(self._attempts)
            start = clock()
            answer = client.query("request", attempt, parts)
            stop = clock()
            taken.append(stop - start)
            assert answer.status is QueryStatus.READY, answer
            assert answer.hits == (keys,)
            client.release(answer.lease)
            if stop > end:
                break
        return taken

    def _statuses(self, seconds: float) -> list[int]:
        clock = time.perf_counter_ns
        taken: list[int] = []
        end = clock() + int(seconds * 1e9)
        stop = 0
        while stop <= end:
            start = clock()
            self._client.status()
            stop = clock()
            taken.append(stop - start)
        return taken

    def polls(self, count: int) -> dict[str, float]:
        """Median nanoseconds of a poll by the board and by asking."""
        client = self._client
        assert isinstance(client, CacheManagerClient)
        held = client.query("request", next(self._attempts), self._prepare(1024)[0])
        medians: dict[str, float] = {}
        for figure, refresh_s in (("board_ns", 3600.0), ("ask_ns", 0.0)):
            setattr(client_module, "BOARD_REFRESH_SECONDS", refresh_s)  # noqa: B010  # it is Final elsewhere
            waiting = client.query("request", next(self._attempts), self._prepare(1024)[1])
            assert waiting.status is QueryStatus.LOADING, waiting
            taken = []
            for _ in range(count):
                start = time.perf_counter_ns()
                client.poll(waiting.operation)
                taken.append(time.perf_counter_ns() - start)
            medians[figure] = statistics.median(taken)
            client.cancel(waiting.operation)
        client.release(held.lease)
        return medians

    def _prepare(self, keys: int) -> list[list[QueryPart]]:
        if keys not in self._prepared:
            places = [self._source.randrange(len(self._keys) - keys) for _ in range(QUERIES)]
            self._prepared[keys] = [
                [QueryPart(0, 64, 0, self._keys[place : place + keys])] for place in places
            ]
        return self._prepared[keys]


def main() -> None:
    transport, path, number, pages = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    client: Transport = DealerClient(path, number) if transport == "zmq" else through_channel(path, number)
    asker = Asker(client, number, pages)
    print("ready", flush=True)
    for line in sys.stdin:
        order = msgspec.json.decode(line)
        if "polls" in order:
            answer: object = asker.polls(order["polls"])
        else:
            answer = asker.queries(order["keys"], order["seconds"])
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
