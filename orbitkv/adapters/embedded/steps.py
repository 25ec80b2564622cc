"""Forward passes: which prompt tokens the next one computes, and when it is over.

One pass at a time, at most `step_tokens_max` prompt tokens, oldest request first, long prompts in
chunks of whole pages. A pass is over when every rank has written its pages *and* the modelled time
has passed: the figures are modelled, and never better than the work that was really done.
"""

from collections.abc import Iterator, Sequence

import attrs

from orbitkv.adapters.embedded.compute_model import ComputeModel
from orbitkv.adapters.embedded.messages import EngineConfig, Step
from orbitkv.adapters.embedded.requests import EngineRequest


@attrs.frozen
class _Chunk:
    request: EngineRequest
    first_page: int
    end_page: int
    """Whole prompt pages that are complete after this pass: first_page .. end_page."""
    end_tokens: int


@attrs.define
class _Running:
    number: int
    chunks: list[_Chunk]
    end_ns: int
    ranks_left: int


class StepRunner:
    def __init__(self, config: EngineConfig, model: ComputeModel) -> None:
        self._config = config
        self._model = model
        self._running: _Running | None = None
        self._numbered = 0

    @property
    def end_ns(self) -> int | None:
        """When the running pass ends by the model; None when none runs, or a rank is to be waited for."""
        if self._running is None or self._running.ranks_left:
            return None
        return self._running.end_ns

    @property
    def requests(self) -> Sequence[EngineRequest]:
        """Those in the running pass."""
        return [chunk.request for chunk in self._running.chunks] if self._running else []

    def start(self, computing: Sequence[EngineRequest], now_ns: int) -> Step | None:
        """Compose the next pass; None when one runs or there is nothing to compute."""
        if self._running is not None or not computing:
            return None
        chunks = list(self._chunks(computing))
        seconds = self._model.step_seconds() + sum(map(self._chunk_seconds, chunks))
        self._numbered += 1
        end_ns = now_ns + int(seconds * 1e9)
        self._running = _Running(self._numbered, chunks, end_ns, self._config.ranks)
        pages: list[int] = []
        keys: list[bytes] = []
        for chunk in chunks:
            pages += chunk.request.pages[chunk.first_page : chunk.end_page]
            keys += chunk.request.keys[chunk.first_page : chunk.end_page]
        return Step(self._numbered, tuple(pages), tuple(keys))

    def rank_done(self, number: int) -> None:
        assert self._running is not None
        assert self._running.number == number
        self._running.ranks_left -= 1

    def finish(self, now_ns: int) -> Iterator[tuple[EngineRequest, int, int]]:
        """If the pass is over: each request in it with the pages (first, end) that are now complete."""
        if self._running is None or self._running.ranks_left or now_ns < self._running.end_ns:
            return
        chunks, self._running = self._running.chunks, None
        for chunk in chunks:
            chunk.request.computed_tokens = chunk.end_tokens
            yield chunk.request, chunk.first_page, chunk.end_page

    def _chunks(self, computing: Sequence[EngineRequest]) -> Iterator[_Chunk]:
        budget = self._config.step_tokens_max
        page_tokens = self._config.page_tokens
        for request in computing:
            if budget < page_tokens:
                return
            start = request.computed_tokens
            end = min(request.prompt_tokens, (start + budget) // page_tokens * page_tokens)
            budget -= end - start
            yield _Chunk(request, start // page_tokens, min(end // page_tokens, len(request.keys)), end)

    def _chunk_seconds(self, chunk: _Chunk) -> float:
        start = chunk.request.computed_tokens
        return self._model.prefill_seconds(start, chunk.end_tokens - start)
