"""Puts together what was opened: channel, shell, and the HTTP endpoint."""

from contextlib import AsyncExitStack

import trio
from prometheus_client import CollectorRegistry

from orbitkv import __version__
from orbitkv.config import Config
from orbitkv.io.board import Board
from orbitkv.io.carrier import Carrier
from orbitkv.io.channel import ChannelLimits, Greeter, SocketChannel
from orbitkv.io.http import Answers, serve_http
from orbitkv.io.tokens import TokenSealer
from orbitkv.manager.shell.admission import Admission
from orbitkv.manager.shell.assembly import Ports, assemble
from orbitkv.manager.shell.health import Health
from orbitkv.manager.shell.manager import Manager
from orbitkv.manager.shell.metrics import ManagerMetrics
from orbitkv.manager.shell.status import StatusReader
from orbitkv.manager.shell.timeline import Timeline
from orbitkv.serve.opening import Opened
from orbitkv.serve.saying import say


def put_together(
    config: Config, opened: Opened, health: Health, stack: AsyncExitStack
) -> tuple[Manager, StatusReader]:
    """The manager over real ports. Its tasks do not run yet."""
    loop = opened.loop
    carrier = Carrier(opened.pool.view)
    stack.push_async_callback(carrier.aclose)
    board = Board(config.operations_max)
    incarnation = loop.state.incarnation
    channel = SocketChannel(
        opened.listener,
        Greeter(__version__, incarnation, opened.pool.pool_bytes, opened.pool.reader_fd(), board),
        ChannelLimits(
            connections_max=config.sessions_max,
            outbox_messages_max=config.session_outbox_messages_max,
            outbox_bytes_max=config.session_outbox_bytes_max,
            greeting_seconds_max=config.greeting_timeout,
        ),
    )
    stack.push_async_callback(channel.aclose)
    admission = Admission(loop.journal, config.log_lag_bytes_max)
    status = StatusReader(
        version=__version__,
        socket_path=str(config.socket_path),
        state=loop.state,
        health=health,
        journal=loop.journal,
        admission=admission,
        store=opened.io,
        clock=loop.clock,
        started_ns=loop.clock.monotonic_ns(),
    )
    ports = Ports(
        channel=channel,
        carrier=carrier,
        pool=opened.pool,
        store=opened.store,
        board=board,
        handles=TokenSealer(incarnation),
    )
    manager = assemble(loop, ports, health, admission, status.json)
    if config.trace_transfers:
        loop.followers = (*loop.followers, Timeline(say, loop.clock).follow)
    return manager, status


async def open_endpoint(config: Config, nursery: trio.Nursery, manager: Manager, status: StatusReader) -> str:
    """Where the endpoint answers; empty when it is switched off."""
    address = config.http_address
    if address is None:
        return ""
    registry = CollectorRegistry()
    registry.register(ManagerMetrics(status.state, status.journal, status.admission, status.store))
    answers = Answers(registry, status.document, manager.drop_dram)
    port = await nursery.start(serve_http, address, answers)
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"http://{host}:{port}"
