"""The engine's scheduler: which request gets pages, is restored, computes, ends.

Synchronous and without I/O of its own: it is turned by whoever owns the time and the links, tells
ranks what to do through `tell_ranks`, and says when it wants to be turned again. A request is given
all pages that prompt and output will need when it is let in, so nothing that runs ever waits for
memory. Requests are let in by priority, then in the order of arrival.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto

import msgspec

from orbitkv.adapters.admission import LoadGate, waits_for_query
from orbitkv.adapters.embedded.compute_model import ComputeModel
from orbitkv.adapters.embedded.decoding import Decoding
from orbitkv.adapters.embedded.lookups import Found, Lookups
from orbitkv.adapters.embedded.messages import Arrive, EngineConfig, EngineReport, RestoreDone
from orbitkv.adapters.embedded.prefix_cache import PrefixCache
from orbitkv.adapters.embedded.requests import EngineRequest, request_of
from orbitkv.adapters.embedded.restores import Restores, RestoreUnderWay
from orbitkv.adapters.embedded.saving import Saving
from orbitkv.adapters.embedded.steps import StepRunner
from orbitkv.adapters.embedded.waiting import WaitingQueue
from orbitkv.adapters.embedded.warmup import Hinter, Warmup

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


class Scheduler:
    def __init__(
        self,
        config: EngineConfig,
        lookups: Lookups,
        tell_ranks: Callable[[msgspec.Struct], None],
        hinter: Hinter | None = None,
    ) -> None:
        """`hinter`: who takes hints about queued requests; None: nobody, and not even a look is taken."""
        self.report = EngineReport()
        self.first_tokens_us: list[int] = []
        """Time to first token (modelled) of requests since this list was last emptied."""
        self.exposed_waits_us: list[int] = []
        """See `Progress`; of restores since this list was last emptied."""
        self._config = config
        self._page_tokens = config.page_tokens
        self._lookups = lookups
        self._tell_ranks = tell_ranks
        self._warmup = None if hinter is None else Warmup(hinter, self.report)
        self._model = ComputeModel(config.scale)
        self._hbm = PrefixCache(config.hbm_pages)
        self._gate = LoadGate()
        self._saving = Saving(self._hbm, config.ranks, config.saving_pages_max, self.report)
        self._steps = StepRunner(config, self._model)
        self._waiting = WaitingQueue()
        self._restores = Restores(config.ranks, self.report)
        self._computing: list[EngineRequest] = []
        self._decoding = Decoding()
        self._aborted: list[EngineRequest] = []
        """Still somewhere above, until what runs for them has ended."""

    # --- what comes from outside ----------------------------------------------------------------------

    def arrive(self, arrival: Arrive, now_ns: int) -> None:
        """Raises ValueError for a request that GPU memory can never hold."""
        request = request_of(arrival, self._page_tokens, now_ns)
        if request.total_pages > self._config.hbm_pages:
            has = f"GPU memory has {self._config.hbm_pages}"
            raise ValueError(f"request {request.name} needs {request.total_pages} pages, {has}")
        self.report.requests += 1
        self._waiting.add(request)
        self._lookups.report_stage(request.lookup, "queued")
        if self._warmup is not None:
            self._warmup.announce(request, self._local_pages(request))

    def abort(self, name: str) -> None:
        """Nobody wants this request any more. It ends with the next turn after which nothing runs for it."""
        for request in self._everyone():
            if request.name == name and request not in self._aborted:
                self._aborted.append(request)
                return

    def step_done(self, number: int) -> None:
        """One more rank has computed its part of the forward pass."""
        self._steps.rank_done(number)

    def staged(self, number: int) -> None:
        self._saving.staged(number)

    def restore_done(self, done: RestoreDone, now_ns: int) -> None:
        """One more rank has ended its copies. After the last, the request may compute."""
        restore = self._restores.rank_done(done, now_ns)
        if restore is not None:
            self._restored(restore)

    # --- turning --------------------------------------------------------------------------------------

    def turn(self, now_ns: int) -> int | None:
        """Do what can be done now. Returns when (ns) to turn again if nothing arrives; None: no need."""
        self._finish_step(now_ns)
        self._finish_decoding(now_ns)
        if self._aborted:
            self._aborted = [request for request in self._aborted if not self._ended_early(request)]
        loading = self._let_in(now_ns)
        self._start_step(now_ns)
        deadlines = [self._steps.end_ns, self._decoding.next_end_ns, now_ns + POLL_NS if loading else None]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    @property
    def ended(self) -> int:
        """Requests that are over, however they ended."""
        return self.report.completed + self.report.aborted

    @property
    def idle(self) -> bool:
        """Every request has ended and every save is out of the engine's hands."""
        return self.ended == self.report.requests and self._saving.idle

    def __repr__(self) -> str:
        return (
            f"Scheduler(waiting={len(self._waiting)} restoring={len(self._restores)} "
            f"computing={len(self._computing)} decoding={len(self._decoding)} "
            f"held_pages={self._hbm.held_pages}/{self._hbm.pages} gate={self._gate.holder})"
        )

    # --- admission ------------------------------------------------------------------------------------

    def _let_in(self, now_ns: int) -> bool:
        """Consider waiting requests in order. True if one waits for an answer, which nobody announces."""
        loading = False
        for request in self._waiting.first(self._config.lookups_max):
            if self._running >= self._config.running_max:
                break
            verdict = self._consider(request, now_ns)
            if verdict is Verdict.NO_PAGES:
                break
            if verdict is Verdict.PLACED:
                self._waiting.remove(request)
            loading |= verdict is Verdict.LOADING
        return loading

    @property
    def _running(self) -> int:
        return len(self._restores) + len(self._computing) + len(self._decoding)

    def _local_pages(self, request: EngineRequest) -> int:
        """Leading pages that GPU memory has, of those that may come from a cache. A look only."""
        return self._hbm.match(request.keys[: request.limit_pages])

    def _consider(self, request: EngineRequest, now_ns: int) -> Verdict:
        local = self._local_pages(request)
        if not waits_for_query(request.prompt_tokens, local * self._page_tokens, self._page_tokens):
            # Others brought the prefix meanwhile: a query cannot add to it.
            self._forget_manager(request)
            return self._place(request, local, None)
        fits = self._hbm.fits(*self._needs(request, local))
        if fits and request.placeable_ns is None:
            request.placeable_ns = now_ns
        if not fits and request.lookup.found is not None:
            # Answered before, and no page for it yet: asking anew whenever the prefix shrinks helps nobody.
            return Verdict.NO_PAGES
        found = self._lookups.advance(request.lookup, request.keys, local)
        if found is None:
            return Verdict.LOADING
        if min(found.end, request.limit_pages) <= local:
            self._lookups.release(request.lookup)
            return self._place(request, local, None)
        return self._place(request, local, found) if self._gate.admits(request.name) else Verdict.AT_GATE

    def _forget_manager(self, request: EngineRequest) -> None:
        """What the manager was asked or told about it is over."""
        self._lookups.cancel(request.lookup)
        if self._warmup is not None:
            self._warmup.withdraw(request)

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
            self._tell_ranks(self._restores.begin(request, found))
        return Verdict.PLACED

    def _restored(self, restore: RestoreUnderWay) -> None:
        request = restore.request
        if restore.whole:
            self.report.restored_pages += restore.end - request.local_pages
            request.computed_tokens = restore.end * self._page_tokens
            self._publish(request, request.local_pages, restore.end)
            assert request.placeable_ns is not None, "it was considered before it was let in"
            self.exposed_waits_us.append((restore.usable_ns - request.placeable_ns) // 1000)
        else:
            self.report.failed_restores += 1  # a failed load is a miss: compute what is not there
        self._computing.append(request)

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
        self._decoding.add(request, now_ns + int(self._model.decode_seconds(request.output_tokens) * 1e9))

    def _finish_decoding(self, now_ns: int) -> None:
        for request in self._decoding.ended(now_ns):
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

    # --- aborts ---------------------------------------------------------------------------------------

    def _everyone(self) -> Iterator[EngineRequest]:
        yield from self._waiting
        yield from self._restores.requests()
        yield from self._computing
        yield from self._decoding

    def _ended_early(self, request: EngineRequest) -> bool:
        """End an aborted request, unless ranks are still at work on its pages."""
        if request in self._waiting:
            self._waiting.remove(request)
            self._forget_manager(request)
        elif request in self._steps.requests or request in self._restores.requests():
            return False
        elif request in self._computing:
            self._computing.remove(request)
        elif request in self._decoding:
            self._decoding.remove(request)
        else:
            return True  # it was served before it came to that
        self._gate.lift(request.name)
        self._hbm.drop(request.pages)
        self.report.aborted += 1
        return True
