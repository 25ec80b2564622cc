"""A manager in a dict, for tests of the engine alone: what was saved is found, unless told otherwise.

Speaks as the engine's sessions do (`lookups.Asker`, `rank.Cache`); shares nothing with the manager.
"""

from collections.abc import Callable, Sequence

import attrs

from orbitkv.events.outcomes import SyncOutcome
from orbitkv.io.wire import QueryStatus


class ManagerGone(Exception):
    pass


@attrs.frozen
class FakeAnswer:
    status: QueryStatus
    operation: bytes = b""
    lease: bytes = b""
    hits: tuple[int, ...] = (0,)


@attrs.define
class FakeManager:
    """`pages[rank]` holds slices by key. `loading` keeps every query waiting; `gone` answers nothing."""

    ranks: int
    pages: list[dict[bytes, bytearray]] = attrs.field(
        default=attrs.Factory(lambda self: [{} for _ in range(self.ranks)], takes_self=True)
    )
    loading: bool = False
    gone: bool = False
    next_status: list[QueryStatus] = attrs.Factory(list)
    """Answers to give instead, one a question."""
    calls: list[tuple[object, ...]] = attrs.Factory(list)
    leases: dict[bytes, list[bytes]] = attrs.Factory(dict)
    asked: dict[bytes, Sequence[bytes]] = attrs.Factory(dict)
    ended: set[bytes] = attrs.Factory(set)
    syncs: list[tuple[int, SyncOutcome, int, int, int]] = attrs.Factory(list)
    stages: list[tuple[str, str]] = attrs.Factory(list)
    hints: list[tuple[str, int, tuple[bytes, ...]]] = attrs.Factory(list)
    """(request, attempt, keys) of every hint."""
    hints_out: dict[tuple[str, int], None] = attrs.Factory(dict)
    """Those neither withdrawn nor followed by their request's query, which withdraws them too."""
    withdrawn: list[str] = attrs.Factory(list)
    hints_refused: bool = False

    def saved(self, keys: Sequence[bytes]) -> None:
        """As if an engine had saved these pages."""
        for slices in self.pages:
            slices.update({key: bytearray() for key in keys})

    def hits(self, keys: Sequence[bytes]) -> int:
        for count, key in enumerate(keys):
            if not all(key in slices for slices in self.pages):
                return count
        return len(keys)


class FakeAsker:
    failures: tuple[type[Exception], ...] = (ManagerGone,)

    def __init__(self, manager: FakeManager) -> None:
        self._manager = manager

    def query(self, request: str, attempt: int, keys: Sequence[bytes], revision: int) -> FakeAnswer:
        self._manager.hints_out.pop((request, attempt), None)
        self._call("query", request, attempt, revision, len(keys))
        operation = f"{request}/{attempt}".encode()
        self._manager.asked[operation] = keys
        return self._answer(operation)

    def poll(self, operation: bytes) -> FakeAnswer:
        self._call("poll", operation)
        return self._answer(operation)

    def cancel(self, operation: bytes) -> None:
        self._call("cancel", operation)
        self._manager.ended.add(operation)

    def release(self, lease: bytes) -> None:
        self._call("release", lease)
        self._manager.leases.pop(lease, None)

    def hint(self, request: str, attempt: int, keys: Sequence[bytes]) -> bool:
        if self._manager.gone or self._manager.hints_refused:
            return False
        self._manager.hints.append((request, attempt, tuple(keys)))
        self._manager.hints_out[request, attempt] = None
        return True

    def cancel_hint(self, request: str, attempt: int) -> bool:
        if (request, attempt) not in self._manager.hints_out:
            return False
        del self._manager.hints_out[request, attempt]
        self._manager.withdrawn.append(request)
        return True

    def report_stage(self, request: str, attempt: int, stage: str) -> None:
        if self._manager.gone:
            raise ManagerGone
        self._manager.stages.append((request, stage))

    def _answer(self, operation: bytes) -> FakeAnswer:
        if self._manager.next_status:
            return FakeAnswer(self._manager.next_status.pop(0), operation)
        if self._manager.loading:
            return FakeAnswer(QueryStatus.LOADING, operation)
        keys = self._manager.asked[operation]
        hits = self._manager.hits(keys)
        if not hits:
            return FakeAnswer(QueryStatus.MISSED)
        lease = b"lease of " + operation
        self._manager.leases[lease] = list(keys[:hits])
        return FakeAnswer(QueryStatus.READY, operation, lease, (hits,))

    def _call(self, *call: object) -> None:
        if self._manager.gone:
            raise ManagerGone
        self._manager.calls.append(call)


class FakeCache:
    """One rank's session."""

    failures: tuple[type[Exception], ...] = (ManagerGone,)

    def __init__(self, manager: FakeManager, rank: int, slice_bytes: int) -> None:
        self._manager = manager
        self._rank = rank
        self._slice_bytes = slice_bytes

    def begin_restore(self, lease: bytes) -> "FakeView":
        if self._manager.gone or lease not in self._manager.leases:
            raise ManagerGone
        slices = self._manager.pages[self._rank]
        return FakeView([slices[key] for key in self._manager.leases[lease]])

    def report_sync(
        self, lease: bytes, outcome: SyncOutcome, first: int, end: int, copied_bytes: int, elapsed_us: int
    ) -> None:
        if self._manager.gone:
            raise ManagerGone
        self._manager.syncs.append((self._rank, outcome, first, end, copied_bytes))

    def save(self, keys: Sequence[bytes], fill: Callable[[int, memoryview], None]) -> None:
        if self._manager.gone:
            raise ManagerGone
        slices = self._manager.pages[self._rank]
        for position, key in enumerate(keys):
            if key not in slices:
                window = bytearray(self._slice_bytes)
                fill(position, memoryview(window))
                slices[key] = window


@attrs.frozen
class FakeView:
    slices: Sequence[bytearray]

    def page(self, position: int, /) -> memoryview:
        return memoryview(self.slices[position]).toreadonly()
