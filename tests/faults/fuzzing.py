"""Clients that say well-formed things in an order and with numbers that nobody means.

Handles and plans are mostly real ones, of whichever client got them last, so that requests get past the
first check. Drawn from a seed; everything goes over real sockets.
"""

import os
import random
import struct
from collections import Counter
from collections.abc import Callable

import attrs

from orbitkv.events.geometry import GroupGeometry, SliceGeometry
from orbitkv.events.outcomes import SyncOutcome
from orbitkv.io import wire
from orbitkv.io.framing import FramingError
from orbitkv.io.host import this_host
from tests.faults.support import Stranger, window
from tests.restart.managers import GROUPS, NAMESPACE, PAGE_TOKENS, Place, key

WINDOW_BYTES = 1 << 20
CLIENTS = 6
_NUMBERS = (0, 1, 2, 3, 5, 16, 63, 64, 100, 4095, 4096, 0xFFFF_FFFF)
_OFFSETS = (0, 1, 4096, 8192, 1 << 19, WINDOW_BYTES - 4096, 1 << 40, (1 << 64) - 1)
_RANGES = (((0, 1),), ((0, 2),), ((1, 3),), ((0, 1), (2, 5)), ((3, 9),), ())
_ODD_GROUPS = (
    (*GROUPS, GroupGeometry(1, 32, (SliceGeometry("more", 3000),))),
    (GroupGeometry(0, PAGE_TOKENS, ()),),
    (GroupGeometry(0, PAGE_TOKENS, (SliceGeometry("shared", 5000, True), SliceGeometry("own", 5000))),),
    (GroupGeometry(0, PAGE_TOKENS, (SliceGeometry("vast", 9 << 20),)),),
    (),
)
_WEIGHTS = {
    "register": 1,
    "read_registration": 2,
    "query": 20,
    "piece": 0.3,
    "poll": 8,
    "cancel": 4,
    "begin_restore": 12,
    "sync": 10,
    "release": 4,
    "begin_save": 10,
    "commit_save": 10,
    "abort_save": 3,
    "stage": 1,
    "goodbye": 0.3,
    "drop_dram": 0.5,
    "release_process": 0.1,
    "status": 1,
    "hint": 8,
    "cancel_hint": 3,
    "vanish": 0.3,
}


@attrs.define(eq=False)
class Known:
    """What one client was given, newest last."""

    operations: list[bytes] = attrs.Factory(list)
    leases: list[bytes] = attrs.Factory(list)
    plans: list[tuple[list[int], list[int]]] = attrs.Factory(list)
    """(buffers, generations) as the manager named them."""

    def add(self, reply: object) -> None:
        if isinstance(reply, wire.QueryAnswered):
            self.operations = [*self.operations[-6:], *filter(None, [reply.operation])]
            self.leases = [*self.leases[-3:], *filter(None, [reply.lease])]
        if isinstance(reply, wire.SaveBegun) and reply.buffers:
            count = len(reply.buffers) // 4
            buffers = struct.unpack(f"<{count}I", reply.buffers)
            generations = struct.unpack(f"<{count}Q", reply.generations)
            self.plans = [*self.plans[-2:], (list(buffers), list(generations))]


