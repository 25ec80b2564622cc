"""The connector in the engine's scheduler: what is looked up, let in, ordered from the ranks, and ended.

vLLM decides which request runs; of that only the connector's own answers are held back (`admission`).
Synchronous and without I/O but the manager's answers. Everything that goes wrong here is a miss.
"""

import logging
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from orbitkv.adapters.admission import LoadGate
from orbitkv.adapters.vllm.counts import Counts
from orbitkv.adapters.vllm.groups import KvGroup, boundary_tokens
from orbitkv.adapters.vllm.hinting import Hinting
from orbitkv.adapters.vllm.keys import page_keys, query_parts
from orbitkv.adapters.vllm.loading import external_blocks, load_order
from orbitkv.adapters.vllm.lookups import Lookup, Lookups
from orbitkv.adapters.vllm.orders import LoadOrder, PageBlocks, RankReport, SaveOrder, StepOrders
from orbitkv.adapters.vllm.saving import Saving
from orbitkv.adapters.vllm.suspects import Suspects
from orbitkv.adapters.vllm.tracked import Tracked, manager_name

SALT_BYTES = 16
_log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class Roles:
    """What vLLM's `kv_role` lets this engine do."""

    restores: bool
    saves: bool


class SchedulerSide:
    def __init__(
        self,
        *,
        groups: tuple[KvGroup, ...],
        hash_tokens: int,
        pool: Any,
        roles: Roles,
        lookups: Lookups,
        hinting: Hinting,
        saving: Saving,
        stages: Any,
        counts: Counts,
    ) -> None:
        """`pool`: vLLM's block pool. `stages`: the client's `report_stage`."""
        self._groups = groups
        self._hash_tokens = hash_tokens
        self._boundary_tokens = boundary_tokens(groups)
        self._roles = roles
        self._lookups = lookups
        self._hinting = hinting
        self._saving = saving
        self._stages = stages
        self._counts = counts
        self._gate = LoadGate()
        self._suspects = Suspects()
        self._requests: dict[str, Tracked] = {}
        self._loads: list[LoadOrder] = []
        self._salt = b""
        """Sets the pages of these weights apart from those before the last reset."""
        self._pool = pool
        saving.bind(pool)

    @property
    def saves_under_way(self) -> bool:
        return self._saving.held_blocks > 0

    # --- the queue ------------------------------------------------------------------------------------

    def queued(self, request: Any) -> None:
        """A request has entered vLLM's queue; nothing is allocated for it."""
        tracked = Tracked(request, Lookup(manager_name(request.request_id)), _is_cacheable(request))
        self._requests[request.request_id] = tracked
        self._stages(tracked.name, tracked.lookup.told_attempt, "queued")
        if self._looks_up(tracked):
            self._hinting.announce(tracked, self._pool, self._salt)

    def matched_tokens(self, request: Any, local_tokens: int) -> int | None:
        """How many tokens behind the local prefix the ranks could restore; None: ask again next step.

        Asked at every step until the request is let in. Loads are asynchronous, so the whole prompt may be
        claimed: vLLM then computes the last token again.
        """
        tracked = self._tracked(request)
        if tracked.admitted:
            self._start_over(tracked)
        tracked.local_tokens = local_tokens
        if not self._looks_up(tracked):
            return 0
        first_tokens = local_tokens // self._boundary_tokens * self._boundary_tokens
        found = self._lookups.advance(tracked.lookup, lambda first: self._parts(tracked, first), first_tokens)
        if found is None:
            return None
        gain = min(found.end_tokens, request.num_tokens) - local_tokens
        if gain <= 0:
            return 0
        return gain if self._gate.admits(request.request_id) else None

    def allocated(self, request: Any, tables: Sequence[Sequence[int]], external_tokens: int) -> None:
        """vLLM has let the request in, with this many tokens to be restored. `tables`: all its blocks."""
        tracked = self._tracked(request)
        if tracked.load is not None and not external_tokens:
            return  # its load has ended, and it is let in a second time to compute the rest
        tracked.admitted = True
        self._hinting.withdraw(tracked)
        if not external_tokens:
            self._lookups.cancel(tracked.lookup)
            return
        found = tracked.lookup.found
        assert found is not None, "tokens were claimed from what was found"
        lease = self._lookups.taken(tracked.lookup)
        local_tokens = tracked.local_tokens
        end_tokens = local_tokens + external_tokens
        order = load_order(request.request_id, lease, found, self._groups, tables, (local_tokens, end_tokens))
        if order is None:
            _log.error("OrbitKV: vLLM wants blocks filled that lie outside of the window; they are computed.")
            blocks = external_blocks(self._groups, tables, local_tokens, end_tokens)
            pages = tuple(PageBlocks(0, self._groups[0].number, (block,)) for block in sorted(blocks))
            order = LoadOrder(request.request_id, b"", pages)
            self._lookups.release(lease)
        self._gate.close_behind(request.request_id)
        self._counts.add(lookup_hit_tokens=external_tokens)
        tracked.load, tracked.load_end_tokens = order, end_tokens
        self._loads.append(order)

    def finished(self, request: Any) -> None:
        """Served, aborted or failed. Blocks that are being saved are held by their own count."""
        tracked = self._requests.pop(request.request_id, None)
        self._gate.lift(request.request_id)
        if tracked is not None:
            self._hinting.withdraw(tracked)
            self._lookups.cancel(tracked.lookup)

    # --- steps ----------------------------------------------------------------------------------------

    def step(self, output: Any) -> StepOrders:
        """What the ranks are to do beside the step that vLLM has composed."""
        loads, self._loads = tuple(self._loads), []
        saves: list[SaveOrder] = []
        for request_id, computed in self._follow_tables(output):
            tracked = self._requests.get(request_id)
            scheduled = output.num_scheduled_tokens.get(request_id, 0)
            if tracked is None or not scheduled:
                continue
            if tracked.load is not None or not tracked.computed:
                self._computes(request_id, tracked)
            if self._roles.saves and tracked.cacheable and not tracked.stale:
                orders = self._saving.completed(tracked, computed + scheduled, self._salt)
                if orders:
                    saves += orders
                    self._suspects.computed_anew(orders)
        return StepOrders(loads, tuple(saves))

    def _follow_tables(self, output: Any) -> Iterable[tuple[str, int]]:
        """(request, tokens computed before this step), after its blocks were noted."""
        for new in output.scheduled_new_reqs:
            tracked = self._requests.get(new.req_id)
            if tracked is not None:
                tracked.reset_blocks(self._groups, new.block_ids, new.num_computed_tokens)
            yield new.req_id, new.num_computed_tokens
        cached = output.scheduled_cached_reqs
        for request_id, tables, computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            tracked = self._requests.get(request_id)
            if tracked is not None and tables is not None:
                if request_id in cached.resumed_req_ids or not tracked.blocks:
                    tracked.reset_blocks(self._groups, tables, computed)
                else:
                    tracked.add_blocks(tables)
            yield request_id, computed

    def _computes(self, request_id: str, tracked: Tracked) -> None:
        self._gate.lift(request_id)
        tracked.load = None
        if not tracked.computed:
            tracked.computed = True
            self._stages(tracked.name, tracked.lookup.told_attempt, "first_use")

    def reported(self, report: RankReport) -> None:
        """What the ranks have ended by now."""
        for number, ranks in report.saves.items():
            self._saving.ended(number, ranks)
        for request_id in report.failed_loads:
            tracked = self._requests.get(request_id)
            if tracked is not None and tracked.load is not None and not tracked.load_failed:
                self._failed(tracked, tracked.load)

    def reset(self) -> None:
        """What was cached must not be found again, for example because the weights were changed.

        Pages stay with the manager until they are evicted; this engine's keys are others from now on, and
        requests that hold KV from before save nothing more, unless they begin anew.
        """
        self._salt = secrets.token_bytes(SALT_BYTES)
        for tracked in self._requests.values():
            self._hinting.withdraw(tracked)
            self._lookups.cancel(tracked.lookup)
            tracked.stale = tracked.admitted
        _log.info("OrbitKV: the cache was reset; pages saved before are not used any more.")

    # --- one request ----------------------------------------------------------------------------------

    def _failed(self, tracked: Tracked, load: LoadOrder) -> None:
        """Before vLLM asks about it again: what failed once is not found again until it was computed anew."""
        tracked.load_failed = True
        for group in self._groups:
            first, end = (
                tracked.local_tokens // group.page_tokens,
                tracked.load_end_tokens // group.page_tokens,
            )
            hashes = tracked.request.block_hashes
            keys = page_keys(hashes, self._hash_tokens, group, first, end, self._salt)
            self._suspects.add(group.number, keys)
        if load.lease:
            self._lookups.release(load.lease)

    def _start_over(self, tracked: Tracked) -> None:
        """It was preempted, or nothing of its load was usable, and waits again with no block of its own."""
        tracked.admitted = tracked.stale = False
        tracked.load = None
        tracked.blocks, tracked.offered = {}, {}
        self._gate.lift(tracked.request.request_id)
        self._lookups.cancel(tracked.lookup)

    def _looks_up(self, tracked: Tracked) -> bool:
        return (
            self._roles.restores
            and tracked.cacheable
            and not tracked.load_failed
            and not tracked.stale
            and not getattr(tracked.request, "skip_reading_prefix_cache", False)
        )

    def _parts(self, tracked: Tracked, first_tokens: int) -> list[Any]:
        hashes = tracked.request.block_hashes
        parts = query_parts(hashes, self._hash_tokens, self._groups, first_tokens, self._salt)
        return self._suspects.without(parts, self._lookups.epoch)

    def _tracked(self, request: Any) -> Tracked:
        tracked = self._requests.get(request.request_id)
        if tracked is None:
            self.queued(request)
            tracked = self._requests[request.request_id]
        return tracked


def _is_cacheable(request: Any) -> bool:
    """A LoRA adapter is in vLLM's hashes by its name (and place) only, which tells nothing of its content."""
    return getattr(request, "lora_request", None) is None
