"""What simulated engines ask for: conversations over shared prefixes, restored and saved rank by rank.

Prompts are trees: a few system prefixes, conversations that grow turn by turn, and now and then an old
one taken up again. Engines move in small steps, each of them one command, so that the simulator can
put anything between two of them. They see what a client would see and no more. All randomness is the
caller's.
"""

from collections.abc import Sequence
from random import Random

import attrs

from orbitkv.events import commands
from orbitkv.events.geometry import GroupGeometry, SliceGeometry
from orbitkv.events.outcomes import SyncOutcome

HOST = "simulated"
"""The one machine of a run."""


@attrs.frozen
class GroupShape:
    """One KV group of an engine, as its queries and registrations name it."""

    group: int
    page_tokens: int
    trailing: int
    """0: full attention. n: only the last n pages before the boundary are needed (a sliding window)."""
    payload_bytes: int
    """Of one rank's slice of a page."""
    replicated: bool = False
    """Every rank holds the whole page; it is stored once."""

    def slice_of(self, rank: int) -> str:
        return "all heads" if self.replicated else f"heads of rank {rank}"


class Prompts:
    """An endless, seeded supply of page keys. A prompt is a list of keys in prefix order."""

    def __init__(self, random: Random, *, systems: int = 3, pages_max: int = 24) -> None:
        self._random = random
        self._made = 0
        self._pages_max = pages_max
        self._systems = [self._fresh(random.randint(1, 5)) for _ in range(systems)]
        self._conversations: list[list[bytes]] = []

    def _fresh(self, count: int) -> list[bytes]:
        first, self._made = self._made, self._made + count
        return [f"page-{number:011d}".encode() for number in range(first, self._made)]

    def next_prompt(self) -> list[bytes]:
        """A new conversation, the next turn of one, or one asked again word for word."""
        roll = self._random.random()
        if not self._conversations or roll < 0.25:
            prompt = [*self._random.choice(self._systems), *self._fresh(self._random.randint(1, 4))]
        else:
            prompt = list(self._random.choice(self._conversations[-30:]))
            if roll < 0.8 and len(prompt) < self._pages_max:
                prompt += self._fresh(self._random.randint(1, 3))
        self._conversations.append(prompt)
        return prompt


@attrs.define
class RankCopy:
    """One rank's part of a restore: waiting, copying, done, or failed without a word."""

    stage: str = "waiting"


@attrs.define
class Request:
    name: str
    attempt: int
    keys: list[bytes]
    revision: int = 0
    operation: int = -1
    lease: int = -1
    hits: int = 0
    stage: str = "new"
    """queued, new, loading, leased, computed or over."""
    hints: list[tuple[int, int]] = attrs.Factory(list)
    """(session, ticket) of every hint sent for it."""
    ranks: dict[int, RankCopy] = attrs.Factory(dict)


@attrs.define
class SavePlan:
    """One rank's save: buffers it was given and has not committed yet."""

    rank: int
    group: int
    session: int
    buffers: list[tuple[int, int]]
    """(buffer, generation): a buffer's number is used again, its generation never is."""


