"""`cache_timeline`: the manager's stages of a request's life, one JSON line each, for those who ask for it.

Follows the records as they are made and decides nothing. Stages: `read_start` (the first of its SSD reads
is at the device), `host_ready` (its pages stand in DRAM and are leased), `query_cancel`, `read_stopped`
(nobody waits any more for reads that had started), `read_deadline` (its lifetime ended first). Engines
print theirs. Monotonic times compare within one process only. Never tokens, never keys.
"""

import json
import os
from collections.abc import Callable, Sequence

import attrs

from orbitkv.events import facts
from orbitkv.events.outcomes import QueryEnd
from orbitkv.events.record import Record
from orbitkv.manager.kernel.columns import unpack
from orbitkv.manager.ports import Clock


@attrs.define(slots=True)
class _Query:
    request: str
    attempt: int
    engine: str
    opened_ns: int
    read_start_ns: int | None = None
    """None: none of its reads is at the device yet."""
    hits: int = 0
    ready: bool = False


@attrs.define(slots=True)
class Timeline:
    """Give `follow` to the loop as a follower, before its first client."""

    write: Callable[[str], None]
    clock: Clock
    _engines: dict[int, str] = attrs.field(factory=dict, init=False)
    _queries: dict[int, _Query] = attrs.field(factory=dict, init=False)
    """Open operations; the kernel bounds them."""
    _queued: dict[int, list[int]] = attrs.field(factory=dict, init=False)
    """Read that is not at the device yet -> operations that wait for it."""

    def follow(self, records: Sequence[Record]) -> None:
        for record in records:
            for event in record.events:
                self._note(event, record.at_ns)

    def _note(self, event: facts.Event, at_ns: int) -> None:
        match event:
            case facts.RankRegistered():
                self._engines[event.instance] = event.name
            case facts.InstanceClosed():
                self._engines.pop(event.instance, None)
            case facts.QueryOpened():
                engine = self._engines.get(event.instance, "")
                self._queries[event.operation] = _Query(event.request, event.attempt, engine, at_ns)
            case facts.ReadsQueued():
                for read in range(event.read, event.read + len(event.pages) // 4):
                    self._queued[read] = [event.operation]
            case facts.ReadsJoined():
                self._joined(event, at_ns)
            case facts.ReadsSubmitted():
                for read in unpack(event.reads).tolist():
                    for operation in self._queued.pop(read, ()):
                        self._read_started(operation, at_ns)
            case facts.ReadsDropped():
                for read in unpack(event.reads).tolist():
                    self._queued.pop(read, None)
            case facts.DecisionSettled():
                self._queries[event.operation].hits = event.asked - event.miss
            case facts.LeaseGranted():
                self._ready(event.operation, at_ns)
            case facts.QueryEnded():
                self._ended(self._queries.pop(event.operation), event.end, at_ns)
            case _:
                pass

    def _joined(self, event: facts.ReadsJoined, at_ns: int) -> None:
        for read in unpack(event.reads).tolist():
            if read in self._queued:
                self._queued[read].append(event.operation)
            else:
                self._read_started(event.operation, at_ns)

    def _read_started(self, operation: int, at_ns: int) -> None:
        query = self._queries.get(operation)
        if query is not None and query.read_start_ns is None:
            query.read_start_ns = at_ns
            self._say("read_start", query, at_ns, waited_us=(at_ns - query.opened_ns) // 1000)

    def _ready(self, operation: int, at_ns: int) -> None:
        query = self._queries[operation]
        query.ready = True
        elapsed_ns = 0 if query.read_start_ns is None else at_ns - query.read_start_ns
        self._say("host_ready", query, at_ns, hits=query.hits, origin="demand", elapsed_us=elapsed_ns // 1000)

    def _ended(self, query: _Query, end: QueryEnd, at_ns: int) -> None:
        if end is QueryEnd.CANCELLED:
            self._say("query_cancel", query, at_ns)
        if query.ready or query.read_start_ns is None:
            return
        stage = "read_deadline" if end is QueryEnd.EXPIRED else "read_stopped"
        self._say(stage, query, at_ns, cause=end.name.lower())

    def _say(self, stage: str, query: _Query, at_ns: int, **extras: int | str) -> None:
        fields = {
            "event": "cache_timeline",
            "stage": stage,
            "request_id": query.request,
            "attempt": query.attempt,
            "pid": os.getpid(),
            "at_unix_ns": self.clock.unix_ns(),
            "monotonic_ns": at_ns,
            "engine": query.engine,
        }
        self.write(json.dumps(fields | extras))
