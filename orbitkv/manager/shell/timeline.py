"""`cache_timeline`: the manager's stages of a request's life, one JSON line each, for those who ask for it.

Follows the records as they are made and decides nothing. Stages: `read_start` (the first of its SSD reads
is at the device), `host_ready` (its pages stand in DRAM: leased for a query, merely there for a hint),
`query_cancel`, `read_stopped` (it no longer waits for reads that had started), `read_deadline` (its lifetime
ended first). `origin` says whose stage it is: a hint's (warm) or a query's (demand). Engines print theirs.
Monotonic times compare within one process only. Never tokens, never keys.
"""

import json
import os
from collections.abc import Callable, Sequence

import attrs

from orbitkv.events import facts
from orbitkv.events.outcomes import HintEnd, QueryEnd
from orbitkv.events.record import Record
from orbitkv.manager.kernel.columns import unpack
from orbitkv.manager.ports import Clock

_DEMAND, _WARM = "demand", "warm"


@attrs.define(slots=True)
class _Asker:
    """An open query or hint."""

    request: str
    attempt: int
    engine: str
    opened_ns: int
    origin: str = _DEMAND
    trailing: tuple[int, ...] = ()
    """Of a hint, per part: how many pages before the boundary it names; 0 for all."""
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
    _askers: dict[int, _Asker] = attrs.field(factory=dict, init=False)
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
                self._askers[event.operation] = _Asker(event.request, event.attempt, engine, at_ns)
            case facts.HintAdmitted():
                self._hinted(event, at_ns)
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
                self._askers[event.operation].hits = event.asked - event.miss
            case facts.QueryCut():
                self._cut(self._askers[event.operation], event.reach)
            case facts.LeaseGranted():
                self._ready(self._askers[event.operation], at_ns)
            case facts.QueryEnded():
                self._query_ended(self._askers.pop(event.operation), event.end, at_ns)
            case facts.HintEnded():
                self._hint_ended(self._askers.pop(event.operation), event.end, at_ns)
            case _:
                pass

    def _hinted(self, event: facts.HintAdmitted, at_ns: int) -> None:
        engine = self._engines.get(event.instance, "")
        trailing = tuple(part_trailing for _, _, part_trailing, _ in event.parts)
        hint = _Asker(event.request, event.attempt, engine, at_ns, _WARM, trailing)
        self._cut(hint, [len(pages) // 4 for pages in event.pages])
        self._askers[event.operation] = hint

    def _joined(self, event: facts.ReadsJoined, at_ns: int) -> None:
        for read in unpack(event.reads).tolist():
            if read in self._queued:
                self._queued[read].append(event.operation)
            else:
                self._read_started(event.operation, at_ns)

    def _read_started(self, operation: int, at_ns: int) -> None:
        asker = self._askers.get(operation)
        if asker is not None and asker.read_start_ns is None:
            asker.read_start_ns = at_ns
            self._say("read_start", asker, at_ns, waited_us=(at_ns - asker.opened_ns) // 1000)

    def _cut(self, asker: _Asker, reach: Sequence[int]) -> None:
        """A hint's hits are what it will have prepared or found; a query's are settled with its answer."""
        if asker.origin == _WARM:
            bounds = zip(asker.trailing, reach, strict=True)
            asker.hits = sum(min(trailing, pages) if trailing else pages for trailing, pages in bounds)

    def _ready(self, asker: _Asker, at_ns: int) -> None:
        asker.ready = True
        elapsed_ns = 0 if asker.read_start_ns is None else at_ns - asker.read_start_ns
        self._say("host_ready", asker, at_ns, hits=asker.hits, elapsed_us=elapsed_ns // 1000)

    def _query_ended(self, query: _Asker, end: QueryEnd, at_ns: int) -> None:
        if end is QueryEnd.CANCELLED:
            self._say("query_cancel", query, at_ns)
        if not query.ready:
            self._stopped(query, at_ns, end.name.lower(), deadline=end is QueryEnd.EXPIRED)

    def _hint_ended(self, hint: _Asker, end: HintEnd, at_ns: int) -> None:
        if end is HintEnd.PREPARED and hint.hits:
            self._ready(hint, at_ns)
        else:
            self._stopped(hint, at_ns, end.name.lower(), deadline=end is HintEnd.EXPIRED)

    def _stopped(self, asker: _Asker, at_ns: int, cause: str, *, deadline: bool) -> None:
        if asker.read_start_ns is not None:
            self._say("read_deadline" if deadline else "read_stopped", asker, at_ns, cause=cause)

    def _say(self, stage: str, asker: _Asker, at_ns: int, **extras: int | str) -> None:
        fields = {
            "event": "cache_timeline",
            "stage": stage,
            "request_id": asker.request,
            "attempt": asker.attempt,
            "pid": os.getpid(),
            "at_unix_ns": self.clock.unix_ns(),
            "monotonic_ns": at_ns,
            "engine": asker.engine,
            "origin": asker.origin,
        }
        self.write(json.dumps(fields | extras))