@attrs.define
class Engine:
    """One instance with all its ranks. Each rank is a process with one session."""

    name: str
    world_size: int
    groups: tuple[GroupShape, ...]
    namespace_digest: bytes
    random: Random
    prompts: Prompts
    observable: bool = True
    processes: dict[int, int] = attrs.Factory(dict)
    sessions: dict[int, int] = attrs.Factory(dict)
    """Rank to session, of those that are connected."""
    tickets: dict[int, int] = attrs.Factory(dict)
    scheduler: int | None = None
    """The session of one that only asks, where there is one."""
    requests: list[Request] = attrs.Factory(list)
    queued: list[Request] = attrs.Factory(list)
    """Requests that wait in the engine's queue: hinted, not asked for yet."""
    plans: list[SavePlan] = attrs.Factory(list)
    to_save: list[tuple[int, int, list[bytes]]] = attrs.Factory(list)
    """(rank, group, keys) that were computed and are to be offered."""
    known: list[list[bytes]] = attrs.Factory(list)
    """Prompts that were computed, the last few: what is likely to be somewhere."""
    made: int = 0
    stopped_until: int = 0
    """Before this step none of its processes runs."""

    @property
    def connected(self) -> bool:
        return len(self.sessions) == self.world_size

    def registration(self, session: int, rank: int) -> commands.RegisterRank:
        groups = tuple(
            GroupGeometry(
                shape.group,
                shape.page_tokens,
                (SliceGeometry(shape.slice_of(rank), shape.payload_bytes, shape.replicated),),
            )
            for shape in self.groups
        )
        return commands.RegisterRank(
            session=session,
            instance=self.name,
            rank=rank,
            world_size=self.world_size,
            host=HOST,
            namespace_digest=self.namespace_digest,
            namespace_document="{}",
            hash_process_dependent=False,
            groups=groups if rank >= 0 else (),
            staging_bytes=1 << 20,
        )

    def next_ticket(self, session: int) -> int:
        self.tickets[session] = self.tickets.get(session, 0) + 1
        return self.tickets[session]

    def asker(self) -> int:
        """Any rank may ask, and a scheduler where there is one."""
        if self.scheduler is not None and self.random.random() < 0.5:
            return self.scheduler
        return self.random.choice(list(self.sessions.values()))

    def pick(self, *stages: str) -> Request | None:
        """Some request in one of these stages."""
        found = [request for request in self.requests if request.stage in stages]
        return self.random.choice(found) if found else None

    def new_request(self) -> Request:
        request = self._made(self.prompts.next_prompt(), "new")
        self.requests.append(request)
        return request

    def new_queued(self) -> Request:
        """Queued prompts are mostly computed ones, and at times short enough for a small budget's share."""
        known = self.known and self.random.random() < 0.85
        keys = list(self.random.choice(self.known)) if known else self.prompts.next_prompt()
        if self.random.random() < 0.6:
            keys = keys[: self.random.randint(1, 6)]
        request = self._made(keys, "queued")
        self.queued.append(request)
        return request

    def _made(self, keys: list[bytes], stage: str) -> Request:
        self.made += 1
        return Request(f"{self.name}-{self.made}", 0, keys, stage=stage)

    def revise(self, request: Request) -> None:
        """The same request asks for other pages: a longer or a shorter prompt, or another one."""
        request.revision += 1
        roll = self.random.random()
        if roll < 0.4 and len(request.keys) > 1:
            request.keys = request.keys[: self.random.randint(1, len(request.keys) - 1)]
        else:
            request.keys = self.prompts.next_prompt()

    def leased(self, request: Request, lease: int, hits: int) -> None:
        request.stage, request.lease, request.hits = "leased", lease, hits
        request.ranks = {rank: RankCopy() for rank in range(self.world_size)}

    def computed(self, request: Request) -> None:
        """The prompt is computed: every rank will offer all its pages, those restored included."""
        request.stage = "over"
        self.known = [*self.known[-15:], list(request.keys)]
        keys = request.keys if self.random.random() < 0.3 else request.keys[request.hits :]
        if keys:
            self.to_save += [
                (rank, shape.group, list(keys)) for rank in range(self.world_size) for shape in self.groups
            ]

    def sync_report(self, request: Request, session: int) -> commands.ReportSync:
        """Most copies succeed in whole; some stop, some name half of their pages, some know nothing."""
        roll = self.random.random()
        outcome = SyncOutcome.SUCCEEDED
        ranges: tuple[tuple[int, int], ...] = ((0, request.hits),)
        if roll < 0.05:
            outcome, ranges = SyncOutcome.STOPPED, ()
        elif roll < 0.08:
            outcome, ranges = SyncOutcome.UNKNOWN, ()
        elif roll < 0.2 and request.hits > 1:
            ranges = ((0, request.hits // 2),)
        return commands.ReportSync(
            session=session,
            lease=request.lease,
            outcome=outcome,
            ranges=ranges,
            layers=4,
            copied_bytes=sum(last - first for first, last in ranges) * self.groups[0].payload_bytes,
            elapsed_us=self.random.randint(10, 5000),
        )

    def forget_rank(self, rank: int) -> None:
        """A rank's process died: its session, its copies and its plans are gone on this side."""
        session = self.sessions.pop(rank, None)
        self.plans = [plan for plan in self.plans if plan.session != session]
        for request in self.requests:
            if rank in request.ranks:
                request.ranks[rank].stage = "done"
        if session is not None:
            self.forget_session(session)

    def forget_session(self, session: int) -> None:
        """What this session had asked and not been answered is over."""
        for request in self.requests:
            if request.operation >> 32 == session and request.stage in ("loading", "new"):
                request.stage = "over"

    def forget_all(self) -> None:
        """The manager is gone: nothing asked of it means anything now."""
        self.sessions.clear()
        self.tickets.clear()
        self.scheduler = None
        self.requests.clear()
        self.queued.clear()
        self.plans.clear()
        self.to_save.clear()
        self.processes.clear()

    def tidy(self) -> None:
        if any(request.stage == "over" for request in self.requests):
            self.requests = [request for request in self.requests if request.stage != "over"]


def staging_offsets(count: int, slice_bytes: int) -> Sequence[int]:
    """Where a rank puts its slices in its staging window: one after another."""
    return [index * slice_bytes for index in range(count)]
