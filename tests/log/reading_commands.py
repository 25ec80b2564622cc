"""The commands of `replay` that read a log, to be tried one after the other on whatever is no log."""

from collections.abc import Callable
from pathlib import Path

from tests import histories

HISTORIES = Path(histories.__file__).parent
SEGMENT = "00000001-00000001.orbitlog"
OK, DAMAGED, REFUSED = 0, 1, 2

COMMANDS: dict[str, Callable[[str, Path], list[str]]] = {
    "fold": lambda log, _: ["fold", log],
    "fold --json": lambda log, _: ["fold", log, "--json"],
    "verify": lambda log, _: ["verify", log],
    "timeline": lambda log, _: ["timeline", log, "--full"],
    "audit": lambda log, _: ["audit", log, "--invariant", "chain", "--invariant", "snapshot_digests"],
    "report": lambda log, out: ["report", log, "-o", f"{out}/report.html"],
    "perfetto": lambda log, out: ["perfetto", log, "-o", f"{out}/trace.json"],
    "export": lambda log, out: ["export", log, f"{out}/export"],
    "export --pseudonymise": lambda log, out: ["export", log, f"{out}/pseudonyms", "--pseudonymise"],
    "load": lambda log, out: ["load", log, "--db", f"{out}/loaded.duckdb"],
    "seal": lambda log, _: ["seal", log],
    "sql": lambda log, _: ["sql", log, "SELECT count(*) FROM records"],
    "fixture": lambda log, out: ["fixture", log, "--seq", "3-9", "--out", f"{out}/piece"],
}
