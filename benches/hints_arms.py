"""The arms of `benches.hints`: what can come of a hint that is sent, and reasons not to send one.

A call is timed by itself, on a manager that has dealt with the call before, right after the prefix has been
hashed, as an engine does when a request comes in. Within a sample the ways of sending take turns call by
call; it holds the median of each and the manager's processor time per call.
"""

import random
import socket
import statistics
import time
from collections.abc import Callable
from enum import Enum
from itertools import count

import attrs

from benches.common import Sample
from benches.hints_field import PAGE_TOKENS, Field, page_keys
from orbitkv.adapters.client import CacheManagerClient, HintRefusal, QueryPart, QueryStatus
from orbitkv.adapters.switches import queue_warmup_enabled
from orbitkv.io import wire
from orbitkv.io.framing import encode_message

ACCEPTED_CALLS = 12
"""So many hints fit into the speculative share together, and there are as many prefixes."""
READING_S = 0.4
"""Longer than the reads of so many hints take: nobody disturbs the manager meanwhile."""
PAUSE_S = 0.001
"""After the answer to a question the manager still has its log to write."""
LOOP = 2000

Hook = Callable[[str, list[bytes]], object]
"""The callback of an engine's queue, as far as hints go: (request, hashes that GPU memory misses)."""


def hook_of(client: CacheManagerClient) -> Hook:
    def hook(request: str, missing: list[bytes]) -> object:
        return client.warm_prefix(request, 0, [QueryPart(0, PAGE_TOKENS, 0, missing)])

    return hook


class Way(Enum):
    """How a hint leaves, and what of that is timed."""

    HOOK = "hint"
    """As an engine sends it."""
    ENCODED = "encode and send"
    """The same message, made and encoded and sent, without any of the client's rules."""
    BARE = "send"
    """The same bytes, encoded before, straight into the socket."""
    NULL = "send again"
    """The null run."""


