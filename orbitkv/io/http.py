"""The HTTP endpoint: metrics to scrape, health to probe, one chore to ask for. Nothing else.

Everything it answers comes from callables, so it knows no kernel and no state. Loopback only and
without authentication. hypercorn shields its writes from cancellation, so a reader that does not read could
make a stop wait for ever: one request per connection, a buffer for a whole answer, and a limit on how
long the system keeps bytes that nobody takes.
"""

import json
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import attrs
import trio
from hypercorn.config import Config as HypercornConfig
from hypercorn.trio import serve
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

Document: TypeAlias = Mapping[str, object]
"""What becomes a JSON object."""

BACKLOG_CONNECTIONS = 64
IDLE_SECONDS = 5
"""How long a connection may take to send its request."""
SEND_BUFFER_BYTES = 1 << 20
"""Holds a whole answer, so that sending does not wait for the reader."""
UNREAD_MILLISECONDS = 3000
"""After so long with bytes that the reader does not take, the connection is broken (TCP_USER_TIMEOUT)."""

_log = logging.getLogger("orbitkv.http")


class EndpointError(Exception):
    """The endpoint cannot listen; the text says why and which setting mends it."""


@attrs.frozen
class Answers:
    """Where the endpoint gets what it says."""

    registry: CollectorRegistry
    health: Callable[[], Document]
    """Its "serving" tells 200 from 503: who is degraded but answers requests in full is to be sent some."""
    cleanup: Callable[[], Awaitable[Document]]
    """Evicts every unheld DRAM page and says what it did."""


@attrs.frozen
class _Reply:
    status: int
    body: bytes
    content_type: str = "application/json"
    allow: str = ""


async def serve_http(
    address: tuple[str, int], answers: Answers, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled; `task_status.started` gives the port bound, also for port 0.

    Raises EndpointError when the address cannot be had.
    """
    listener = _listen(*address)
    port: int = listener.getsockname()[1]
    settings = HypercornConfig()
    # hypercorn takes over the descriptor and closes it.
    settings.bind = [f"fd://{listener.detach()}"]
    settings.backlog = BACKLOG_CONNECTIONS
    settings.accesslog = None
    settings.errorlog = _log
    settings.keep_alive_timeout = IDLE_SECONDS
    settings.read_timeout = IDLE_SECONDS
    settings.keep_alive_max_requests = 1
    settings.graceful_timeout = 1
    settings.include_server_header = False

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            # ASGI's start and stop, which hypercorn waits for; there is nothing of ours to do then.
            for _ in range(2):
                message = await receive()
                await send({"type": f"{message['type']}.complete"})
        elif scope["type"] == "http":
            reply = await _reply(answers, scope)
            await send({"type": "http.response.start", "status": reply.status, "headers": _headers(reply)})
            await send({"type": "http.response.body", "body": reply.body})

    async with trio.open_nursery() as nursery:
        await nursery.start(serve, application, settings)
        task_status.started(port)


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit these two.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MILLISECONDS)
        listener.bind((host, port))
        listener.listen(BACKLOG_CONNECTIONS)
    except OSError as error:
        listener.close()
        raise EndpointError(
            f"The HTTP endpoint cannot listen on {host}:{port}.\n"
            f"  Why: {error.strerror or error}.\n"
            f'  Remedy: set http_listen to another port, to port 0 (any free one), or to "" (off).'
        ) from None
    return listener


async def _reply(answers: Answers, scope: Mapping[str, Any]) -> _Reply:
    """The routes. A browser's page cannot ask for a cleanup: its requests carry an Origin."""
    match scope["path"], scope["method"]:
        case "/metrics", "GET":
            return _Reply(200, generate_latest(answers.registry), CONTENT_TYPE_LATEST)
        case "/health", "GET":
            health = answers.health()
            return _Reply(200 if health["serving"] else 503, _json(health))
        case "/cache/memory/cleanup", "POST":
            if any(name == b"origin" for name, _ in scope["headers"]):
                return _Reply(403, _json({"error": "requests from web pages are refused"}))
            return _Reply(200, _json(await answers.cleanup()))
        case "/metrics" | "/health", _:
            return _Reply(405, _json({"error": "use GET"}), allow="GET")
        case "/cache/memory/cleanup", _:
            return _Reply(405, _json({"error": "use POST"}), allow="POST")
        case _:
            paths = "/metrics, /health, /cache/memory/cleanup"
            return _Reply(404, _json({"error": f"there is only {paths}"}))


def _headers(reply: _Reply) -> list[tuple[bytes, bytes]]:
    headers = [
        (b"content-type", reply.content_type.encode()),
        (b"content-length", str(len(reply.body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    return [*headers, (b"allow", reply.allow.encode())] if reply.allow else headers


def _json(document: Document) -> bytes:
    return json.dumps(document, indent=2).encode() + b"\n"
