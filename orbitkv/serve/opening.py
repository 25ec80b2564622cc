"""Opens what the settings name, in the order in which it must be closed again, backwards.

    socket, log directory      whoever holds them is the only manager here
    pool, SSD store            memory, then what reads into it
    journal                    after the old chain was closed, if need be by us

Everything opened here ends with the process, however that ends; a killed one leaves a socket file and
lock files that the next start takes over. Raises what the user can mend.
"""

import ctypes
import os
import resource
from contextlib import AsyncExitStack

import attrs

from orbitkv.config import Config, ConfigError, Problem
from orbitkv.events.codec import encode_records
from orbitkv.io.clock import SystemClock
from orbitkv.io.errors import StoreError
from orbitkv.io.host import this_host
from orbitkv.io.journal import FileJournal
from orbitkv.io.journal_thread import JournalSettings
from orbitkv.io.listener import Listener
from orbitkv.io.memory import MemoryPool
from orbitkv.io.segments import LogDirectory
from orbitkv.io.store import SsdStore, open_store
from orbitkv.io.wire import MESSAGE_BYTES_MAX
from orbitkv.manager.kernel.snapshot import snapshot
from orbitkv.manager.kernel.state import new_state
from orbitkv.manager.kernel.step import KERNEL_REVISION
from orbitkv.manager.ports import JournalFull, StoreInfo
from orbitkv.manager.shell.health import Health
from orbitkv.manager.shell.loop import LogExhausted, Loop
from orbitkv.manager.shell.recovery import UnreadablePredecessor, close_predecessor
from orbitkv.manager.shell.start import NO_STORE, next_incarnation, start_incarnation
from orbitkv.serve.saying import complain
from orbitkv.serve.stopping import Stopping

_PR_SET_DUMPABLE = 4
_ANSWER_BYTES_PER_KEY = 8
_ANSWER_BYTES_REST = 4096


@attrs.frozen(slots=True)
class Opened:
    """What the shell is put together from."""

    listener: Listener
    pool: MemoryPool
    store: SsdStore | None
    loop: Loop
    """The new incarnation, begun: its first records are in the log."""
    io: StoreInfo


def open_all(config: Config, stack: AsyncExitStack, stopping: Stopping, health: Health) -> Opened:
    """Blocking: nothing is served yet."""
    listener = Listener(config.socket_path)
    stopping.last_act = lambda: _release(listener)
    stack.callback(_release, listener)
    directory = LogDirectory.open(config.log_path)
    stack.callback(directory.close)
    pool = _open_pool(config)
    stack.callback(pool.close)
    store = _open_store(config, pool)
    if store is not None:
        stack.push_async_callback(_close_store, store)
    _close_old_chain(directory, health)
    loop = _begin(config, directory, store, stack)
    return Opened(listener, pool, store, loop, store.info if store is not None else NO_STORE)


def _release(listener: Listener) -> None:
    """Take the socket away, unless the channel has done so when it closed."""
    if listener.socket.fileno() >= 0:
        listener.close()


def check_answers_fit(config: Config) -> None:
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


def harden() -> None:
    """No core dumps and no tracing by other processes of the user: the pool holds users' data."""
    _occupy_standard_descriptors()
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    # Every client costs a socket, a pidfd and a staging window.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _occupy_standard_descriptors() -> None:
    """Started with one of them closed, the manager's next file would get its number, and whatever a library
    says to its stderr would land in the log or among the pages."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


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
        complain(f"the log of an earlier run was cut: {cut}")
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


def _begin(config: Config, directory: LogDirectory, store: SsdStore | None, stack: AsyncExitStack) -> Loop:
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
    stack.push_async_callback(_close_journal, journal)
    loop = Loop(state, journal, clock)
    io = store.info if store is not None else NO_STORE
    start_incarnation(loop, incarnation, config.kernel_config(), io, this_host(), recovered)
    return loop


# --- closing ------------------------------------------------------------------------------------------


async def _close_store(store: SsdStore) -> None:
    try:
        await store.aclose()
    except OSError as error:
        complain(f"the SSD could not be flushed ({error}): pages written last may not be found again")


async def _close_journal(journal: FileJournal) -> None:
    try:
        await journal.aclose()
    except JournalFull as full:
        raise LogExhausted(
            f"the last records are not in the log: {full}. Free space on its disk; "
            "the next start closes its chain"
        ) from full
