"""Where the published trace may stand. It is not part of the project; tests that want it skip without it."""

import os
from pathlib import Path

import pytest

TRACE_VARIABLE = "ORBITKV_TEST_TRACE"


@pytest.fixture(scope="session")
def mooncake_trace() -> Path:
    beside = Path(__file__).parents[3] / "shared" / "traces" / "mooncake-conversation.jsonl"
    path = Path(os.environ.get(TRACE_VARIABLE, beside))
    if not path.is_file():
        pytest.skip(f"the Mooncake conversation trace is not here; name it with {TRACE_VARIABLE}")
    return path
