"""The composition root: opens what the settings name, runs the manager over it, puts all away again.

The only module that knows both the shell and the implementations of its ports. What it opens, it opens
in this order, and closes in the reverse one:

    socket, log directory      whoever holds them is the only manager here
    pool, SSD store            memory, then what reads into it
    journal                    after the old chain was closed, if need be by us
    kernel, carrier, channel   the new incarnation

Everything opened here ends with the process, however that ends; a killed one leaves a socket file and
lock files that the next start takes over. Faults of the manager itself end it with EXIT_FAIL_STOP;
what the user can mend is raised to the command line.
"""

import ctypes
import gc
import resource
import sys
import traceback
from contextlib import AsyncExitStack
from functools import partial

import trio
from prometheus_client import CollectorRegistry

from orbitkv import __version__
from orbitkv.config import Config, ConfigError, Problem
from orbitkv.config.units import format_size
from orbitkv.events.codec import encode_records
from orbitkv.events.commands import CloseIncarnation
from orbitkv.events.frame import LogError
from orbitkv.io.board import Board
from orbitkv.io.carrier import Carrier
from orbitkv.io.channel import ChannelLimits, Greeter, SocketChannel
from orbitkv.io.clock import SystemClock
from orbitkv.io.errors import StoreError
from orbitkv.io.host import this_host
from orbitkv.io.http import Answers, EndpointError, serve_http
from orbitkv.io.journal import FileJournal
from orbitkv.io.journal_thread import JournalSettings
from orbitkv.io.listener import Listener, ListenError
from orbitkv.io.memory import MemoryPool
from orbitkv.io.segments import LogDirectory
from orbitkv.io.store import SsdStore, open_store
from orbitkv.io.tokens import TokenSealer
from orbitkv.io.wire import MESSAGE_BYTES_MAX
from orbitkv.manager.kernel.snapshot import snapshot
from orbitkv.manager.kernel.state import new_state
from orbitkv.manager.kernel.step import KERNEL_REVISION
from orbitkv.manager.ports import StoreInfo
from orbitkv.manager.shell.admission import Admission
from orbitkv.manager.shell.assembly import Ports, assemble
from orbitkv.manager.shell.health import Health, Stage
from orbitkv.manager.shell.loop import FailStop, Loop
from orbitkv.manager.shell.manager import Manager
from orbitkv.manager.shell.metrics import ManagerMetrics
from orbitkv.manager.shell.recovery import UnreadablePredecessor, close_predecessor
from orbitkv.manager.shell.start import NO_STORE, next_incarnation, start_incarnation
from orbitkv.manager.shell.status import StatusReader, ssd_pages
from orbitkv.manager.shell.timeline import Timeline
from orbitkv.stopping import Stopping

EXIT_FAIL_STOP = 70
"""EX_SOFTWARE of sysexits.h."""

_MISTAKES = (ConfigError, EndpointError, ListenError, LogError, StoreError)
_PR_SET_DUMPABLE = 4
_ANSWER_BYTES_PER_KEY = 8
_ANSWER_BYTES_REST = 4096


def serve(config: Config) -> None:
    """Run the manager until SIGTERM or SIGINT. Raises what the user can mend; ends the process otherwise."""
    _check_answers_fit(config)
    _harden()
    try:
        trio.run(_main, config)
    except Exception as error:
        if _is_mistake(error):
            raise
        _tell_fault(error)
        sys.exit(EXIT_FAIL_STOP)


async def _main(config: Config) -> None:
    async with trio.open_nursery() as nursery:
        stopping = Stopping()
        await nursery.start(stopping.watch_signals)
        nursery.start_soon(stopping.watch_closing)
        async with AsyncExitStack() as opened:
            try:
                await _run(config, opened, stopping)
            finally:
                stopping.closing.set()
        nursery.cancel_scope.cancel()


