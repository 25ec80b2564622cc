"""The timeline on a terminal: lines in columns, one request's with times in milliseconds from its first."""

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from replay.timeline import Line
from replay.wording.lines import struct_text

_MS_PER_SECOND = 1000
_CAUSE_WIDTH = 15


def print_timeline(told: Iterable[Line], request: str | None, *, full: bool) -> int:
    """How many lines there were."""
    console = Console(highlight=False, soft_wrap=True)
    incarnation, count = -1, 0
    for line in told:
        if line.incarnation != incarnation:
            incarnation = line.incarnation
            console.print(_heading(line, request), style="bold", markup=False)
        console.print(_line_text(line) if request is None else _request_text(line))
        if full:
            for fact in line.facts:
                console.print(f"{'':22}{struct_text(fact)}", markup=False)
        count += 1
    return count


def _heading(line: Line, request: str | None) -> str:
    whose = f"request {request!r}, " if request is not None else ""
    milliseconds = line.wall_time.microsecond // 1000
    return f"{whose}incarnation {line.incarnation}, {line.wall_time:%Y-%m-%d %H:%M:%S}.{milliseconds:03d} UTC"


def _line_text(line: Line) -> Text:
    return Text.assemble(
        (f"{line.seq:8d} ", "dim"),
        (f"+{line.since_s:11.6f} s  ", "cyan"),
        (line.cause_phrase, "bold"),
        f"  ->  {line.facts_phrase}" if line.facts_phrase else "",
    )


def _request_text(line: Line) -> Text:
    return Text.assemble(
        (f"{line.seq:8d} ", "dim"),
        (f"+{line.since_s * _MS_PER_SECOND:11.3f} ms  ", "cyan"),
        (f"{line.cause_phrase:<{_CAUSE_WIDTH}}  ", "bold"),
        line.facts_phrase or "nothing changes",
    )
