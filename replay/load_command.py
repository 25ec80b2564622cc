"""`replay load`: logs as a DuckDB file that anyone can ask, brought up to date by running it again."""

import json
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import click

from replay.command_line import errors_in_words, print_remarks, progress_bar
from replay.log import Log, Progress
from replay.warehouse import Loaded, load_logs
from replay.warehouse.sealed import SealedFolder

DATABASE = "orbitkv-log.duckdb"


@click.command("load")
@click.argument("logs", metavar="LOG...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--db",
    "database",
    default=DATABASE,
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The DuckDB file, made if it is not there.",
)
@click.option(
    "--sealed",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where `replay seal` wrote to; LOG-sealed beside each log if it is not named.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def load_command(logs: tuple[Path, ...], database: Path, sealed: Path | None, as_json: bool) -> None:
    """Load logs into a DuckDB file: every fact a row, and views such as `requests` and `pages`.

    Run it again to load what is new; what is there stays, also of segments that the log has dropped. Several
    managers' logs stand side by side. If it is interrupted, the next run goes on. Sealed segments are taken
    in place of the log's own bytes where they belong to them.

    Exit codes: 0 all is loaded, 1 some of it is damaged (see the table `troubles`), 2 it cannot be done.
    """
    with errors_in_words():
        folder = SealedFolder(sealed) if sealed else None
        found = load_logs(logs, database, _silent if as_json else _bar, sealed=folder)
    if as_json:
        click.echo(json.dumps(_document(found, database)))
    else:
        _print(found, database)
    sys.exit(1 if any(each.log.troubles for each in found) else 0)


def _bar(log: Log) -> AbstractContextManager[Progress | None]:
    return progress_bar("load", log.path)


def _silent(_: Log) -> AbstractContextManager[Progress | None]:
    return nullcontext()


def _document(found: list[Loaded], database: Path) -> dict[str, object]:
    return {
        "database": str(database),
        "logs": [
            {
                "log": str(each.log.path),
                "records": each.records,
                "new_records": each.new_records,
                "troubles": [str(trouble) for trouble in each.log.troubles],
                "notes": each.log.notes,
            }
            for each in found
        ],
    }


def _print(found: list[Loaded], database: Path) -> None:
    for each in found:
        print_remarks(each.log)
        click.echo(f"{each.log.path}: {each.records:,} records, {each.new_records:,} of them new")
    if any(each.log.troubles for each in found):
        click.echo(f"load: DAMAGED; {database} has all that could be read, and the table `troubles` the rest")
    else:
        click.echo(f"load: ok; ask it with `duckdb {database}` or `replay sql --db {database}`")
