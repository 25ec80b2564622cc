"""Models made once a run; a manager and an engine for each module, ended however its tests end.

Starting an engine takes seconds, so the tests of a module share one, each with prompts of its own. Those
that restart or break things make their own with `make_engine`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from benches.single_node.random_model import HYBRID, TINY, make_model
from orbitkv.adapters.switches import QUEUE_WARMUP
from tests.engines.vllm.cache import Cache, running_cache
from tests.engines.vllm.engine import Engine, transfer_config
from tests.engines.vllm.settings import settle_environment

settle_environment()

EngineMaker = Callable[..., Engine]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(TINY, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def hybrid_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(HYBRID, tmp_path_factory.mktemp("models"))


@pytest.fixture(
    scope="module", autouse=True, params=["hints off", pytest.param("hints on", marks=pytest.mark.slow)]
)
def hints(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Every module runs with the engine's automatic hints off; in the full run once more with them on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(QUEUE_WARMUP, "1" if request.param == "hints on" else "0")
        yield request.param == "hints on"


@pytest.fixture(scope="module")
def cache(hints: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    with running_cache(tmp_path_factory.mktemp("cache")) as cache:
        yield cache


@pytest.fixture(scope="module")
def engine(cache: Cache, tiny_model: Path) -> Iterator[Engine]:
    with closing(Engine(tiny_model, transfer_config(cache.socket))) as engine:
        yield engine


@pytest.fixture
def make_engine() -> Iterator[EngineMaker]:
    """Engines of one test, in this process, one after the other."""
    with ExitStack() as stack:

        def make(model: Path, transfer: dict[str, Any] | None = None, **changed: Any) -> Engine:
            return stack.enter_context(closing(Engine(model, transfer, **changed)))

        yield make
