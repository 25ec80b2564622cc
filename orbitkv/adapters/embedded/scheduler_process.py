"""The scheduler's process: `python -m orbitkv.adapters.embedded.scheduler_process FRONT RANK...`.

The arguments are descriptors: its link to the front, then one to each rank. One thread turns the
scheduler whenever a message has come or its next deadline is reached; what waits, waits in `select`.
"""

import selectors
import socket
import sys
import time
from typing import Any

import msgspec

from orbitkv.adapters.embedded.link import Link, LinkClosed
from orbitkv.adapters.embedded.lookups import Lookups
from orbitkv.adapters.embedded.messages import (
    Abort,
    Arrive,
    Configure,
    ConfigureRank,
    Drain,
    EngineConfig,
    Failed,
    Finished,
    FinishRank,
    FrontMessage,
    Progress,
    RankFinished,
    RankMessage,
    RankReady,
    Ready,
    RestoreDone,
    Staged,
    StepDone,
)
from orbitkv.adapters.embedded.process import run_process
from orbitkv.adapters.embedded.scheduler import Scheduler
from orbitkv.adapters.embedded.sessions import SchedulerSession
from orbitkv.adapters.errors import AdapterError
from orbitkv.adapters.switches import queue_warmup_enabled

MESSAGES_PER_LINK_MAX = 64
"""Taken from one link before the scheduler is turned again."""


class SchedulerProcess:
    def __init__(
        self, front: Link[FrontMessage], ranks: list[Link[RankMessage]], config: EngineConfig
    ) -> None:
        self._front = front
        self._ranks = ranks
        self._ranks_left = len(ranks)
        """Ranks that have not yet said RankReady, later RankFinished."""
        self._session = SchedulerSession(config)
        self._lookups = Lookups(self._session)
        warmup = queue_warmup_enabled() if config.queue_warmup is None else config.queue_warmup
        hinter = self._session if warmup else None
        self._scheduler = Scheduler(config, self._lookups, self._tell_ranks, hinter)
        self._draining = False
        self._progress_ns = int(config.progress_interval_s * 1e9)
        self._told_ns = 0
        self._told_ended = 0
        self._selector = selectors.DefaultSelector()
        links: list[Link[Any]] = [front, *ranks]
        for link in links:
            self._selector.register(link, selectors.EVENT_READ, link)

    def serve(self) -> None:
        """From the ranks' registration to the last report. Raises LinkClosed, AdapterError."""
        while self._ranks_left:
            self._wait(None)
        self._session.wait_sealed()
        self._front.send(Ready())
        while True:
            deadline_ns = self._scheduler.turn(time.monotonic_ns())
            if self._draining and self._scheduler.idle:
                return self._finish()
            self._wait(self._tell_progress(time.monotonic_ns(), deadline_ns))

    def _finish(self) -> None:
        self._send_progress(time.monotonic_ns())
        self._ranks_left = len(self._ranks)
        self._tell_ranks(FinishRank())
        while self._ranks_left:
            self._wait(None)
        report = self._scheduler.report
        counts = self._lookups.counts
        report.manager_failures += counts.failures
        report.revisions, report.cancelled_lookups = counts.revisions, counts.cancelled
        self._session.close()
        self._front.send(Finished(report))

    def _wait(self, deadline_ns: int | None) -> None:
        timeout_s = None if deadline_ns is None else max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9)
        for key, _ in self._selector.select(timeout_s):
            self._drain_link(key.data)

    def _drain_link(self, link: Link[Any]) -> None:
        for _ in range(MESSAGES_PER_LINK_MAX):
            try:
                message = link.receive_nowait()
            except LinkClosed:
                if link is self._front:
                    raise
                raise _rank_failed("It ended without a word.") from None
            if message is None:
                return
            self._take(message)
            if isinstance(message, RankFinished):
                self._selector.unregister(link)
                return

    def _take(self, message: FrontMessage | RankMessage) -> None:
        match message:
            case Arrive():
                self._scheduler.arrive(message, time.monotonic_ns())
            case Abort(name=name):
                self._scheduler.abort(name)
            case Drain():
                self._draining = True
            case StepDone(number=number):
                self._scheduler.step_done(number)
            case RestoreDone():
                self._scheduler.restore_done(message, time.monotonic_ns())
            case Staged(number=number):
                self._scheduler.staged(number)
            case RankReady():
                self._ranks_left -= 1
            case RankFinished():
                self._ranks_left -= 1
                self._scheduler.report.manager_failures += message.manager_failures
                self._scheduler.report.rank_cpu_us += message.cpu_us
            case Failed(sentence=sentence):
                raise AdapterError(
                    "A rank of the engine failed.", sentence, "see the lines above it in its log"
                )
            case _:
                raise AssertionError(f"a configured scheduler is not told {message!r}")

    def _tell_ranks(self, order: msgspec.Struct) -> None:
        for link in self._ranks:
            try:
                link.send(order)
            except LinkClosed:
                raise _rank_failed("It takes no orders any more.") from None

    def _tell_progress(self, now_ns: int, deadline_ns: int | None) -> int | None:
        """Tell it if there is something to tell and the last time is long enough ago.

        Returns the deadline, earlier if something is left to tell.
        """
        if not self._has_news:
            return deadline_ns
        due_ns = self._told_ns + self._progress_ns
        if now_ns < due_ns:
            return due_ns if deadline_ns is None else min(due_ns, deadline_ns)
        self._send_progress(now_ns)
        return deadline_ns

    @property
    def _has_news(self) -> bool:
        scheduler = self._scheduler
        return bool(
            scheduler.first_tokens_us or scheduler.exposed_waits_us or scheduler.ended != self._told_ended
        )

    def _send_progress(self, now_ns: int) -> None:
        scheduler = self._scheduler
        progress = Progress(
            tuple(scheduler.first_tokens_us), scheduler.ended, tuple(scheduler.exposed_waits_us)
        )
        self._front.send(progress)
        scheduler.first_tokens_us.clear()
        scheduler.exposed_waits_us.clear()
        self._told_ns, self._told_ended = now_ns, progress.ended


def _rank_failed(why: str) -> AdapterError:
    return AdapterError("A rank of the engine failed.", why, "see the engines' output")


def serve(front: Link[FrontMessage]) -> None:
    ranks: list[Link[RankMessage]] = [
        Link(socket.socket(fileno=int(argument)), RankMessage) for argument in sys.argv[2:]
    ]
    begin = front.receive()
    assert isinstance(begin, Configure)
    for number, link in enumerate(ranks):
        link.send(ConfigureRank(begin.config, number))
    SchedulerProcess(front, ranks, begin.config).serve()


if __name__ == "__main__":
    sys.exit(run_process(FrontMessage, serve))