@attrs.define
class Engine:
    """One that hints. Its tickets are stale at once, so that their number is no limit here."""

    field: Field
    client: CacheManagerClient
    _hook: Hook = attrs.field(init=False)
    _numbers: "count[int]" = attrs.field(factory=count, init=False)

    def __attrs_post_init__(self) -> None:
        self._hook = hook_of(self.client)

    def resident(self, calls: int) -> Sample:
        """DRAM has all the pages: the manager looks, and leaves it at that."""
        self._lease_of(0)
        self.field.settle()
        return self._sent("hints_not_needed_total", calls, lambda number: 0)

    def skipped(self, calls: int) -> Sample:
        """Somebody's demand holds bytes, so hints are not admitted."""
        self.field.cool()
        lease = self._lease_of(0, keep=True)
        try:
            return self._sent("warmup_foreground_skips_total", calls, lambda number: 1)
        finally:
            self.client.release(lease)

    def accepted(self, calls: int) -> Sample:
        """The pages are read from the SSD, 64 for each hint."""
        samples = [self._accepted() for _ in range(max(calls // ACCEPTED_CALLS // 4, 1))]
        return {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}

    def _accepted(self) -> Sample:
        self.field.cool()
        return self._sent("hints_admitted_total", ACCEPTED_CALLS, lambda number: number, READING_S)

    def questions(self, calls: int) -> float:
        """What the manager spends on the question after each call, and on being idle: us per call."""
        cpu_ns = self.field.cpu_ns()
        for _ in range(calls):
            self._catch_up()
        return (self.field.cpu_ns() - cpu_ns) / calls / 1e3

    def _sent(self, counter: str, calls: int, prefix: Callable[[int], int], wait_s: float = 0) -> Sample:
        """Raises RuntimeError when the manager did not make of all of them what it should have."""
        hinted = self.field.metric(counter)
        ways = [way for way in Way for _ in range(calls // len(Way))]
        random.Random(hinted).shuffle(ways)
        taken: dict[Way, list[int]] = {way: [] for way in Way}
        cpu_ns = self.field.cpu_ns()
        for number, way in enumerate(ways):
            request, missing = f"request {next(self._numbers):06}", page_keys(prefix(number))
            taken[way].append(self._send(way, request, missing))
            self._catch_up()
        time.sleep(wait_s)
        cpu_ns = self.field.cpu_ns() - cpu_ns
        if self.field.metric(counter) - hinted != len(ways):
            raise RuntimeError(f"{len(ways)} hints were sent, and {counter} says otherwise")
        medians = {way.value: statistics.median(times) / 1e3 for way, times in taken.items()}
        return {**medians, "cpu_us": cpu_ns / len(ways) / 1e3}

    def _send(self, way: Way, request: str, missing: list[bytes]) -> int:
        """Nanoseconds."""
        if way is Way.HOOK:
            start = time.perf_counter_ns()
            self._hook(request, missing)
            return time.perf_counter_ns() - start
        # Past the client, which encodes and sends in one.
        connection = self.client._session.live()
        connection._calls += 1
        call, ticket, sock = connection._calls, next(self.client._tickets), connection._socket
        start = time.perf_counter_ns()
        parts = [QueryPart(0, PAGE_TOKENS, 0, missing)]
        data = encode_message(wire.WarmPrefix(call, request, 0, ticket, 0, parts))
        if way is not Way.ENCODED:
            start = time.perf_counter_ns()
        sock.send(data, socket.MSG_DONTWAIT)
        return time.perf_counter_ns() - start

    def _catch_up(self) -> None:
        # A question that costs the manager next to nothing, and is answered behind the hint.
        with self.client._session.lock:
            self.client._session.ask(wire.ReadRegistration, again=False)
        time.sleep(PAUSE_S)

    def _lease_of(self, prefix: int, *, keep: bool = False) -> bytes:
        request = f"lease {next(self._numbers)}"
        part = QueryPart(0, PAGE_TOKENS, 0, page_keys(prefix))
        answer = self.client.query(request, 0, [part])
        while answer.status is QueryStatus.LOADING:
            time.sleep(0.001)
            answer = self.client.poll(answer.operation)
        if answer.status is not QueryStatus.READY:
            raise RuntimeError(f"a prefix that was saved is not there: {answer.status.name}")
        if not keep:
            self.client.release(answer.lease)
        return answer.lease


# --- what is not sent -----------------------------------------------------------------------------------


def looped(work: Callable[[], object]) -> Sample:
    """For what is too short to be timed by itself."""
    start = time.perf_counter_ns()
    for _ in range(LOOP):
        work()
    return {"callback_us": (time.perf_counter_ns() - start) / LOOP / 1e3}


def duplicate(client: CacheManagerClient) -> Sample:
    """`client` keeps its tickets for as long as real ones do."""
    hook, keys = hook_of(client), page_keys(0)
    client.cancel_hint("request", 0)
    hook("request", keys)
    sample = looped(lambda: hook("request", keys))
    if hook("request", keys) is not HintRefusal.DUPLICATE:
        raise RuntimeError("a duplicate was sent; the machine is too slow for this bench")
    return sample


def all_in_gpu_memory(client: CacheManagerClient) -> Sample:
    hook = hook_of(client)
    return looped(lambda: hook("request", []))


def switched_off(client: CacheManagerClient) -> Sample:
    """An engine that asked for the switch once, when it was built."""
    warmup, hook, keys = queue_warmup_enabled(), hook_of(client), page_keys(0)

    def callback() -> None:
        if warmup:
            hook("request", keys)

    return looped(callback)


def switched_off_asked_each_time(client: CacheManagerClient) -> Sample:
    hook, keys = hook_of(client), page_keys(0)

    def callback() -> None:
        if queue_warmup_enabled():
            hook("request", keys)

    return looped(callback)


def no_hook() -> Sample:
    def callback() -> None:
        pass

    return looped(callback)
