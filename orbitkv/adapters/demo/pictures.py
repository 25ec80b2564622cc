"""What can be looked at after a run: report and trace, made by other processes from the log alone.

They come on top: a run is as good without them, so what cannot be made is told in a sentence and no error.
"""

from pathlib import Path

import attrs

from orbitkv.adapters.demo.manager import replay

REPORT, TRACE = "report.html", "trace.json"


@attrs.frozen
class Pictures:
    lines: list[str]
    """One for each: where it is, or why it is not there."""


async def make_pictures(out: Path) -> Pictures:
    """Of the log in this folder of a run, beside it."""
    return Pictures(
        [
            await _made("report", out / "log", out / REPORT, "report"),
            await _made("perfetto", out / "log", out / TRACE, "trace for ui.perfetto.dev"),
        ]
    )


def _why(stderr: bytes) -> str:
    """The error among what it said, else its last words."""
    said = stderr.decode(errors="replace").strip().splitlines() or [""]
    return next((line for line in said if line.startswith("Error: ")), said[-1]).removeprefix("Error: ")


async def _made(command: str, log: Path, path: Path, name: str) -> str:
    done = await replay(command, log, "-o", str(path))
    # It says so when it has written the file; its exit code says whether the log is as it should be.
    if not done.stdout.startswith(command.encode()):
        return f"no {name}: {_why(done.stderr) or f'`replay {command}` ended with {done.returncode}'}"
    if done.returncode:
        return f"{name}: {path}; it says what is wrong with the log"
    return f"{name}: {path}"
