"""`replay audit`: the invariants in SQL, and beside them what only the kernel's fold can tell of a log.

Stands above `replay.auditor`, which must not know the kernel; here both say what they found in one list.
"""

import json
import sys
import time
from pathlib import Path

import attrs
import click

from replay.audit_text import print_audit
from replay.auditor import Audit, Verdict, Violation, audit_log, invariants
from replay.command_line import errors_in_words, print_remarks, progress_bar
from replay.fold import fold_log
from replay.log import Log, Progress

SNAPSHOTS = "snapshot_digests"
MEANING = (
    "Every fact fits the state that those before it lead to, and every snapshot has that state's digest, as"
    " the kernel folds them."
)


@click.command("audit")
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option(
    "--invariant",
    "names",
    multiple=True,
    metavar="NAME",
    help=f"Look only at this one; may be given again. All without it, and {SNAPSHOTS}.",
)
def audit_command(log: Path, as_json: bool, names: tuple[str, ...]) -> None:
    """Recompute from the log's facts, in SQL, what must hold in it, and say where it does not.

    Exit codes: 0 all of it holds, 1 a record breaks it or the log is damaged, 2 it cannot be read as asked.
    """
    chosen = _chosen(names)
    with errors_in_words():
        if as_json:
            found = _audited(log, chosen, None)
            click.echo(json.dumps(found.as_json()))
        else:
            with progress_bar("audit", log, passes=2 if SNAPSHOTS in chosen else 1) as told:
                found = _audited(log, chosen, told)
            print_audit(found)
            print_remarks(found.log)
    sys.exit(0 if found.ok else 1)


def _chosen(names: tuple[str, ...]) -> list[str]:
    known = [*invariants(), SNAPSHOTS]
    for name in names:
        if name not in known:
            raise click.BadParameter(
                f"there is no {name!r}; there are {', '.join(known)}", param_hint="--invariant"
            )
    return [name for name in known if name in names] if names else known


def _audited(path: Path, names: list[str], told: Progress | None) -> Audit:
    audit = audit_log(path, told, only=[name for name in names if name != SNAPSHOTS])
    if SNAPSHOTS not in names:
        return audit
    return attrs.evolve(audit, verdicts=[*audit.verdicts, _folded(path, _behind(path, told))])


def _behind(path: Path, told: Progress | None) -> Progress | None:
    """Progress of a second pass through the log."""
    if told is None:
        return None
    size_bytes = Log.open(path).size_bytes
    return lambda done_bytes: told(size_bytes + done_bytes)


def _folded(path: Path, told: Progress | None) -> Verdict:
    began = time.monotonic()
    report = fold_log(path, told)
    first = []
    if report.difference is not None:
        at = report.difference
        why = f"{at.what}: expected {at.expected}, got {at.got}"
        first.append(Violation(at.incarnation, at.seq, why))
    compared = sum(each.snapshots_compared for each in report.incarnations)
    return Verdict(
        SNAPSHOTS,
        MEANING,
        len(first),
        first,
        round((time.monotonic() - began) * 1000),
        f"{compared} snapshots compared",
    )