async def _run(config: Config, opened: AsyncExitStack, stopping: Stopping) -> None:
    listener = Listener(config.socket_path)
    release = stopping.last_act = partial(_release, listener)
    opened.callback(release)
    directory = LogDirectory.open(config.log_path)
    opened.callback(directory.close)
    pool = _open_pool(config)
    opened.callback(pool.close)
    store = _open_store(config, pool)
    if store is not None:
        opened.push_async_callback(store.aclose)
    health = Health(_complain)
    _close_old_chain(directory, health)
    loop = _begin(config, directory, store, opened)
    manager, status = _assemble(config, loop, listener, pool, store, health, opened)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.run)
        endpoint = await _serve_http(config, nursery, manager, status)
        health.stage = Stage.SERVING
        gc.collect()
        gc.freeze()
        _greet(config, loop, status.store, endpoint)
        await stopping.asked.wait()
        unfinished = await manager.drain(config.shutdown_timeout)
        if unfinished:
            _complain(f"stopping before everything has ended: {unfinished}")
        nursery.cancel_scope.cancel()
    loop.process([CloseIncarnation(lost_tail=False)])


# --- opening ------------------------------------------------------------------------------------------


def _check_answers_fit(config: Config) -> None:
    most = (MESSAGE_BYTES_MAX - _ANSWER_BYTES_REST) // _ANSWER_BYTES_PER_KEY
    if config.query_keys_max > most:
        raise ConfigError(
            [
                Problem(
                    f"query_keys_max = {config.query_keys_max} cannot be served.",
                    f"the answer to a query is one message of the channel, which holds {most} page offsets",
                    f"set query_keys_max to {most} or less",
                )
            ]
        )


