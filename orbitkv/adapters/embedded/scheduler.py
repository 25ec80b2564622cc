"""The engine's scheduler: which request gets pages, is restored, computes, ends.

Synchronous and without I/O of its own: it is turned by whoever owns the time and the links, tells
ranks what to do through `tell_ranks`, and says when it wants to be turned again. A request is given
all pages that prompt and output will need when it is let in, so nothing that runs ever waits for
memory, and requests are let in in the order of arrival.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from itertools import count, islice

import attrs
import msgspec

from orbitkv.adapters.embedded.admission import LoadGate, waits_for_query
from orbitkv.adapters.embedded.compute_model import ComputeModel
from orbitkv.adapters.embedded.lookups import Found, Lookups
from orbitkv.adapters.embedded.messages import Arrive, EngineConfig, EngineReport, Restore, RestoreDone
from orbitkv.adapters.embedded.prefix_cache import PrefixCache
from orbitkv.adapters.embedded.requests import EngineRequest, request_of
from orbitkv.adapters.embedded.saving import Saving
from orbitkv.adapters.embedded.steps import StepRunner

POLL_NS = 1_000_000
"""How soon a waiting query is looked at again: a look at the board costs a memory read."""


class Verdict(Enum):
    """What became of a waiting request when it was considered."""

    PLACED = auto()
    LOADING = auto()
    """Its query is not answered: others may pass, and it is to be looked at again soon."""
    AT_GATE = auto()
    """Another load is under way: others may pass, and the end of that will turn the scheduler."""
    NO_PAGES = auto()
    """GPU memory is full: nobody passes, or long prompts would never run."""


@attrs.define
class _Restoring:
    request: EngineRequest
    end: int
    ranks_left: int
    whole: bool = True
    """No rank has failed and no byte was wrong."""


class Scheduler:
    def __init__(
        self, config: EngineConfig, lookups: Lookups, tell_ranks: Callable[[msgspec.Struct], None]
    ) -> None:
        self.report = EngineReport()
        self.first_tokens_us: list[int] = []
        """Time to first token (modelled) of requests since this list was last emptied."""
        self._config = config
        self._page_tokens = config.page_tokens
        self._lookups = lookups
        self._tell_ranks = tell_ranks
        self._model = ComputeModel(config.scale)
        self._hbm = PrefixCache(config.hbm_pages)
        self._gate = LoadGate()
        self._saving = Saving(self._hbm, config.ranks, config.saving_pages_max, self.report)
        self._steps = StepRunner(config, self._model)
        self._waiting: deque[EngineRequest] = deque()
        self._restoring: dict[int, _Restoring] = {}
        self._restores_numbered = 0
        self._computing: list[EngineRequest] = []
        self._decoding: list[tuple[int, int, EngineRequest]] = []
        """Heap of (end of its last token in ns, running number, request)."""
        self._decodes_numbered = count()

    # --- what comes from outside ----------------------------------------------------------------------

    def arrive(self, arrival: Arrive, now_ns: int) -> None:
        """Raises ValueError for a request that GPU memory can never hold."""
        request = request_of(arrival, self._page_tokens, now_ns)
        if request.total_pages > self._config.hbm_pages:
            has = f"GPU memory has {self._config.hbm_pages}"
            raise ValueError(f"request {request.name} needs {request.total_pages} pages, {has}")
        self.report.requests += 1
        self._waiting.append(request)
        self._lookups.report_stage(request.lookup, "queued")

    def step_done(self, number: int) -> None:
        """One more rank has computed its part of the forward pass."""
        self._steps.rank_done(number)

    def staged(self, number: int) -> None:
        self._saving.staged(number)

    def restore_done(self, done: RestoreDone) -> None:
        """One more rank has ended its copies. After the last, the request may compute."""
        self._count_restore(done)
        restoring = self._restoring[done.number]
        restoring.ranks_left -= 1
        restoring.whole &= done.copied and not done.byte_mismatches
        if restoring.ranks_left == 0:
            del self._restoring[done.number]
            self._restored(restoring)

    # --- turning --------------------------------------------------------------------------------------

    def turn(self, now_ns: int) -> int | None:
        """Do what can be done now. Returns when (ns) to turn again if nothing arrives; None: no need."""
        self._finish_step(now_ns)
        self._finish_decoding(now_ns)
        loading = self._let_in()
        self._start_step(now_ns)
        deadlines = [self._steps.end_ns] if self._steps.end_ns is not None else []
        deadlines += [self._decoding[0][0]] if self._decoding else []
        deadlines += [now_ns + POLL_NS] if loading else []
        return min(deadlines, default=None)

    @property
    def idle(self) -> bool:
        """Every request has ended and every save is out of the engine's hands."""
        return self.report.completed == self.report.requests and self._saving.idle

    def __repr__(self) -> str:
        return (
            f"Scheduler(waiting={len(self._waiting)} restoring={len(self._restoring)} "
            f"computing={len(self._computing)} decoding={len(self._decoding)} "
            f"held_pages={self._hbm.held_pages}/{self._hbm.pages} gate={self._gate.holder})"
        )

    # --- admission ------------------------------------------------------------------------------------

    def _let_in(self) -> bool:
        """Consider waiting requests in order. True if one waits for an answer, which nobody announces."""
        loading = False
        for request in list(islice(self._waiting, self._config.lookups_max)):
            if self._running >= self._config.running_max:
                break
            verdict = self._consider(request)
            if verdict is Verdict.NO_PAGES:
                break
            if verdict is Verdict.PLACED:
                self._waiting.remove(request)
            loading |= verdict is Verdict.LOADING
        return loading

    @property
    def _running(self) -> int:
        return len(self._restoring) + len(self._computing) + len(self._decoding)

    def _consider(self, request: EngineRequest) -> Verdict:
        local = self._hbm.match(request.keys[: request.limit_pages])
        if not waits_for_query(request.prompt_tokens, local * self._page_tokens, self._page_tokens):
            # Others brought the prefix meanwhile: a query cannot add to it.
            self._lookups.cancel(request.lookup)
            return self._place(request, local, None)
        if request.lookup.found is not None and not self._hbm.fits(*self._needs(request, local)):
            # Answered before, and no page for it yet: asking anew whenever the prefix shrinks helps nobody.
            return Verdict.NO_PAGES
        found = self._lookups.advance(request.lookup, request.keys, local)
        if found is None:
            return Verdict.LOADING
        if min(found.end, request.limit_pages) <= local:
            self._lookups.release(request.lookup)
            return self._place(request, local, None)
        return self._place(request, local, found) if self._gate.admits(request.name) else Verdict.AT_GATE

    @staticmethod
    def _needs(request: EngineRequest, local: int) -> tuple[Sequence[bytes], int]:
        """(the prefix that is here, pages that it needs besides)"""
        return request.keys[:local], request.total_pages - local

    def _place(self, request: EngineRequest, local: int, found: Found | None) -> Verdict:
        """Give it all its pages, and start its restore if there is one."""
        pages = self._hbm.reserve(*self._needs(request, local))
        if pages is None:
            return Verdict.NO_PAGES
        request.pages = pages
        request.local_pages = local
        request.computed_tokens = local * self._page_tokens
        self.report.hbm_hit_pages += local
        if found is None:
            self._computing.append(request)
        else:
            self._gate.close_behind(request.name)
            self._restore(request, found)
        return Verdict.PLACED

    # --- restores -------------------------------------------------------------------------------------

    def _restore(self, request: EngineRequest, found: Found) -> None:
        end = min(found.end, request.limit_pages)
        positions = slice(request.local_pages, end)
        self._restores_numbered += 1
        self._restoring[self._restores_numbered] = _Restoring(request, end, self._config.ranks)
        first = request.local_pages - found.first
        pages, keys = tuple(request.pages[positions]), request.keys[positions]
        self._tell_ranks(Restore(self._restores_numbered, found.lease, first, pages, keys))

    def _restored(self, restoring: _Restoring) -> None:
        request = restoring.request
        if restoring.whole:
            self.report.restored_pages += restoring.end - request.local_pages
            request.computed_tokens = restoring.end * self._page_tokens
            self._publish(request, request.local_pages, restoring.end)
        else:
            self.report.failed_restores += 1  # a failed load is a miss: compute what is not there
        self._computing.append(request)

    def _count_restore(self, done: RestoreDone) -> None:
        self.report.restored_bytes += done.copied_bytes
        self.report.byte_mismatches += done.byte_mismatches
        self.report.mismatched_pages += done.mismatched_pages
        self.report.restore_us += done.elapsed_us

    # --- forward passes -------------------------------------------------------------------------------

    def _start_step(self, now_ns: int) -> None:
        step = self._steps.start(self._computing, now_ns)
        if step is None:
            return
        for request in self._steps.requests:
            if not request.computes:
                request.computes = True
                self._gate.lift(request.name)
                self._lookups.report_stage(request.lookup, "first_use")
        self._tell_ranks(step)

    def _finish_step(self, now_ns: int) -> None:
        for request, first_page, end_page in self._steps.finish(now_ns):
            self.report.computed_pages += end_page - first_page
            self._publish(request, first_page, end_page)
            self._offer(request.pages[first_page:end_page], request.keys[first_page:end_page])
            if request.computed_tokens == request.prompt_tokens:
                self._first_token(request, now_ns)

    def _first_token(self, request: EngineRequest, now_ns: int) -> None:
        self.first_tokens_us.append((now_ns - request.arrived_ns) // 1000)
        self._computing.remove(request)
        end_ns = now_ns + int(self._model.decode_seconds(request.output_tokens) * 1e9)
        heapq.heappush(self._decoding, (end_ns, next(self._decodes_numbered), request))

    def _finish_decoding(self, now_ns: int) -> None:
        while self._decoding and self._decoding[0][0] <= now_ns:
            _, _, request = heapq.heappop(self._decoding)
            self._hbm.drop(request.pages)
            self.report.completed += 1

    def _publish(self, request: EngineRequest, first: int, end: int) -> None:
        for page, key in zip(request.pages[first:end], request.keys[first:end], strict=True):
            self._hbm.publish(page, key)

    def _offer(self, pages: Sequence[int], keys: Sequence[bytes]) -> None:
        if pages:
            save = self._saving.offer(pages, keys)
            if save is not None:
                self._tell_ranks(save)
