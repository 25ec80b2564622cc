"""`replay sql`, called as a user calls it."""

from pathlib import Path

from click.testing import CliRunner, Result

from replay.__main__ import main


def run(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["sql", *map(str, arguments)], input=stdin, catch_exceptions=False)
