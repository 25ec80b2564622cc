"""Puts the shell together from its ports. The composition root gives the real ones, tests give doubles."""

from collections.abc import Callable

import attrs

from orbitkv.io.tokens import TokenSealer
from orbitkv.manager.ports import Carrier, Channel, PageStore, Pool
from orbitkv.manager.shell.admission import Admission
from orbitkv.manager.shell.board import OperationBoard
from orbitkv.manager.shell.executor import Executor
from orbitkv.manager.shell.health import Health
from orbitkv.manager.shell.loop import Loop
from orbitkv.manager.shell.manager import Manager
from orbitkv.manager.shell.notices import Notices
from orbitkv.manager.shell.reports import Reports
from orbitkv.manager.shell.requests.base import Desk
from orbitkv.manager.shell.ssd import SsdLane
from orbitkv.manager.shell.watch import Watch


@attrs.frozen(slots=True, kw_only=True)
class Ports:
    channel: Channel
    carrier: Carrier
    pool: Pool
    store: PageStore | None
    board: OperationBoard
    handles: TokenSealer


def assemble(
    loop: Loop, ports: Ports, health: Health, admission: Admission, status: Callable[[], str]
) -> Manager:
    """A manager over a loop that has started its incarnation. To be called inside trio."""
    state = loop.state
    reports = Reports()
    lane = SsdLane(state, loop.journal, ports.store, reports, health)
    executor = Executor(
        state, ports.pool, ports.carrier, ports.store, lane, reports, health, ports.channel.close_session
    )
    notices = Notices(state, ports.channel, ports.carrier, ports.board)
    loop.followers = (executor.carry_out, notices.give)
    desk = Desk(ports.channel, ports.carrier, ports.handles, ports.board, admission, status)
    return Manager(
        loop=loop,
        executor=executor,
        reports=reports,
        desk=desk,
        channel=ports.channel,
        carrier=ports.carrier,
        store=ports.store,
        health=health,
        watch=Watch(state, admission, health),
        sweep_interval_s=state.config.sweep_interval_ns / 1e9,
    )
