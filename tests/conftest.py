"""Options and fixtures of the whole test suite."""

import os
from pathlib import Path

import pytest

TRACE_VARIABLE = "ORBITKV_TEST_TRACE"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-rewrite",
        action="store_true",
        help="Write what the code does now into the golden files instead of comparing with them.",
    )
    parser.addoption("--why", default="", help="With --golden-rewrite: why they change, in a sentence.")


@pytest.fixture(scope="session")
def mooncake_trace() -> Path:
    """The published trace. It is not part of the project; tests that want it skip without it."""
    beside = Path(__file__).parents[2] / "shared" / "traces" / "mooncake-conversation.jsonl"
    path = Path(os.environ.get(TRACE_VARIABLE, beside))
    if not path.is_file():
        pytest.skip(f"the Mooncake conversation trace is not here; name it with {TRACE_VARIABLE}")
    return path
