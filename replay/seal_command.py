"""`replay seal`: closed segments of a log as Parquet files, beside the log."""

import json
import sys
from pathlib import Path

import attrs
import click

from replay.command_line import errors_in_words, print_remarks, progress_bar
from replay.warehouse.sealed import SealedFolder, default_folder
from replay.warehouse.sealing import Sealing, seal_log


@click.command("seal")
@click.argument("log", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the files; LOG-sealed beside the log if it is not named.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def seal_command(log: Path, out: Path | None, as_json: bool) -> None:
    """Write the log's closed segments as Parquet files, one for each table of a segment.

    Anything that reads Parquet can ask them, and `replay load` and `replay audit` take them in place of the
    log's own bytes, if these are still the ones that were sealed. Run it again to seal what was closed since.
    The log is not touched.

    Exit codes: 0 all that is closed is sealed, 1 a segment is damaged, 2 it cannot be done.
    """
    folder = SealedFolder(out or default_folder(log))
    with errors_in_words():
        if as_json:
            found = seal_log(log, folder)
            click.echo(json.dumps(_document(found)))
        else:
            with progress_bar("seal", log) as told:
                found = seal_log(log, folder, told)
            _print(found)
    sys.exit(1 if found.log.troubles else 0)


def _document(found: Sealing) -> dict[str, object]:
    return {
        "log": str(found.log.path),
        "folder": str(found.folder),
        "troubles": [str(trouble) for trouble in found.log.troubles],
        "notes": found.log.notes,
    } | attrs.asdict(found, filter=attrs.filters.exclude("log", "folder"))


def _print(found: Sealing) -> None:
    print_remarks(found.log)
    for name in found.left:
        click.echo(f"note: {name} is not sealed: it is still written to, or damaged", err=True)
    click.echo(
        f"seal: {found.sealed} segments sealed, {found.before} were before, {len(found.left)} are left;"
        f" {found.bytes_read:,} bytes of the log became {found.bytes_written:,} in {found.folder}"
    )
