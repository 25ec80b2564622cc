"""Tests of connectors run where their engine is installed, as `python3 .ci/do engines vllm-0.29` has it.

Elsewhere the engines' folders are left out, so that the quick run needs no engine.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

ENGINES = ("vllm",)
TIMEOUT_S = 900
"""A guard against a hang, nothing more: importing an engine takes a minute on a busy machine."""

collect_ignore = [engine for engine in ENGINES if find_spec(engine) is None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        engine = Path(item.path).parent.name
        if engine in ENGINES:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
            # Engines warn of their own affairs, and of others' packages.
            item.add_marker(pytest.mark.filterwarnings("ignore"))
