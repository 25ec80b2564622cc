"""Who waits for a query, and who is let in: rules that other engines learned the hard way."""

import pytest

from orbitkv.adapters.admission import LoadGate, match_limit_tokens, waits_for_query


@pytest.mark.parametrize(
    ("prompt", "local", "logprob_start", "waits"),
    [(256, 128, None, True), (256, 192, None, False), (257, 192, None, True), (256, 128, 128, False)],
)
def test_a_request_waits_only_for_what_can_still_help(
    prompt: int, local: int, logprob_start: int | None, waits: bool
) -> None:
    """Page of 64 tokens; the cases are the oracle of SGLang's admission check."""
    assert waits_for_query(prompt, local, 64, logprob_start) is waits


def test_at_least_one_token_is_computed() -> None:
    assert match_limit_tokens(512, 512) == 0
    assert match_limit_tokens(513, 512) == 512


def test_the_gate_lets_one_load_through_at_a_time() -> None:
    gate = LoadGate()
    gate.close_behind("a")
    assert gate.admits("a")
    assert not gate.admits("b")
    gate.lift("b")
    assert not gate.admits("b"), "only its holder lifts it"
    gate.lift("a")
    assert gate.admits("b")
