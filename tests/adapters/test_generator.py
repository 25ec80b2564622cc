"""The generated workload against the figures it is fitted to, and those figures against the real trace."""

from itertools import islice
from pathlib import Path

import pytest

from orbitkv.adapters.generator import generate
from orbitkv.adapters.trace import BLOCK_TOKENS, read_trace, write_trace
from orbitkv.adapters.trace_statistics import TraceStatistics, measure

PUBLISHED = TraceStatistics(
    requests=12_031,
    reused_blocks_share=0.3664,
    sharing_requests_share=0.3872,
    continued_share=0.8499,
    input_tokens=(964, 2306, 6909, 15368, 27367),
    output_tokens=(24, 156, 350, 472, 597),
    reuse_gap_ms=(42000, 66001, 123000, 264000, 482999),
    reuse_distance_requests=(147, 237, 461, 1001, 1841),
    turns=(1.0, 0.2533, 0.0979, 0.0479, 0.0268),
    arrivals_per_second=3.4015,
)
"""What `measure` says of the Mooncake conversation trace; checked below where the trace is at hand."""


@pytest.fixture(scope="module", params=[0, 7])
def generated(request: pytest.FixtureRequest) -> TraceStatistics:
    return measure(islice(generate(request.param), PUBLISHED.requests))


def test_the_published_figures_are_those_of_the_trace(mooncake_trace: Path) -> None:
    measured = measure(read_trace(mooncake_trace))
    assert measured.input_tokens == PUBLISHED.input_tokens
    assert measured.output_tokens == PUBLISHED.output_tokens
    assert measured.reuse_gap_ms == PUBLISHED.reuse_gap_ms
    assert measured.reuse_distance_requests == PUBLISHED.reuse_distance_requests
    assert measured.turns == pytest.approx(PUBLISHED.turns, abs=1e-4)
    for name in ("reused_blocks_share", "sharing_requests_share", "continued_share", "arrivals_per_second"):
        assert getattr(measured, name) == pytest.approx(getattr(PUBLISHED, name), abs=1e-4)


def test_as_much_is_shared_as_in_the_trace(generated: TraceStatistics) -> None:
    assert generated.reused_blocks_share == pytest.approx(PUBLISHED.reused_blocks_share, abs=0.04)
    assert generated.sharing_requests_share == pytest.approx(PUBLISHED.sharing_requests_share, abs=0.04)
    assert generated.continued_share == pytest.approx(PUBLISHED.continued_share, abs=0.03)
    assert generated.turns == pytest.approx(PUBLISHED.turns, abs=0.02)


def test_it_comes_back_after_as_long_as_in_the_trace(generated: TraceStatistics) -> None:
    assert generated.reuse_gap_ms == pytest.approx(PUBLISHED.reuse_gap_ms, rel=0.20)
    assert generated.reuse_distance_requests == pytest.approx(PUBLISHED.reuse_distance_requests, rel=0.25)


def test_lengths_and_arrivals_are_those_of_the_trace(generated: TraceStatistics) -> None:
    assert generated.input_tokens == pytest.approx(PUBLISHED.input_tokens, rel=0.15)
    assert generated.output_tokens == pytest.approx(PUBLISHED.output_tokens, rel=0.15)
    assert generated.arrivals_per_second == pytest.approx(PUBLISHED.arrivals_per_second, rel=0.06)


def test_a_short_run_reuses_too() -> None:
    """The demo's default length must show hits, not only an hour of it."""
    statistics = measure(islice(generate(0), 500))
    assert statistics.reused_blocks_share > 0.10


def test_one_seed_is_one_stream_and_another_seed_another() -> None:
    assert list(islice(generate(3), 300)) == list(islice(generate(3), 300))
    assert list(islice(generate(3), 300)) != list(islice(generate(4), 300))


def test_a_generated_stream_is_a_readable_trace(tmp_path: Path) -> None:
    requests = list(islice(generate(5), 2000))
    write_trace(tmp_path / "trace.jsonl", iter(requests))
    assert list(read_trace(tmp_path / "trace.jsonl")) == requests


def test_an_id_stands_for_its_whole_prefix() -> None:
    before: dict[int, tuple[int, ...]] = {}
    for request in islice(generate(6), 3000):
        assert len(request.hash_ids) == -(-request.input_length // BLOCK_TOKENS)
        for position, block in enumerate(request.hash_ids):
            assert before.setdefault(block, request.hash_ids[:position]) == request.hash_ids[:position]
