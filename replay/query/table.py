"""An answer for people: a table as wide as the terminal, or one block a row where the columns do not fit.

Text of a log is shown, never obeyed: what is not printable is written as an escape.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from replay.command_line import shown
from replay.query.asking import Answer, Column
from replay.query.output import plain_text

ROWS_SHOWN_MAX = 100
UNBOUNDED_WIDTH = 10_000
"""Of what goes to a file or a pipe: no line is broken there."""
_TEXT_WIDTH_MIN = 12
"""A column of text may be squeezed to this before the table is given up for blocks."""
_NUMBERS = ("BIGINT", "INTEGER", "DOUBLE", "FLOAT", "HUGEINT", "SMALLINT", "TINYINT", "DECIMAL")


def write_table(answer: Answer, out: TextIO, *, width: int | None, rows_max: int) -> str:
    """Shows the first rows. Gives a note about what is not shown; empty if nothing is missing.

    `width`: of the terminal in characters; None where `out` is none.
    """
    rows = list(islice(answer.rows, rows_max))
    more = next(answer.rows, None) is not None
    cells = [[_cell(value) for value in row] for row in rows]
    console = Console(
        file=out, width=width or UNBOUNDED_WIDTH, color_system=None, highlight=False, emoji=False
    )
    if answer.title:
        console.print(Text(answer.title), soft_wrap=True)
        console.print()
    if width is None or _fits(answer.columns, cells, width):
        console.print(_table(answer.columns, cells))
    else:
        _print_blocks(console, answer.columns, cells)
    if more:
        return f"the first {len(rows)} rows; --rows N shows more of them, --format csv gives all"
    if not rows:
        return "no row"
    return ""


def _table(columns: Sequence[Column], cells: list[list[str]]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        if is_number(column):
            table.add_column(Text(_cell(column.name)), justify="right", no_wrap=True)
        else:
            table.add_column(Text(_cell(column.name)), overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def _fits(columns: Sequence[Column], cells: list[list[str]], width: int) -> bool:
    needed = 0
    for index, column in enumerate(columns):
        widest = max([len(column.name), *(len(row[index]) for row in cells)])
        needed += 3 + (widest if is_number(column) else min(widest, max(_TEXT_WIDTH_MIN, len(column.name))))
    return needed <= width


def _print_blocks(console: Console, columns: Sequence[Column], cells: list[list[str]]) -> None:
    names = [_cell(column.name) for column in columns]
    indent = max(map(len, names))
    for number, row in enumerate(cells, 1):
        console.print(Text(f"row {number}"))
        for name, value in zip(names, row, strict=True):
            console.print(Text(f"  {name:<{indent}}  {value}"), soft_wrap=True)


def _cell(value: Any) -> str:
    return shown(plain_text(value).expandtabs())


def is_number(column: Column) -> bool:
    return column.type.removeprefix("U").startswith(_NUMBERS) and not column.type.endswith("]")
