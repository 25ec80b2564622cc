"""The first records of an incarnation: its configuration, then what the SSD still holds."""

from collections.abc import Iterator, Sequence
from itertools import chain

from orbitkv.events.commands import Command, Start
from orbitkv.events.config import KernelConfig
from orbitkv.manager.kernel.columns import unpack
from orbitkv.manager.kernel.step import KERNEL_REVISION
from orbitkv.manager.ports import RecoveredSegment, StoreInfo
from orbitkv.manager.shell.loop import Loop
from orbitkv.manager.shell.recovery import recovery_commands
from orbitkv.manager.shell.status import ssd_pages

NO_STORE = StoreInfo(
    engine="none",
    direct=False,
    reason="no SSD because ssd_path is empty",
    path="",
    capacity_bytes=0,
    segment_bytes=0,
)


def start_incarnation(
    loop: Loop,
    incarnation: int,
    config: KernelConfig,
    io: StoreInfo,
    host: str,
    recovered: Sequence[RecoveredSegment],
) -> int:
    """Step Start and the recovery. Gives how many pages of the SSD are served again. Raises FailStop."""
    start = Start(
        incarnation=incarnation,
        kernel_revision=KERNEL_REVISION,
        config=config,
        io_engine=io.engine,
        io_direct=io.direct,
        io_reason=io.reason,
        host=host,
    )
    commands: Iterator[Command] = chain([start], recovery_commands(recovered))
    loop.process(commands)
    return ssd_pages(loop.state)


def next_incarnation(log_last: int, recovered: Sequence[RecoveredSegment]) -> int:
    """Above every incarnation that the log or the SSD has seen.

    The log may have been moved away while the pages stayed: a generation of the new incarnation must
    still be no generation that stands on the SSD.
    """
    ssd_last = max((int(unpack(one.incarnations).max()) for one in recovered if one.incarnations), default=0)
    return max(log_last, ssd_last) + 1
