"""What the tests of `replay sql` ask: the recorded sample as a plain log, and loaded into a database."""

from pathlib import Path

import pytest

from orbitkv.events.record import Record
from replay.warehouse import load_log
from tests.log.exporting import SAMPLE
from tests.log.question_facts import lives_of
from tests.log.simulated import write_log


@pytest.fixture(scope="session")
def told() -> list[list[Record]]:
    return [life.records for life in lives_of(SAMPLE)]


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory, told: list[list[Record]]) -> Path:
    path = tmp_path_factory.mktemp("sql") / "log"
    write_log(path, told)
    return path


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory, log: Path) -> Path:
    path = tmp_path_factory.mktemp("loaded") / "warehouse.duckdb"
    with load_log(log, path):
        pass
    return path
