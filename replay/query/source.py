"""Where a question is asked: logs that are loaded for it, or a database that `replay load` has made."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from replay.command_line import progress_bar
from replay.log import Log
from replay.warehouse import WarehouseError
from replay.warehouse.database import opened as opened_warehouse
from replay.warehouse.database import read_only
from replay.warehouse.derived import derive
from replay.warehouse.loading import Loader


@attrs.frozen(slots=True)
class Source:
    connection: Any
    logs: list[Log]
    """That were loaded for this; their troubles and notes are complete."""


@contextmanager
def opened(paths: Sequence[Path], database: Path | None) -> Iterator[Source]:
    """Either the logs at `paths`, or the database. Raises LogError."""
    if database is not None:
        with read_only(database) as connection:
            yield Source(connection, [])
        return
    logs = [Log.open(path) for path in paths]
    _refuse_doubles(logs)
    with opened_warehouse(None) as connection:
        loader = Loader(connection)
        for log in logs:
            with progress_bar(f"load {log.path.name}", log.path) as told:
                loader.load(log, told)
        derive(connection)
        yield Source(connection, logs)


def _refuse_doubles(logs: list[Log]) -> None:
    places: dict[Path, Path] = {}
    for log in logs:
        place = log.path.resolve()
        if place in places:
            raise WarehouseError(f"{log.path} is named twice; name each log once")
        places[place] = log.path
