"""Models made once a run, places for managers, and engines that are ended however a test ends."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from benches.single_node.random_model import HYBRID, TINY, make_model
from tests.engines.vllm.engine import Engine
from tests.engines.vllm.settings import settle_environment

settle_environment()

EngineMaker = Callable[..., Engine]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(TINY, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def hybrid_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(HYBRID, tmp_path_factory.mktemp("models"))


@pytest.fixture
def make_engine() -> Iterator[EngineMaker]:
    """Engines of one test, in this process, one after the other."""
    with ExitStack() as stack:

        def make(model: Path, transfer: dict[str, Any] | None = None, **changed: Any) -> Engine:
            return stack.enter_context(closing(Engine(model, transfer, **changed)))

        yield make