def _harden() -> None:
    """No core dumps and no tracing by other processes of the user: the pool holds users' data."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    # Every client costs a socket, a pidfd and a staging window.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _open_pool(config: Config) -> MemoryPool:
    try:
        return MemoryPool(config.usable_pool_bytes, config.superblock_bytes)
    except (OSError, ValueError) as error:
        raise StoreError(str(error)) from error


def _open_store(config: Config, pool: MemoryPool) -> SsdStore | None:
    if config.ssd_path is None or not config.ssd_enabled:
        return None
    return open_store(
        config.ssd_path,
        pool_view=pool.view,
        capacity_bytes=config.ssd_bytes,
        segment_bytes=config.ssd_segment_bytes,
        slots_per_segment_max=config.ssd_slots_per_segment_max,
        io_engine=config.io_engine,
        io_direct=config.io_direct,
        inflight_bytes_max=config.ssd_inflight_bytes_max,
    )


def _close_old_chain(directory: LogDirectory, health: Health) -> None:
    """Speak the last word of a predecessor that could not."""
    found = directory.recover()
    for cut in found.cuts:
        _complain(f"the log of an earlier run was cut: {cut}")
    if found.predecessor is None:
        return
    record = b""
    try:
        old = found.predecessor
        closing = close_predecessor(old.snapshot, old.payloads, lost_tail=found.lost_tail)
        if closing is not None:
            record = encode_records([closing.record])
    except UnreadablePredecessor as unreadable:
        health.degrade("predecessor", f"its chain stays without a last record: {unreadable}")
    directory.close_chain(found.predecessor, record)


def _begin(config: Config, directory: LogDirectory, store: SsdStore | None, opened: AsyncExitStack) -> Loop:
    recovered = store.recovered() if store is not None else ()
    incarnation = next_incarnation(directory.last_incarnation, recovered)
    state = new_state()
    clock = SystemClock()
    journal = FileJournal.begin(
        directory,
        clock,
        incarnation=incarnation,
        kernel_revision=KERNEL_REVISION,
        snapshot=snapshot(state),
        settings=JournalSettings(
            log_bytes_max=config.log_bytes_max,
            segment_bytes=config.log_segment_bytes,
            segment_seconds=config.log_segment_seconds,
            sync_interval_s=config.log_sync_interval,
            # Admission stops at half of it: what is under way has the other half to end in.
            lag_bytes_max=2 * config.log_lag_bytes_max,
        ),
    )
    opened.push_async_callback(journal.aclose)
    loop = Loop(state, journal, clock)
    io = store.info if store is not None else NO_STORE
    start_incarnation(loop, incarnation, config.kernel_config(), io, this_host(), recovered)
    return loop


def _assemble(
    config: Config,
    loop: Loop,
    listener: Listener,
    pool: MemoryPool,
    store: SsdStore | None,
    health: Health,
    opened: AsyncExitStack,
) -> tuple[Manager, StatusReader]:
    carrier = Carrier(pool.view)
    opened.push_async_callback(carrier.aclose)
    board = Board(config.operations_max)
    incarnation = loop.state.incarnation
    channel = SocketChannel(
        listener,
        Greeter(__version__, incarnation, pool.pool_bytes, pool.reader_fd(), board),
        ChannelLimits(
            connections_max=config.sessions_max,
            outbox_messages_max=config.session_outbox_messages_max,
            outbox_bytes_max=config.session_outbox_bytes_max,
            greeting_seconds_max=config.greeting_timeout,
        ),
    )
    opened.push_async_callback(channel.aclose)
    admission = Admission(loop.journal, config.log_lag_bytes_max)
    status = StatusReader(
        version=__version__,
        socket_path=str(config.socket_path),
        state=loop.state,
        health=health,
        journal=loop.journal,
        admission=admission,
        store=store.info if store is not None else NO_STORE,
        clock=loop.clock,
        started_ns=loop.clock.monotonic_ns(),
    )
    ports = Ports(
        channel=channel,
        carrier=carrier,
        pool=pool,
        store=store,
        board=board,
        handles=TokenSealer(incarnation),
    )
    manager = assemble(loop, ports, health, admission, status.json)
    if config.trace_transfers:
        loop.followers = (*loop.followers, Timeline(_say, loop.clock).follow)
    return manager, status


async def _serve_http(config: Config, nursery: trio.Nursery, manager: Manager, status: StatusReader) -> str:
    """Where the endpoint answers; empty when it is switched off."""
    address = config.http_address
    if address is None:
        return ""
    registry = CollectorRegistry()
    registry.register(ManagerMetrics(manager.loop.state, manager.loop.journal, status.store))
    answers = Answers(registry, status.document, manager.drop_dram)
    port = await nursery.start(serve_http, address, answers)
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"http://{host}:{port}"


# --- saying -------------------------------------------------------------------------------------------


def _greet(config: Config, loop: Loop, io: StoreInfo, endpoint: str) -> None:
    direct = " with O_DIRECT" if io.direct else ""
    _say(
        f"OrbitKV {__version__}, incarnation {loop.state.incarnation}, at {config.socket_path}; "
        f"SSD by {io.engine}{direct}: {io.reason}"
    )
    pages = ssd_pages(loop.state)
    _say(
        f"pool {format_size(config.usable_pool_bytes)}, {pages} pages on the SSD are served again, "
        f"log in {config.log_path}, metrics {f'at {endpoint}/metrics' if endpoint else 'off'}"
    )


def _say(line: str) -> None:
    try:
        print(line, flush=True)
    except OSError:
        pass  # whoever read it is gone; the manager stays


def _complain(line: str) -> None:
    try:
        print(f"orbitkv: {line}", file=sys.stderr, flush=True)
    except OSError:
        pass


# --- ending -------------------------------------------------------------------------------------------


def _release(listener: Listener) -> None:
    """Take the socket away, unless the channel has done so when it closed."""
    if listener.socket.fileno() >= 0:
        listener.close()


def _is_mistake(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_mistake(part) for part in error.exceptions)
    return isinstance(error, _MISTAKES)


def _tell_fault(error: Exception) -> None:
    """What stopped it, in a sentence; and where in the code, because that is a fault of the manager's."""
    traceback.print_exception(error)
    for stop in _fail_stops(error):
        _complain(f"stopped: {stop}")


def _fail_stops(error: BaseException) -> list[FailStop]:
    if isinstance(error, BaseExceptionGroup):
        return [stop for part in error.exceptions for stop in _fail_stops(part)]
    return [error] if isinstance(error, FailStop) else []
