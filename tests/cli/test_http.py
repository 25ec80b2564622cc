"""The endpoint over a real socket: what it answers, what it refuses, and that it lets go at a stop."""

import json
import logging
import socket
from collections.abc import Awaitable, Callable
from functools import partial

import attrs
import pytest
import trio
from prometheus_client import CollectorRegistry, Gauge

from orbitkv.io import http
from orbitkv.io.http import Answers, Document, EndpointError, serve_http


@attrs.define
class World:
    """What the manager would answer with."""

    registry: CollectorRegistry = attrs.Factory(CollectorRegistry)
    serving: bool = True
    cleanups: int = 0

    def answers(self) -> Answers:
        return Answers(self.registry, self.health, self.cleanup)

    def health(self) -> Document:
        return {"status": "degraded", "serving": self.serving}

    async def cleanup(self) -> Document:
        await trio.lowlevel.checkpoint()
        self.cleanups += 1
        return {"evicted_pages": 3}


@attrs.frozen
class Response:
    status: int
    headers: dict[str, str]
    body: bytes


async def ask(port: int, method: str, path: str, *extra: str) -> Response:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *extra, "", ""]
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all("\r\n".join(lines).encode())
        data = b"".join([chunk async for chunk in stream])
    head, _, body = data.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    headers = (line.split(": ", 1) for line in rest)
    return Response(int(first.split()[1]), {name.lower(): value for name, value in headers}, body)


def with_endpoint(world: World, story: Callable[[int], Awaitable[None]]) -> None:
    async def main() -> None:
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                port = await nursery.start(serve_http, ("127.0.0.1", 0), world.answers())
                await story(port)
                nursery.cancel_scope.cancel()

    trio.run(main)


def test_metrics_are_those_of_the_registry() -> None:
    world = World()
    Gauge("orbitkv_sessions", "Open connections.", registry=world.registry).set(4)

    async def story(port: int) -> None:
        response = await ask(port, "GET", "/metrics")
        assert response.status == 200
        assert response.headers["content-type"].startswith("text/plain; version=")
        assert b"orbitkv_sessions 4.0\n" in response.body
        assert b"python_info" not in response.body

    with_endpoint(world, story)


def test_health_is_503_only_while_nothing_is_served() -> None:
    world = World()

    async def story(port: int) -> None:
        degraded = await ask(port, "GET", "/health")
        world.serving = False
        stopped = await ask(port, "GET", "/health")
        assert (degraded.status, stopped.status) == (200, 503)
        assert json.loads(stopped.body) == {"status": "degraded", "serving": False}

    with_endpoint(world, story)


def test_cleanup_is_a_post_and_not_from_a_web_page() -> None:
    world = World()

    async def story(port: int) -> None:
        done = await ask(port, "POST", "/cache/memory/cleanup", "Content-Length: 0")
        assert (done.status, json.loads(done.body)) == (200, {"evicted_pages": 3})
        from_page = await ask(
            port, "POST", "/cache/memory/cleanup", "Content-Length: 0", "Origin: https://example.org"
        )
        wrong_method = await ask(port, "GET", "/cache/memory/cleanup")
        assert (from_page.status, wrong_method.status) == (403, 405)
        assert wrong_method.headers["allow"] == "POST"
        assert world.cleanups == 1

    with_endpoint(world, story)


def test_there_is_nothing_else() -> None:
    async def story(port: int) -> None:
        for path in ("/", "/metrics/", "/cache", "/metrics/../etc/passwd"):
            assert (await ask(port, "GET", path)).status == 404
        assert (await ask(port, "POST", "/metrics", "Content-Length: 0")).status == 405

    with_endpoint(World(), story)


def test_a_fault_in_an_answer_is_a_500_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(World):
        def health(self) -> Document:
            raise RuntimeError("no health today")

    async def story(port: int) -> None:
        assert (await ask(port, "GET", "/health")).status == 500
        assert (await ask(port, "GET", "/metrics")).status == 200

    with caplog.at_level(logging.WARNING):
        with_endpoint(Broken(), story)
    assert "no health today" in caplog.text


def test_a_client_that_neither_asks_nor_reads_does_not_hold_up_a_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "UNREAD_MILLISECONDS", 300)

    class Large(World):
        def health(self) -> Document:
            return {"serving": True, "padding": "x" * (8 << 20)}

    async def main() -> None:
        silent, deaf = socket.socket(), socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        with silent, deaf, trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                port = await nursery.start(serve_http, ("127.0.0.1", 0), Large().answers())
                silent.connect(("127.0.0.1", port))
                deaf.connect(("127.0.0.1", port))
                deaf.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await trio.lowlevel.wait_readable(deaf)
                assert (await ask(port, "GET", "/metrics")).status == 200
                nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_taken_port_is_told_with_the_setting() -> None:
    async def main(port: int) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_http, ("127.0.0.1", port), World().answers())

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.RaisesGroup(EndpointError) as caught:
        trio.run(partial(main, taken.getsockname()[1]))
    text = str(caught.value.exceptions[0])
    assert "Address already in use" in text
    assert "set http_listen to another port" in text


def test_the_port_is_free_again_after_a_stop() -> None:
    ports: list[int] = []

    async def story(port: int) -> None:
        ports.append(port)
        assert (await ask(port, "GET", "/health")).status == 200

    with_endpoint(World(), story)
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", ports[0]))
