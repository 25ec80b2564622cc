"""The engine's sessions with the manager, in the words that scheduler and ranks use.

The only place of the engine that knows the client. A call that fails raises one of `failures`, which
the callers take for a miss; only a registration that is refused is an error of the engine.
"""

import time
from collections.abc import Callable, Sequence

import orbitkv
from orbitkv.adapters.answers import QueryAnswer
from orbitkv.adapters.client import CacheManagerClient
from orbitkv.adapters.client_errors import OrbitError
from orbitkv.adapters.embedded.compute_model import LAYERS
from orbitkv.adapters.embedded.messages import EngineConfig
from orbitkv.adapters.errors import AdapterError
from orbitkv.adapters.namespace import Namespace
from orbitkv.adapters.restore import RestoreView
from orbitkv.adapters.saves import SavePlan
from orbitkv.events.geometry import GroupGeometry, SliceGeometry
from orbitkv.events.ids import SCHEDULER_RANK
from orbitkv.events.outcomes import SyncOutcome
from orbitkv.io.wire import QueryPart

GROUP = 0
"""The engine has one KV group."""
SEAL_TIMEOUT_S = 60.0
CREDIT_WAIT_S = 2.0
"""How long the save stream waits for staging space before the client drops and counts the pages."""
CREDIT_LOOK_S = 0.001
LAST_SAVES_WAIT_S = 10.0
"""How long an orderly end waits for its saves to be taken: a closed session gives up what it had begun."""

Failures = tuple[type[Exception], ...]


def namespace_of(config: EngineConfig) -> Namespace:
    """What changes the bytes of this engine's pages: the same for every instance, so all share."""
    return Namespace(
        model=config.model,
        revision="1",
        weights_fingerprint="page content by key and rank",
        dtype="bfloat16",
        kv_dtype=f"bytes scaled 1/{config.scale:g}",
        page_tokens=config.page_tokens,
        layers=LAYERS,
        kv_heads=8,
        head_size=128,
        tensor_parallel=config.ranks,
        layout=f"{config.slice_bytes} bytes a rank",
        engine="orbitkv-embedded",
        engine_version=orbitkv.__version__,
        hash_algorithm="blake2b-128",
        key_scheme="chained trace blocks",
    )


class SchedulerSession:
    """Asks for the whole instance; holds no KV."""

    failures: Failures = (OrbitError,)

    def __init__(self, config: EngineConfig) -> None:
        """Raises AdapterError."""
        self._page_tokens = config.page_tokens
        self._client = _client(config, SCHEDULER_RANK, (), 0)
        _register(self._client)

    def wait_sealed(self) -> None:
        """Until every rank is there and the instance is served. Raises AdapterError."""
        try:
            self._client.wait_until_sealed(SEAL_TIMEOUT_S)
        except OrbitError as error:
            raise _not_registered(error) from error

    def query(self, request: str, attempt: int, keys: Sequence[bytes], revision: int) -> QueryAnswer:
        return self._client.query(request, attempt, [self._part(keys)], revision)

    def hint(self, request: str, attempt: int, keys: Sequence[bytes]) -> bool:
        """Whether the hint was sent. Waits for nothing, raises nothing."""
        return isinstance(self._client.warm_prefix(request, attempt, [self._part(keys)]), int)

    def cancel_hint(self, request: str, attempt: int) -> bool:
        """Whether a hint was out. Waits for nothing, raises nothing."""
        return self._client.cancel_hint(request, attempt)

    def poll(self, operation: bytes) -> QueryAnswer:
        return self._client.poll(operation)

    def cancel(self, operation: bytes) -> None:
        self._client.cancel(operation)

    def release(self, lease: bytes) -> None:
        self._client.release(lease)

    def report_stage(self, request: str, attempt: int, stage: str) -> None:
        self._client.report_stage(request, attempt, stage)

    def close(self) -> None:
        self._client.close()

    def _part(self, keys: Sequence[bytes]) -> QueryPart:
        return QueryPart(GROUP, self._page_tokens, 0, list(keys))


class RankSession:
    """Restores and saves one rank's slices."""

    failures: Failures = (OrbitError,)

    def __init__(self, config: EngineConfig, rank: int) -> None:
        """Raises AdapterError."""
        self.namespace_digest = namespace_of(config).digest
        self._slice_bytes = config.slice_bytes
        piece = SliceGeometry(f"heads of rank {rank} of {config.ranks}", config.slice_bytes)
        groups = (GroupGeometry(GROUP, config.page_tokens, (piece,)),)
        self._committed: list[SavePlan] = []
        """Saves that are not known to be sealed."""
        self._client = _client(config, rank, groups, config.staging_bytes)
        _register(self._client)

    def begin_restore(self, lease: bytes) -> RestoreView:
        return self._client.begin_restore(lease)

    def report_sync(
        self, lease: bytes, outcome: SyncOutcome, first: int, end: int, copied_bytes: int, elapsed_us: int
    ) -> None:
        """Never lost: the client sends it again until it is taken."""
        self._client.report_sync(lease, outcome, [(first, end)], LAYERS, copied_bytes, elapsed_us)

    def save(self, keys: Sequence[bytes], fill: Callable[[int, memoryview], None]) -> None:
        """Offer these pages, as many at a time as the staging window has room for."""
        first = 0
        while first < len(keys):
            count = self._await_credit() or len(keys)
            self._save(keys[first : first + count], first, fill)
            first += count

    def close(self) -> None:
        """In order: what was committed is saved first."""
        for plan in self._committed:
            try:
                self._client.wait_saved(plan, LAST_SAVES_WAIT_S)
            except OrbitError:
                break
        self._client.close()

    def _save(self, keys: Sequence[bytes], first: int, fill: Callable[[int, memoryview], None]) -> None:
        plan = self._client.begin_save(GROUP, keys)
        for position, slot in plan.wanted:
            fill(first + position, slot[: self._slice_bytes])
        if plan.wanted:
            self._client.commit_save(plan)
            self._committed = [plan for plan in self._committed if not plan.sealed] + [plan]
        else:
            self._client.abort_save(plan)

    def _await_credit(self) -> int:
        """Free slots of the staging window; 0 when there are none for too long."""
        deadline = time.monotonic() + CREDIT_WAIT_S
        while (credits := self._client.staging_credits.get(GROUP, 0)) == 0:
            if not self._client.tend() or time.monotonic() > deadline:
                return 0
            time.sleep(CREDIT_LOOK_S)
        return credits


def _client(
    config: EngineConfig, rank: int, groups: Sequence[GroupGeometry], staging_bytes: int
) -> CacheManagerClient:
    return CacheManagerClient(
        config.socket_path,
        instance=config.instance,
        rank=rank,
        world_size=config.ranks,
        namespace=namespace_of(config),
        groups=groups,
        staging_bytes=staging_bytes,
        timeout_s=config.request_timeout_s,
    )


def _register(client: CacheManagerClient) -> None:
    try:
        client.register()
    except OrbitError as error:
        raise _not_registered(error) from error


def _not_registered(error: OrbitError) -> AdapterError:
    return AdapterError(
        "The engine is not known to the manager.", str(error), "start the engine again after that"
    )
