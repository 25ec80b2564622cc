"""Every setting of the manager: its name, default, range and one sentence about it.

One name everywhere: attribute `pool_bytes` = TOML key `pool_bytes` = ORBITKV_POOL_BYTES = `--pool-bytes`.
Sizes are bytes, durations are float seconds (trio's unit). Rules over one setting stand at its field,
rules over several in `contradictions`. This module reads no file and no environment beyond the
directories of the XDG specification for its default paths.
"""

import os
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Literal

import attrs
import msgspec

from orbitkv.config.errors import Contradiction, Unfit
from orbitkv.config.fields import (
    ByteSize,
    Listen,
    Seconds,
    SettingPath,
    bytes_between,
    check_fraction,
    check_listen,
    check_path,
    check_socket_path,
    count_between,
    derived,
    seconds_between,
    setting,
)
from orbitkv.config.units import format_size
from orbitkv.events.config import GIB, MIB, SECOND_NS, KernelConfig
from orbitkv.events.frame import SEGMENT_FRAMES_BYTES_MAX
from orbitkv.events.ids import ALIGNMENT_BYTES, NONE_U32

SUPERBLOCK_BYTES_MIN, SUPERBLOCK_BYTES_MAX = 16 * MIB, 64 * MIB
"""What "auto" chooses from. Larger ones can be set for pages that are larger than 64 MiB."""
POOL_SUPERBLOCKS_AIM = 16
"""Enough superblocks that page sizes can shift between them, and each so large that its tail (half a slot
on average) is little of it: 9 MiB pages waste 44 % of a 16 MiB superblock, 1.5 % of a 64 MiB one."""
TIB = 1 << 40
DAY = 86400.0


def _default_socket_path() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime, "orbitkv.sock") if runtime else Path(f"/tmp/orbitkv-{os.getuid()}.sock")


def _default_log_path() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "orbitkv" / "log"