@attrs.define(eq=False)
class Crowd:
    """Several clients of one process, one request after the other."""

    place: Place
    chance: random.Random
    clients: list[Stranger] = attrs.Factory(list)
    known: list["Known"] = attrs.Factory(list)
    """By client."""
    window: int = attrs.field(factory=lambda: window(WINDOW_BYTES))
    heard: "Counter[str]" = attrs.Factory(Counter)

    def talk(self, messages: int) -> "Counter[str]":
        """Raises TimeoutError or OSError when nobody answers any more."""
        self.known = [Known() for _ in range(CLIENTS)]
        self.clients = [self._newcomer(number) for number in range(CLIENTS)]
        for _ in range(messages):
            self._say_something(self.chance.randrange(CLIENTS))
        for client in self.clients:
            client.close()
        os.close(self.window)
        return self.heard

    def _say_something(self, number: int) -> None:
        client = self.clients[number]
        what = self.chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        if what == "vanish":
            self._start_afresh(number)
            return
        mine = self.known[number if self.chance.random() < 0.9 else self.chance.randrange(CLIENTS)]
        request = getattr(self, f"_{what}")(client.call + 1, client, mine)
        has_window = isinstance(request, wire.RegisterRank) and request.staging_bytes > 0
        reply = self._exchange(client, request, (self.window,) if has_window else ())
        self.heard[f"{type(request).__name__} {getattr(reply, 'name', type(reply).__name__)}"] += 1
        if reply is None or what == "goodbye" or getattr(reply, "call", 0) == 0:
            self._start_afresh(number)
        self.known[number].add(reply)

    def _exchange(self, client: Stranger, request: wire.Request, windows: tuple[int, ...]) -> object:
        """The reply, made up for what is never answered; None when the connection is no more."""
        try:
            if isinstance(request, wire.ReportStage | wire.WarmPrefix | wire.CancelHint):
                client.tell(lambda _: request)
                return wire.Done(client.call)
            return client.ask(lambda _: request, windows)
        except (ConnectionError, FramingError):
            return None

    def _start_afresh(self, number: int) -> None:
        self.clients[number].close()
        self.clients[number] = self._newcomer(number)

    def _newcomer(self, number: int) -> Stranger:
        """Mostly one that begins as an engine of its own."""
        client = Stranger.at(self.place)
        if self.chance.random() < 0.9:
            client.register(f"engine {number}", staging_bytes=WINDOW_BYTES, descriptors=(self.window,))
        return client

    # --- what can be said -------------------------------------------------------------------------------

    def _register(self, call: int, client: Stranger, known: Known) -> wire.Request:
        world_size = self.chance.choice((1, 1, 1, 1, 1, 2, 2, 3))
        return wire.RegisterRank(
            call,
            f"engine {self.chance.randrange(4)}",
            self.chance.choice((*range(world_size), *range(world_size), -1, world_size)),
            world_size,
            this_host(),
            NAMESPACE.digest,
            NAMESPACE.document,
            self.chance.random() < 0.02,
            GROUPS if self.chance.random() < 0.8 else self.chance.choice(_ODD_GROUPS),
            self.chance.choice((0, WINDOW_BYTES, WINDOW_BYTES)),
        )

    def _read_registration(self, call: int, client: Stranger, known: Known) -> wire.Request:
        return wire.ReadRegistration(call)

    def _query(self, call: int, client: Stranger, known: Known) -> wire.Request:
        return wire.SubmitQuery(call, *self._asking(client))

    def _hint(self, call: int, client: Stranger, known: Known) -> wire.Request:
        return wire.WarmPrefix(call, *self._asking(client))

    def _asking(self, client: Stranger) -> tuple[str, int, int, int, list[wire.QueryPart]]:
        client.ticket = max(1, client.ticket + self.chance.choice((1, 1, 1, 1, 0, 2)))
        parts = [
            wire.QueryPart(
                self.chance.choice((*[0] * 15, 1, 7)),
                self.chance.choice((*[PAGE_TOKENS] * 15, 32)),
                self.chance.choice((0, 0, 0, 1, 2, 4, 1 << 20)),
                self._keys(),
            )
            for _ in range(self.chance.choice((1, 1, 1, 2)))
        ]
        request = f"request {self.chance.randrange(12)}"
        return request, self.chance.randrange(2), client.ticket, self.chance.randrange(3), parts

    def _keys(self) -> list[bytes]:
        first = self.chance.randrange(60)
        keys = [key(first + number) for number in range(self.chance.choice((0, 1, 2, 3, 5, 8, 20, 40)))]
        if self.chance.random() < 0.1:
            self.chance.shuffle(keys)
        return keys + keys[:1] if self.chance.random() < 0.05 else keys

    def _piece(self, call: int, client: Stranger, known: Known) -> wire.Request:
        return wire.ExtendQuery(call, self.chance.randrange(2), self._keys())

    def _poll(self, call: int, client: Stranger, known: Known) -> wire.Request:
        return wire.PollQuery(call, self._handle(known.operations))

    def _cancel(self, call: int, client: Stranger, known: Known) -> wire.Request:
        return wire.CancelQuery(call, self._handle(known.operations))

    def _begin_restore(self, call: int, client: Stranger, known: Known) -> wire.Request:
        return wire.BeginRestore(call, self._handle(known.leases))

    def _sync(self, call: int, client: Stranger, known: Known) -> wire.Request:
        return wire.ReportSync(
            call,
            self._handle(known.leases),
            self.chance.choice(list(SyncOutcome)),
            self.chance.choice(_RANGES),
            self._number(),
            self.chance.choice((0, 5000, 1 << 44)),
            self.chance.choice((0, 7, 1 << 40)),
        )

    def _release(self, call: int, client: Stranger, known: Known) -> wire.Request:
        return wire.ReleaseLease(call, self._handle(known.leases))

    def _begin_save(self, call: int, client: Stranger, known: Known) -> wire.Request:
        credit = self.chance.choice((0, 1, 5, 50, 0xFFFF_FFFF))
        lost = self.chance.choice((0, 0, 0, self._number()))
        return wire.BeginSave(call, self.chance.choice((0, 0, 0, 0, 1, 9)), self._keys(), credit, lost)

    def _commit_save(self, call: int, client: Stranger, known: Known) -> wire.Request:
        buffers, generations = self._plan(known)
        offsets = [self.chance.choice(_OFFSETS) for _ in buffers]
        return wire.CommitSave(call, _column("I", buffers), _column("Q", offsets), _column("Q", generations))

    def _abort_save(self, call: int, client: Stranger, known: Known) -> wire.Request:
        buffers, generations = self._plan(known)
        return wire.AbortSave(call, _column("I", buffers), _column("Q", generations))

    def _stage(self, call: int, client: Stranger, known: Known) -> wire.Request:
        return wire.ReportStage(call, f"request {self.chance.randrange(12)}", 0, "queued", 1, 1)

    def _goodbye(self, call: int, client: Stranger, known: Known) -> wire.Request:
        return wire.CloseSession(call)

    def _drop_dram(self, call: int, client: Stranger, known: Known) -> wire.Request:
        return wire.DropDram(call)

    def _release_process(self, call: int, client: Stranger, known: Known) -> wire.Request:
        return wire.ReleaseProcess(call, self.chance.randrange(3))

    def _status(self, call: int, client: Stranger, known: Known) -> wire.Request:
        return wire.ReadStatus(call)

    def _cancel_hint(self, call: int, client: Stranger, known: Known) -> wire.Request:
        return wire.CancelHint(call, self.chance.randrange(1, client.ticket + 3))

    # --- numbers ------------------------------------------------------------------------------------------

    def _handle(self, known: list[bytes]) -> bytes:
        return self.chance.choice(known) if known and self.chance.random() < 0.97 else os.urandom(24)

    def _number(self) -> int:
        return self.chance.choice((*_NUMBERS, self.chance.randrange(1 << 32)))

    def _plan(self, known: Known) -> tuple[list[int], list[int]]:
        if not known.plans or self.chance.random() < 0.05:
            return [self._number()], [self.chance.randrange(1 << 64)]
        buffers, generations = self.chance.choice(known.plans)
        some = self.chance.randrange(len(buffers) + 1)
        return buffers[:some], generations[:some]


def _column(kind: str, values: list[int]) -> bytes:
    return struct.pack(f"<{len(values)}{kind}", *values)


def talk(place: Place, seed: int, messages: int) -> Callable[[], dict[str, int]]:
    """To be run in a process of its own: what was answered, and how often."""
    return lambda: dict(Crowd(place, random.Random(seed)).talk(messages))
