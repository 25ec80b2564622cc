"""`replay export`: a log that can be given away."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from replay.command_line import errors_in_words, print_remarks, progress_bar
from replay.export.copying import Export, export_log, passes
from replay.export.secret import drawn_secret, secret_of


@click.command("export")
@click.argument("log", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--pseudonymise", is_flag=True, help="Replace page keys, requests, instances, hosts and the like."
)
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path),
    help="Pseudonyms follow from the secret in this file, which is made if it is not there: exports with one"
    " secret can be joined. Without it the secret is drawn and forgotten.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def export_command(log: Path, out: Path, pseudonymise: bool, secret_file: Path | None, as_json: bool) -> None:
    """Copy the readable part of LOG to the new directory OUT.

    The copy is a log: it folds, verifies and audits as LOG does. With --pseudonymise, keyed digests stand
    for page keys, requests, instances, hosts, namespaces, users and free text. What stays: times, sizes,
    process ids, and how the pages of an engine are laid out. Without it the records are copied byte for byte.

    Exit codes: 0 all is copied, 1 LOG is damaged and is copied up to there, 2 nothing is copied.
    """
    if secret_file is not None and not pseudonymise:
        raise click.UsageError("--secret-file is for --pseudonymise; give both, or neither")
    with errors_in_words():
        secret = _secret(log, out, secret_file) if pseudonymise else None
        if as_json:
            export = export_log(log, out, secret)
            click.echo(json.dumps(_as_json(export)))
        else:
            with progress_bar("export", log, passes=passes(secret)) as told:
                export = export_log(log, out, secret, told)
            _print(export)
    sys.exit(0 if export.ok else 1)


def _secret(log: Path, out: Path, file: Path | None) -> bytes:
    if file is None:
        return drawn_secret()
    for place, what in ((out, "given away with it"), (log, "written into the log, which is never changed")):
        if file.resolve().is_relative_to(place.resolve()):
            raise click.UsageError(f"the secret {file} would be {what}; name a file elsewhere")
    secret, made = secret_of(file)
    if made:
        click.echo(f"note: a new secret stands in {file}; whoever has it can test guesses", err=True)
    return secret


def _print(export: Export) -> None:
    for number, (first_seq, next_seq) in export.incarnations.items():
        click.echo(f"incarnation {number}: seq {first_seq} to {next_seq - 1}")
    print_remarks(export.log)
    if not export.pseudonymised:
        click.echo(
            "note: the copy holds all page keys, request and host names; --pseudonymise replaces them",
            err=True,
        )
    up_to = "" if export.ok else ", up to the damage"
    how = "with pseudonyms" if export.pseudonymised else "as they are"
    click.echo(
        f"export: {export.records} records {how} in {export.segments} segments, {export.size_bytes} bytes,"
        f" in {export.target}{up_to}"
    )


def _as_json(export: Export) -> dict[str, Any]:
    return {
        "log": str(export.log.path),
        "out": str(export.target),
        "ok": export.ok,
        "pseudonymised": export.pseudonymised,
        "records": export.records,
        "segments": export.segments,
        "bytes": export.size_bytes,
        "incarnations": [
            {"incarnation": number, "first_seq": first_seq, "next_seq": next_seq}
            for number, (first_seq, next_seq) in export.incarnations.items()
        ],
        "troubles": [str(trouble) for trouble in export.log.troubles],
        "notes": export.log.notes,
    }