def _auto_superblock(config: "Config") -> int:
    """About a 16th of the pool, and of the sizes nearby the one that leaves least of the pool over."""
    aim = min(max(config.pool_bytes // POOL_SUPERBLOCKS_AIM, SUPERBLOCK_BYTES_MIN), SUPERBLOCK_BYTES_MAX)
    choices = range(SUPERBLOCK_BYTES_MIN, SUPERBLOCK_BYTES_MAX + 1, 2 * MIB)
    return min(choices, key=lambda size: (config.pool_bytes % size, abs(size - aim)))


def _auto_query_budget(config: "Config") -> int:
    # At least a byte: a pool below one superblock is refused by its own name, not by its budget's.
    return max(1, int(Fraction(str(config.query_budget_fraction)) * config.usable_pool_bytes))


_place, _memory, _ssd, _quota, _log = (
    partial(setting, group=group) for group in ("places", "memory", "ssd", "quotas", "log")
)


@attrs.frozen(kw_only=True)
class Config:
    socket_path: SettingPath = _place(
        "Unix socket that engines connect to; only this user's processes are let in.",
        attrs.Factory(_default_socket_path),
        check_socket_path,
    )
    log_path: SettingPath = _place(
        "Directory of the operation log.", attrs.Factory(_default_log_path), check_path
    )
    ssd_path: SettingPath | None = _place(
        "Directory of the page file, on a local disk; empty: DRAM only.", None, check_path
    )
    http_listen: Listen = _place(
        "Loopback address of /metrics, /health and /cache/memory/cleanup; port 0: any, empty: off.",
        "127.0.0.1:9470",
        check_listen,
    )

    pool_bytes: ByteSize = _memory(
        "Shared memory that pages live in.", 4 * GIB, bytes_between(2 * MIB, 16 * TIB, multiple_of=2 * MIB)
    )
    superblock_bytes: ByteSize = _memory(
        "Part of the pool that holds pages of one size; no page can be larger. "
        "auto: 16MiB to 64MiB by the size of the pool.",
        derived(_auto_superblock),
        bytes_between(2 * MIB, GIB, multiple_of=2 * MIB),
    )
    query_budget_fraction: float = _memory(
        "Share of the pool that queries may hold reserved.", 0.75, check_fraction
    )
    query_budget_bytes: ByteSize = _memory(
        "The same in bytes, over all engines. auto: query_budget_fraction of the pool.",
        derived(_auto_query_budget),
        bytes_between(1, 16 * TIB),
    )
    instance_query_budget_bytes: ByteSize = _memory(
        "What the queries of one engine may hold reserved. auto: all of query_budget_bytes.",
        derived(lambda config: config.query_budget_bytes),
        bytes_between(1, 16 * TIB),
    )
    charge: Literal["owner", "shared"] = _memory(
        "Who pays for a page that several queries of an engine name. owner: each; shared: the earliest.",
        "owner",
    )
    speculative_divisor: int = _memory(
        "Hints may hold this part of each budget reserved: 4 is a quarter, rounded down.",
        4,
        count_between(1, 1 << 20),
    )
    demand_prefix_cut: bool = _memory(
        "Answer a query larger than its budget with the longest prefix that fits, instead of with no hit.",
        False,
    )
    reclaim_batch_pages_max: int = _memory(
        "Most pages that one step of reclaim selects.", 512, count_between(1, 65536)
    )

    ssd_bytes: ByteSize = _ssd(
        "Hard cap of the page file, quarantined slots included; counts only with ssd_path. 0B: no SSD.",
        16 * GIB,
        bytes_between(0, 256 * TIB),
    )
    io_engine: Literal["auto", "io_uring", "threads"] = _ssd(
        "How the SSD is driven. auto: io_uring where the host allows it, else threads.", "auto"
    )
    io_direct: Literal["auto", "on", "off"] = _ssd(
        "O_DIRECT. auto: where the filesystem allows it; on: refuse to start without it.", "auto"
    )
    ssd_inflight_bytes_max: ByteSize = _ssd(
        "Most bytes in flight to the SSD.",
        32 * MIB,
        bytes_between(ALIGNMENT_BYTES, 16 * GIB, multiple_of=ALIGNMENT_BYTES),
    )
    ssd_foreground_reserved_bytes: ByteSize = _ssd(
        "Part of ssd_inflight_bytes_max that only demand reads may use. auto: half.",
        derived(lambda config: config.ssd_inflight_bytes_max // 2),
        bytes_between(0, 16 * GIB),
    )
    ssd_segment_bytes: ByteSize = _ssd(
        "Unit in which the page file is formatted and reclaimed; one page size per segment.",
        256 * MIB,
        bytes_between(2 * MIB, 4 * GIB, multiple_of=2 * MIB),
    )
    ssd_slots_per_segment_max: int = _ssd("Most pages in one segment.", 16384, count_between(1, 1 << 20))
    ssd_write_queue_pages_max: int = _ssd(
        "Pages that may wait for their SSD write; a full queue drops the write and counts it.",
        256,
        count_between(1, 65536),
    )
    ssd_read_failures_max: int = _ssd(
        "Failed reads after which a slot is no longer used.", 3, count_between(1, 1000)
    )

    sessions_max: int = _quota("Most connections at a time.", 1024, count_between(1, 65536))
    operations_per_session_max: int = _quota(
        "Most open queries of one connection; more are answered busy.", 128, count_between(1, 65536)
    )
    operations_max: int = _quota(
        "Most open queries in all; more are answered busy.", 1024, count_between(1, 1 << 20)
    )
    hints_per_session_max: int = _quota(
        "Most open hints of one connection, within its operations.", 16, count_between(0, 65536)
    )
    hints_max: int = _quota("Most open hints in all, within all operations.", 128, count_between(0, 1 << 20))
    query_keys_max: int = _quota("Most page keys of one query.", 4096, count_between(1, 1 << 20))
    decisions_remembered_max: int = _quota(
        "Answers without a lease that are kept so that an engine's other ranks get the same one.",
        1024,
        count_between(1, 1 << 20),
    )
    session_outbox_messages_max: int = _quota(
        "Answers that may wait for a client to read them; beyond it the client is disconnected.",
        1024,
        count_between(1, 1 << 20),
    )
    session_outbox_bytes_max: ByteSize = _quota("The same in bytes.", 4 * MIB, bytes_between(256 << 10, GIB))
    greeting_timeout: Seconds = _quota(
        "How long a new connection may take to say who it is.", 5.0, seconds_between(0.1, 60)
    )
    demand_lifetime: Seconds = _quota(
        "How long a query may wait for its answer.", 60.0, seconds_between(0.001, DAY)
    )
    hint_lifetime: Seconds = _quota(
        "How long a hint may prepare pages before its request must have been scheduled.",
        5.0,
        seconds_between(0.001, DAY),
    )
    lease_lifetime: Seconds = _quota(
        "How long the pages of an answer are promised; a copy that has begun keeps them longer.",
        600.0,
        seconds_between(0.001, DAY),
    )
    save_lifetime: Seconds = _quota(
        "How long a page may wait for the slices of its missing ranks.", 300.0, seconds_between(0.001, DAY)
    )
    sweep_interval: Seconds = _quota("How often lifetimes are looked at.", 0.25, seconds_between(0.001, 60))
    shutdown_timeout: Seconds = _quota(
        "How long a stop may wait for reads, writes and copies to end.", 30.0, seconds_between(0.1, 600)
    )

    log_bytes_max: ByteSize = _log(
        "The log drops its oldest segments beyond this.", 8 * GIB, bytes_between(MIB, 256 * TIB)
    )
    log_segment_bytes: ByteSize = _log(
        "A log segment is closed when it has grown to this.",
        64 * MIB,
        bytes_between(64 << 10, SEGMENT_FRAMES_BYTES_MAX),
    )
    log_segment_seconds: Seconds = _log(
        "A log segment is closed when it is this old.", 3600.0, seconds_between(1, 30 * DAY)
    )
    log_sync_interval: Seconds = _log(
        "Longest time between writing a record and asking the disk to keep it.", 0.1, seconds_between(0, 60)
    )
    log_lag_bytes_max: ByteSize = _log(
        "Log bytes that may wait in memory for a slow disk; beyond it nothing is admitted.",
        64 * MIB,
        bytes_between(MIB, 4 * GIB),
    )
    trace_transfers: bool = _log(
        "Print one JSON line for each stage of a request's life; engines read the same switch.", False
    )

    def __attrs_post_init__(self) -> None:
        found = [(unfit, getattr(self, unfit.setting)) for unfit in contradictions(self)]
        if found:
            raise Contradiction(found)

    @property
    def usable_pool_bytes(self) -> int:
        """The pool in whole superblocks: what is left over below one superblock is not used."""
        return self.pool_bytes // self.superblock_bytes * self.superblock_bytes

    @property
    def ssd_enabled(self) -> bool:
        return self.ssd_path is not None and self.ssd_bytes > 0

    @property
    def http_address(self) -> tuple[str, int] | None:
        """Host and port to listen on; None: switched off."""
        if not self.http_listen:
            return None
        host, _, port = self.http_listen.rpartition(":")
        return "127.0.0.1" if host == "localhost" else host.strip("[]"), int(port)

    def kernel_config(self) -> KernelConfig:
        """The part that decisions depend on, in the kernel's units, as the log's first record holds it."""
        values = {
            field.name: _kernel_value(self, field.name)
            for field in msgspec.structs.fields(KernelConfig)
            if hasattr(self, field.name.removesuffix("_ns"))
        }
        segments = self.ssd_bytes // self.ssd_segment_bytes if self.ssd_enabled else 0
        return KernelConfig(
            **values | {"pool_bytes": self.usable_pool_bytes, "ssd_bytes": segments * self.ssd_segment_bytes}
        )


def contradictions(config: Config) -> Iterator[Unfit]:
    """Every rule over more than one setting that this configuration breaks."""
    superblock, pool = format_size(config.superblock_bytes), format_size(config.pool_bytes)
    log_segment, log_min = format_size(config.log_segment_bytes), format_size(2 * config.log_segment_bytes)
    if config.pool_bytes < config.superblock_bytes:
        yield Unfit(
            f"the pool must hold at least one superblock, and superblock_bytes is {superblock}",
            f"set pool_bytes to at least {superblock}, or superblock_bytes to at most {pool}",
            "pool_bytes",
        )
    elif config.query_budget_bytes > config.usable_pool_bytes:
        usable = format_size(config.usable_pool_bytes)
        yield Unfit(
            f"queries cannot hold more than the pool, of which {usable} are usable",
            f"set query_budget_bytes to {usable} or less, or raise pool_bytes",
            "query_budget_bytes",
        )
    if config.instance_query_budget_bytes > config.query_budget_bytes:
        yield Unfit(
            f"one engine cannot have more than all have ({format_size(config.query_budget_bytes)})",
            "lower instance_query_budget_bytes or raise query_budget_bytes",
            "instance_query_budget_bytes",
        )
    if config.operations_per_session_max > config.operations_max:
        yield Unfit(
            f"one connection cannot have more open queries than all have ({config.operations_max})",
            "lower operations_per_session_max or raise operations_max",
            "operations_per_session_max",
        )
    if config.ssd_foreground_reserved_bytes > config.ssd_inflight_bytes_max:
        yield Unfit(
            f"it is a part of ssd_inflight_bytes_max ({format_size(config.ssd_inflight_bytes_max)})",
            "lower ssd_foreground_reserved_bytes or raise ssd_inflight_bytes_max",
            "ssd_foreground_reserved_bytes",
        )
    if config.log_segment_bytes * 2 > config.log_bytes_max:
        yield Unfit(
            f"the log needs room for two segments, and log_segment_bytes is {log_segment}",
            f"set log_bytes_max to at least {log_min}, or lower log_segment_bytes",
            "log_bytes_max",
        )
    if config.ssd_enabled:
        yield from _ssd_contradictions(config)


def _ssd_contradictions(config: Config) -> Iterator[Unfit]:
    segments = config.ssd_bytes // config.ssd_segment_bytes
    if segments == 0:
        yield Unfit(
            f"the page file must hold at least one segment, and ssd_segment_bytes is "
            f"{format_size(config.ssd_segment_bytes)}",
            "raise ssd_bytes, lower ssd_segment_bytes, or leave ssd_path empty for no SSD",
            "ssd_bytes",
        )
    if segments * config.ssd_slots_per_segment_max >= NONE_U32:
        yield Unfit(
            f"slot numbers have 32 bits, too few for {segments} segments of "
            f"{config.ssd_slots_per_segment_max} slots",
            "lower ssd_slots_per_segment_max or raise ssd_segment_bytes",
            "ssd_bytes",
        )


def _kernel_value(config: Config, field: str) -> Any:
    setting = getattr(config, field.removesuffix("_ns"))
    return round(Fraction(str(setting)) * SECOND_NS) if field.endswith("_ns") else setting
